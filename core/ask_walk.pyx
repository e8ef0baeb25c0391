"""How a demand walks through the index: with which masks, and what it does with the rows that it meets.

Theory of operation
-------------------
A walk meets only rows that pass the filters which do not change while tasks are placed, and that have about enough
room: the index and `Ask.passing` see to that. What is left is checked row by row. When many rows that the masks let
through do not fit, for a reason that no mask knows (ports, pools, limits), a full scan makes a mask of those that do.
While tasks are only placed, nothing that does not fit begins to fit, so that this mask stays good until the Ask is
forgotten.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from beeyard.core.filters cimport BLOCK_ROWS, Ask, Outcome, block_keys
from beeyard.core.node_index cimport NodeIndex, Walk, add_mask, begin_walk, room_bit
from beeyard.core.node_table cimport Needs, NodeTable

import numpy as np

cdef Needs NO_NEEDS = Needs(())


cdef bint take_met(
    NodeTable table, Ask ask, Py_ssize_t row, Py_ssize_t place, Outcome outcome
) except -1 nogil:
    """`Ask.take` for a row without a task of the service that a walk met at this position, and note the row."""
    cdef int number
    if ask.n_networks or ask.one_per_node or ask.any_refused:
        if not ask.take(table, row, outcome.pools, outcome.placed):
            return False
        outcome.add(row)
        return True
    for number in range(ask.needs.n):
        if table.free[ask.needs.kind[number], row] < ask.needs.amount[number]:
            return False
    table.take_at(row, place, ask.needs)
    if not ask.alone:
        ask.service_tasks[row] += 1
    outcome.add(row)
    return True


cdef int note_failed(NodeTable table, Ask ask, NodeIndex index, Walk* walk) except -1 nogil:
    """A row that the walk met does not fit. Many of them pay for a full scan, which spares it the others."""
    # A row costs about 10 ns, a scan less than 2 ns for each row of the table.
    if ask.count_failed() > FAILED_MIN + index.n // 4:
        with gil:
            _find_alive(table, ask, index)
        _lay_masks_again(ask, index, walk)
    return 0


cdef int lay_masks(Ask ask, NodeIndex index, Walk* walk) except -1 nogil:
    """Begin a walk with all bitmaps that rule out rows for this demand."""
    cdef int number
    cdef int32_t kind
    # Safety: bitmaps of the index are n_words long, and `passing` and `alive` were made for it; `table.indexed` watches
    # every kind of `needs`, and nothing else is watched while the walk goes on.
    begin_walk(index, walk)
    for number in range(ask.needs.n):
        kind = ask.needs.kind[number]
        add_mask(walk, &index.room_bits[index.room_at[kind][room_bit(ask.needs.amount[number]) - 1], 0])
    if ask.passing is not None:
        add_mask(walk, &ask.passing[0])
    if ask.alive is not None:
        add_mask(walk, &ask.alive[0])
    return 0


cdef int _lay_masks_again(Ask ask, NodeIndex index, Walk* walk) except -1 nogil:
    """The same in the middle of a walk, which goes on where it is."""
    cdef int level = walk.level
    cdef int64_t word = walk.word
    cdef uint64_t bits = walk.bits
    lay_masks(ask, index, walk)
    walk.level, walk.word, walk.bits = level, word, bits
    return 0


cdef int _find_alive(NodeTable table, Ask ask, NodeIndex index) except -1:
    """Make the bitmap of the rows that fit now. While tasks are only placed, it leaves out none that could take one."""
    cdef int64_t[::1] keys = np.empty(BLOCK_ROWS, dtype=np.int64)
    cdef uint64_t[::1] alive = np.zeros(index.n_words, dtype=np.uint64)
    cdef Needs needs = ask.needs
    cdef Py_ssize_t block, begin, row
    cdef int n, number
    cdef int32_t place
    if ask.varied:
        ask.needs = NO_NEEDS
    for block in range((table.size + BLOCK_ROWS - 1) // BLOCK_ROWS):
        begin = block * BLOCK_ROWS
        n = <int>min(BLOCK_ROWS, table.size - begin)
        if block_keys(table, ask, begin, n, keys) == INT64_MAX:
            continue
        for number in range(n):
            row = begin + number
            if keys[number] < INT64_MAX and (ask.n_networks == 0 or ask.try_pools(row) == ask.n_networks):
                place = index.position[row]
                alive[place >> 6] |= <uint64_t>1 << (place & 63)
    ask.needs = needs
    ask.alive = alive
    ask.n_failed = 0
    return 0
