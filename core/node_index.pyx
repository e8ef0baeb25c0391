"""An index that finds the best nodes without looking at the others.

Theory of operation
-------------------
*Positions* are the rows of the table in the order of their tie-breaks, so "the smallest tie-break" is "the first
bit set" in a bitmap over positions. A row is at one *level*, its number of tasks; each level has a bitmap of the
rows that are ready and at it. So the spread order of nodes without a task of the service, fewest tasks first and
then by tie-break, is: level by level, bit by bit. `Walk` goes through it; words in which the level has no bit in
common with the other masks are skipped eight at a time.

The other masks rule out what need not be looked at: rows that pass the filters which do not change with the tasks
(`pack`), and rows with enough room. Room is told apart by powers of two: a demand for 3 cores reads the bitmap "at
least 2 cores", so a row that it meets may still have too little. Whoever walks checks each row with
`filters.Ask.check`; masks may be too generous, but never too strict. A bitmap of room is made when somebody first
asks for so much (it is *watched* from then on) and changes only when a row's room crosses the power of two.

A change of one row costs two bits. New rows make the order of the positions invalid: it is made anew when it is needed
next, and counts a `generation`, by which holders of bitmaps over positions know that theirs are void. Removed rows only
lose their bits.

Memory: 8 bytes a row for the two orders, an eighth of a byte for each level and each watched amount in use.
"""

import numpy as np


cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__)
    #define BEE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define BEE_CLONES
    #endif

    /* The first word from `word` on in which all masks have a bit in common; n_words, a multiple of 8, if there is
       none. */
    BEE_CLONES static int64_t bee_next_word(
        const uint64_t *const *masks, int n_masks, int64_t word, int64_t n_words, uint64_t *common)
    {
        for (; word < n_words; word = (word | 7) + 1) {
            uint64_t all[8], any = 0;
            const int64_t block = word & ~(int64_t)7;
            for (int i = 0; i < 8; i++)
                all[i] = masks[0][block + i];
            for (int mask = 1; mask < n_masks; mask++)
                for (int i = 0; i < 8; i++)
                    all[i] &= masks[mask][block + i];
            for (int i = 0; i < 8; i++)
                any |= all[i];
            if (any == 0)
                continue;
            for (int i = (int)(word & 7); i < 8; i++)
                if (all[i]) {
                    *common = all[i];
                    return block + i;
                }
        }
        return n_words;
    }
    """
    int64_t bee_next_word(
        const uint64_t** masks, int n_masks, int64_t word, int64_t n_words, uint64_t* common
    ) noexcept nogil


# Of all tables of the process: a bitmap made for one order of positions is never taken for one of another order.
cdef Py_ssize_t generations = 0


cdef class NodeIndex:
    """Positions and bitmaps of one table, which tells it of every change."""

    def __init__(self):
        self.valid = False
        self.generation = 0
        self.n = 0

    def build(self, const uint64_t[::1] tie_break, const int32_t[::1] tasks, const uint8_t[::1] ready, Py_ssize_t size):
        """Put all rows in order. Nothing is watched afterwards.

        Args:
            tie_break, tasks: by row.
            ready: by row: 1 where the row is to be found.
            size: number of rows.
        """
        global generations
        cdef Py_ssize_t row, place
        order = np.argsort(np.asarray(tie_break)[:size], kind="stable").astype(np.int32)
        self.n = size
        self.n_words = max(8, (size + 511) // 512 * 8)
        self.row_at = order
        self.position = np.empty(max(size, 1), dtype=np.int32)
        for place in range(size):
            self.position[self.row_at[place]] = place
        # Pages of levels that no row is at are never touched, so they take no memory.
        self.level_bits = np.zeros((LEVELS_MAX, self.n_words), dtype=np.uint64)
        self.level_count = np.zeros(LEVELS_MAX, dtype=np.int32)
        self.level_top = 0
        self.room_bits = np.zeros((1, self.n_words), dtype=np.uint64)
        self.n_rooms = 0
        for row in range(INDEX_KINDS_MAX):
            self.watched[row] = 0
        generations += 1
        self.generation = generations
        self.valid = True
        for row in range(size):
            if ready[row]:
                self.show(row, tasks[row])

    def copy(self):
        """The same index for a copy of its table. The order of the positions is shared: it never changes."""
        cdef NodeIndex twin = NodeIndex()
        if not self.valid:
            return twin
        levels, n_levels = np.zeros((LEVELS_MAX, self.n_words), dtype=np.uint64), self.level_top + 1
        levels[:n_levels] = self.level_bits[:n_levels]
        twin.level_bits, twin.level_count, twin.level_top = levels, np.array(self.level_count), self.level_top
        twin.room_bits, twin.n_rooms = np.array(self.room_bits), self.n_rooms
        twin.watched, twin.room_at = self.watched, self.room_at
        twin.row_at, twin.position, twin.n, twin.n_words = self.row_at, self.position, self.n, self.n_words
        twin.generation, twin.valid = self.generation, True
        return twin

    def watch(self, Py_ssize_t kind, int room, const int64_t[::1] free):
        """Keep the bitmap of rows with at least 2**room of a kind from now on. Idempotent.

        Args:
            free: by row: what is free of the kind.
        """
        cdef Py_ssize_t row
        cdef int number = self.n_rooms
        if self.watched[kind] >> room & 1:
            return
        if number == self.room_bits.shape[0]:
            self.room_bits = np.concatenate([self.room_bits, np.zeros_like(self.room_bits)])
        for row in range(self.n):
            if room_bit(free[row]) > room:
                self._set(self.room_bits[number], self.position[row])
        self.room_at[kind][room] = <int16_t>number
        self.watched[kind] |= <uint64_t>1 << room
        self.n_rooms += 1

    def pack(self, const uint8_t[::1] codes):
        """The bitmap of the rows whose code is 0; None when that is every row.

        Args:
            codes: by row.
        """
        cdef Py_ssize_t place
        if codes.shape[0] < self.n:
            raise ValueError(f"{codes.shape[0]} codes for {self.n} rows")
        if not np.asarray(codes)[: self.n].any():
            return None
        cdef uint64_t[::1] bits = np.zeros(self.n_words, dtype=np.uint64)
        with nogil:
            for place in range(self.n):
                bits[place >> 6] |= <uint64_t>(codes[self.row_at[place]] == 0) << (place & 63)
        return np.asarray(bits)

    @property
    def nbytes(self):
        """Memory of everything that is in use, in bytes."""
        if not self.valid:
            return 0
        levels = np.count_nonzero(self.level_count)
        return 8 * self.n + (levels + self.room_bits.shape[0]) * self.n_words * 8

    cdef int show(self, Py_ssize_t row, int32_t tasks) except -1 nogil:
        """The row is ready and has so many tasks."""
        if self.valid:
            set_level(self, self.position[row], tasks)
        return 0

    cdef int hide(self, Py_ssize_t row, int32_t tasks) except -1 nogil:
        """The row, which had so many tasks, is not ready or has another number now."""
        if self.valid:
            clear_level(self, self.position[row], tasks)
        return 0

    cdef int change_room(self, Py_ssize_t kind, Py_ssize_t row, int64_t before, int64_t after) except -1 nogil:
        """What is free of a kind on a row has changed."""
        if self.valid:
            cross_rooms(self, kind, self.position[row], before, after)
        return 0

    cdef int _set(self, uint64_t[::1] bits, Py_ssize_t place) except -1 nogil:
        bits[place >> 6] |= <uint64_t>1 << (place & 63)
        return 0


cdef int begin_walk(NodeIndex index, Walk* walk) except -1 nogil:
    """Before the first level, with no masks but the levels' own."""
    walk.n_masks = 1
    walk.level = 0
    walk.word = -1
    walk.bits = 0
    return 0


cdef int add_mask(Walk* walk, const uint64_t* mask) except -1 nogil:
    """From now on skip the positions whose bit in the mask, n_words long, is 0."""
    walk.masks[walk.n_masks] = mask
    walk.n_masks += 1
    return 0


cdef Py_ssize_t next_place(NodeIndex index, Walk* walk) except -2 nogil:
    """The position of the next row in order of tasks, then tie-breaks; -1 after the last one below the last level.

    Rows may change meanwhile. A row that comes to a level at or behind the place of the walk is met there (again).
    """
    cdef int place
    # Safety: masks point to n_words words each, level_bits because `build` made it so, the others because `add_mask`
    # says so. Every position below n is a row; no bit from n on is ever set.
    while walk.bits == 0:
        walk.word += 1
        while walk.level <= index.level_top and walk.level < LAST_LEVEL:
            if index.level_count[walk.level]:
                walk.masks[0] = &index.level_bits[walk.level, 0]
                walk.word = bee_next_word(walk.masks, walk.n_masks, walk.word, index.n_words, &walk.bits)
                if walk.word < index.n_words:
                    break
            walk.level += 1
            walk.word = 0
        else:
            return -1
    place = bee_lowest_bit(walk.bits)
    walk.bits &= walk.bits - 1
    return walk.word * 64 + place
