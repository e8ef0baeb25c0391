"""LZW as Go's compress/lzw writes it: order LSB, 8-bit literals, codes of 9 to 12 bits. The bytes are Go's.

Compiled, because real agents compress every packet that gets smaller by it, and because a peer chooses how much there
is to decompress. The lock of the interpreter is kept: getting it back from a busy thread takes longer than a packet.
Codes to 255 are literals, 256 clears the table, 257 ends, the table starts at 258.
Source: Go 1.19 src/compress/lzw/{reader,writer}.go.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

cdef enum:
    CLEAR = 256
    END = 257
    FIRST_WIDTH = 9
    LAST_WIDTH = 12
    CODES = 4096
    LAST_CODE = 4095  # the writer clears its table when this one is next
    SLOTS = 16384  # of the writer's hash table: 4 for each code, as in Go; a power of two

cdef enum:
    FINE = 0
    TRUNCATED = -1
    UNKNOWN_CODE = -2
    TOO_LARGE = -3
    NO_MEMORY = -4


cdef struct Buffer:
    uint8_t *bytes
    Py_ssize_t size  # used
    Py_ssize_t room  # allocated


cdef int make_room(Buffer *buffer, Py_ssize_t more) noexcept nogil:
    """Make sure that `more` bytes fit; FINE or NO_MEMORY."""
    cdef Py_ssize_t room = buffer.room
    cdef void *grown
    if buffer.size + more <= room:
        return FINE
    while room < buffer.size + more:
        room *= 2
    grown = realloc(buffer.bytes, room)
    if grown == NULL:
        return NO_MEMORY
    buffer.bytes = <uint8_t *> grown
    buffer.room = room
    return FINE


cdef struct Bits:
    uint32_t waiting  # not yet a whole byte
    int n_waiting
    int width  # of a code now


cdef inline void put(Buffer *out, Bits *bits, uint32_t code) noexcept nogil:
    """Write one code. Safety: the caller made room for 3 bytes."""
    bits.waiting |= code << bits.n_waiting
    bits.n_waiting += bits.width
    while bits.n_waiting >= 8:
        out.bytes[out.size] = bits.waiting & 0xFF
        out.size += 1
        bits.waiting >>= 8
        bits.n_waiting -= 8


cdef int deflate(const uint8_t *data, Py_ssize_t size, Buffer *out, uint32_t *table) noexcept nogil:
    """Write all codes for `data`. `table`: SLOTS entries, key << 12 | code, 0 where empty."""
    cdef Bits bits
    cdef Py_ssize_t i
    cdef uint32_t code, literal, key, slot, entry, hi = END
    bits.waiting, bits.n_waiting, bits.width = 0, 0, FIRST_WIDTH
    put(out, &bits, CLEAR)
    if size == 0:
        put(out, &bits, END)
    else:
        code = data[0]
        for i in range(1, size):
            literal = data[i]
            key = code << 8 | literal
            slot = (key >> 12 ^ key) & (SLOTS - 1)
            entry = table[slot]
            while entry != 0 and entry >> 12 != key:
                slot = (slot + 1) & (SLOTS - 1)
                entry = table[slot]
            if entry != 0:
                code = entry & LAST_CODE
                continue
            if make_room(out, 8) != FINE:
                return NO_MEMORY
            put(out, &bits, code)
            code = literal
            hi += 1
            if hi == <uint32_t> 1 << bits.width:
                bits.width += 1
            if hi == LAST_CODE:
                put(out, &bits, CLEAR)
                bits.width = FIRST_WIDTH
                hi = END
                memset(table, 0, SLOTS * sizeof(uint32_t))
            else:
                table[slot] = key << 12 | hi
        if make_room(out, 8) != FINE:
            return NO_MEMORY
        put(out, &bits, code)
        hi += 1
        if hi == <uint32_t> 1 << bits.width:
            bits.width += 1
        if hi == LAST_CODE:
            put(out, &bits, CLEAR)
            bits.width = FIRST_WIDTH
        put(out, &bits, END)
    if bits.n_waiting > 0:
        out.bytes[out.size] = bits.waiting & 0xFF
        out.size += 1
    return FINE


cdef struct Table:
    uint16_t prefix[CODES]  # the code of all but the last byte
    uint8_t suffix[CODES]  # the last byte
    uint8_t head[CODES]  # the first byte
    int32_t length[CODES]  # how many bytes a code stands for


cdef int inflate(const uint8_t *data, Py_ssize_t size, Buffer *out, Py_ssize_t most, Table *table) noexcept nogil:
    """Read all codes of `data` up to the end code. `table`: the literals are filled in, the rest zero."""
    cdef uint32_t waiting = 0, code, walk, hi = END, last = 0
    cdef int n_waiting = 0, width = FIRST_WIDTH
    cdef bint has_last = False
    cdef Py_ssize_t position = 0, at, length
    while True:
        while n_waiting < width:
            if position == size:
                return TRUNCATED
            waiting |= <uint32_t> data[position] << n_waiting
            position += 1
            n_waiting += 8
        code = waiting & ((<uint32_t> 1 << width) - 1)
        waiting >>= width
        n_waiting -= width
        if code == CLEAR:
            width = FIRST_WIDTH
            hi = END
            has_last = False
            continue
        if code == END:
            return FINE
        if code > hi:
            return UNKNOWN_CODE
        if has_last:  # what the next code stands for: all of the last one and the first byte of this one
            table.prefix[hi] = last
            table.head[hi] = table.head[last]
            table.suffix[hi] = table.head[last] if code == hi else table.head[code]
            table.length[hi] = table.length[last] + 1
        length = table.length[code]
        if out.size + length > most:
            return TOO_LARGE
        if make_room(out, length) != FINE:
            return NO_MEMORY
        # Invariant: length[c] is 1 + length[prefix[c]], so that the walk ends at the first byte of this piece.
        at, walk = out.size + length - 1, code
        while walk >= CLEAR:
            out.bytes[at] = table.suffix[walk]
            at -= 1
            walk = table.prefix[walk]
        out.bytes[at] = walk
        out.size += length
        last, has_last = code, True
        hi += 1
        if hi >= <uint32_t> 1 << width:
            if width == LAST_WIDTH:
                has_last = False  # the table is full
                hi -= 1
            else:
                width += 1


def compress(bytes data not None):
    """What Go's `lzw.NewWriter(out, lzw.LSB, 8)` writes for `data`.

    Raises:
        MemoryError: there is none.
    """
    cdef Buffer out
    cdef uint32_t *table = <uint32_t *> malloc(SLOTS * sizeof(uint32_t))
    cdef const uint8_t *source = data
    cdef Py_ssize_t size = len(data)
    cdef int outcome = NO_MEMORY
    out.size, out.room = 0, 64 + size
    out.bytes = <uint8_t *> malloc(out.room)
    try:
        if table != NULL and out.bytes != NULL:
            memset(table, 0, SLOTS * sizeof(uint32_t))
            outcome = deflate(source, size, &out, table)
        if outcome != FINE:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *> out.bytes, out.size)
    finally:
        free(table)
        free(out.bytes)


def decompress(bytes data not None, Py_ssize_t most):
    """The bytes that `data` stands for.

    Args:
        data: codes up to the end code; what follows is ignored.
        most: the bytes that may come of it. Neither time nor memory goes far beyond.

    Raises:
        ValueError: no end code, a code that stands for nothing, or more than `most` bytes.
        MemoryError: there is none.
    """
    cdef Buffer out
    cdef Table *table = <Table *> malloc(sizeof(Table))
    cdef const uint8_t *source = data
    cdef Py_ssize_t size = len(data)
    cdef int outcome = NO_MEMORY, literal
    out.size, out.room = 0, 64 + 2 * size
    out.bytes = <uint8_t *> malloc(out.room)
    try:
        if table != NULL and out.bytes != NULL:
            memset(table, 0, sizeof(Table))
            for literal in range(CLEAR):
                table.suffix[literal] = table.head[literal] = literal
                table.length[literal] = 1
            outcome = inflate(source, size, &out, most, table)
        if outcome == TRUNCATED:
            raise ValueError("compressed data ends without an end code")
        if outcome == UNKNOWN_CODE:
            raise ValueError("compressed data has a code that stands for nothing")
        if outcome == TOO_LARGE:
            raise ValueError(f"compressed data stands for more than {most} bytes")
        if outcome != FINE:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *> out.bytes, out.size)
    finally:
        free(table)
        free(out.bytes)
