"""The data sheet of the index over the node table: positions in the order of tie-breaks, and bitmaps over positions."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #ifndef BEE_BITS
    #define BEE_BITS
    static inline int bee_bit_length(uint64_t value)
    {
    #if defined(__GNUC__)
        return value ? 64 - __builtin_clzll(value) : 0;
    #else
        int length = 0;
        for (; value; value >>= 1)
            length++;
        return length;
    #endif
    }

    static inline int bee_lowest_bit(uint64_t value)
    {
    #if defined(__GNUC__)
        return __builtin_ctzll(value);
    #else
        return bee_bit_length(value & -value) - 1;
    #endif
    }
    #endif
    """
    int bee_bit_length(uint64_t value) noexcept nogil
    int bee_lowest_bit(uint64_t value) noexcept nogil


cdef enum:
    INDEX_KINDS_MAX = 16    # as many kinds of resources as the table has at most
    LEVELS_MAX = 256        # numbers of tasks that are told apart; the last level holds all rows with more
    LAST_LEVEL = 255
    ROOMS_MAX = 64          # amounts of room are told apart by their number of bits
    MASKS_MAX = 20          # level, one a kind of resource, passing, alive


cdef class NodeIndex:
    cdef bint valid                     # false: rows came, or the columns moved; nothing below may be read
    cdef readonly Py_ssize_t generation  # rises with every new order of the positions
    cdef readonly Py_ssize_t n          # positions
    cdef Py_ssize_t n_words             # of each bitmap, a multiple of 8; bits from n on are 0
    cdef int32_t[::1] row_at            # by position
    cdef int32_t[::1] position          # by row
    cdef uint64_t[:, ::1] level_bits    # by number of tasks: rows that are ready and have so many
    cdef int32_t[::1] level_count       # bits set in each
    cdef int level_top                  # no level above has a bit
    cdef uint64_t[:, ::1] room_bits     # rows with at least 2**k free of a kind, for the watched pairs of kind and k
    cdef uint64_t watched[INDEX_KINDS_MAX]              # by kind: bit k is set when k is watched
    cdef int16_t room_at[INDEX_KINDS_MAX][ROOMS_MAX]    # by kind and k: the row of room_bits
    cdef int n_rooms                    # rows of room_bits in use

    cdef int show(self, Py_ssize_t row, int32_t tasks) except -1 nogil
    cdef int hide(self, Py_ssize_t row, int32_t tasks) except -1 nogil
    cdef int _set(self, uint64_t[::1] bits, Py_ssize_t place) except -1 nogil
    cdef int change_room(self, Py_ssize_t kind, Py_ssize_t row, int64_t before, int64_t after) except -1 nogil


cdef struct Walk:
    const uint64_t* masks[MASKS_MAX]    # the level's first, then those that are the same at every level
    int n_masks
    int level                           # where the walk is
    int64_t word
    uint64_t bits                       # of this word, those not visited yet


cdef inline int room_bit(int64_t amount) noexcept nogil:
    """The number of bits of an amount: 0 when nothing is free; one more than the greatest k with 2**k <= amount."""
    return bee_bit_length(<uint64_t>amount) if amount > 0 else 0


# The following are for an index that is valid.

cdef inline int set_level(NodeIndex index, Py_ssize_t place, int32_t tasks) except -1 nogil:
    """The row at a position is ready and has so many tasks."""
    cdef int level = min(tasks, LAST_LEVEL)
    index.level_bits[level, place >> 6] |= <uint64_t>1 << (place & 63)
    index.level_count[level] += 1
    if level > index.level_top:
        index.level_top = level
    return 0


cdef inline int clear_level(NodeIndex index, Py_ssize_t place, int32_t tasks) except -1 nogil:
    """The row at a position, which had so many tasks, is not ready or has another number now."""
    cdef int level = min(tasks, LAST_LEVEL)
    index.level_bits[level, place >> 6] &= ~(<uint64_t>1 << (place & 63))
    index.level_count[level] -= 1
    return 0


cdef inline int cross_rooms(
    NodeIndex index, Py_ssize_t kind, Py_ssize_t place, int64_t before, int64_t after
) except -1 nogil:
    """What is free of a kind at a position has changed."""
    cdef uint64_t crossed
    cdef int low = room_bit(before), high = room_bit(after)
    if low == high:
        return 0
    if low > high:
        low, high = high, low
    crossed = index.watched[kind] & ((<uint64_t>1 << high) - (<uint64_t>1 << low))
    while crossed:
        index.room_bits[index.room_at[kind][bee_lowest_bit(crossed)], place >> 6] ^= <uint64_t>1 << (place & 63)
        crossed &= crossed - 1
    return 0


cdef int begin_walk(NodeIndex index, Walk* walk) except -1 nogil
cdef int add_mask(Walk* walk, const uint64_t* mask) except -1 nogil
cdef Py_ssize_t next_place(NodeIndex index, Walk* walk) except -2 nogil
