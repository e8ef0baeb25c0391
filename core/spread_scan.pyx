"""Spread by a full scan: for few tasks, when many rows already have tasks of the service.

Theory of operation
-------------------
`_collect` scans the table once and keeps the best rows, at most as many as tasks are left, in a bounded heap.
`_fill` then takes the best of them, checks it again, places a task, and puts the row back with its new key.

A row that was not collected is no better than the worst one collected (the bound). As long as the best row at hand is
not beyond the bound it is therefore the best of all. It can get beyond only when a pool shared by many nodes ran empty
and took collected rows away; then the table is scanned again. Every scan after the first follows a pool that ran empty,
so there are at most as many as pools.

Rows where the service failed are left out: they come after all others, in `spread_rounds`.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc

from beeyard.core.filters cimport BLOCK_ROWS, Ask, Outcome, block_keys
from beeyard.core.node_table cimport NodeTable

import numpy as np


cdef extern from *:
    """
    #include <stdint.h>
    static int bee_rows_up_to(const int64_t *keys, int n, int64_t most, int32_t *rows)
    {
        int found = 0;
        for (int i = 0; i < n; i++) {
            rows[found] = i;
            found += keys[i] <= most;
        }
        return found;
    }
    """
    int bee_rows_up_to(const int64_t* keys, int n, int64_t most, int32_t* rows) noexcept nogil


cdef int place_by_scan(NodeTable table, Ask ask, Outcome outcome) except -1:
    """Place tasks as long as they fit on rows where the service did not fail.

    O(n_nodes + n_tasks * log(n_tasks)) when no pool runs empty meanwhile.
    """
    cdef int64_t[::1] keys = np.empty(BLOCK_ROWS, dtype=np.int64)
    cdef int32_t[::1] found = np.empty(BLOCK_ROWS, dtype=np.int32)
    cdef Candidate* heap = <Candidate*>malloc(
        min(outcome.end - outcome.placed, table.size) * sizeof(Candidate)
    )
    if heap == NULL:
        raise MemoryError
    try:
        with nogil:
            _scan_and_fill(table, ask, outcome, keys, found, heap)
    finally:
        free(heap)
    return 0


cdef int _scan_and_fill(
    NodeTable table, Ask ask, Outcome outcome, int64_t[::1] keys, int32_t[::1] found, Candidate* heap
) except -1 nogil:
    """Scan and fill by turns until all tasks are placed or a scan finds no row."""
    cdef Py_ssize_t before = -1, collected, limit
    # Each turn places a task: the best row of a fresh scan fits. The second condition only guards against a bug.
    while before < outcome.placed < outcome.end:
        before = outcome.placed
        limit = min(outcome.end - outcome.placed, table.size)
        collected = _collect(table, ask, limit, keys, found, heap)
        if collected == 0:
            break
        _fill(table, ask, outcome, heap, collected, collected == limit)
    return 0


cdef Py_ssize_t _collect(
    NodeTable table, Ask ask, Py_ssize_t limit, int64_t[::1] keys, int32_t[::1] found, Candidate* heap
) except -1 nogil:
    """Gather the best `limit` rows that fit, or all when they are fewer, as a heap with the worst on top."""
    cdef Py_ssize_t block, begin, row, n = 0
    cdef int in_block, index
    cdef int64_t most = INT64_MAX - 1  # the largest key that may still get in
    cdef Candidate candidate
    for block in range((table.size + BLOCK_ROWS - 1) // BLOCK_ROWS):
        begin = block * BLOCK_ROWS
        in_block = <int>min(BLOCK_ROWS, table.size - begin)
        if block_keys(table, ask, begin, in_block, keys) > most:
            continue
        for index in range(_rows_up_to(keys, in_block, most, found)):
            row = begin + found[index]
            candidate.key = keys[found[index]]
            candidate.tie_break = table.tie_break[row]
            candidate.row = <int32_t>row
            if n == limit and not _better(candidate, heap[0]):
                continue
            if ask.penalty is not None and ask.penalty[row]:
                continue
            if ask.n_networks and ask.try_pools(row) != ask.n_networks:
                continue
            if n < limit:
                _rise_worst(heap, n, candidate)
                n += 1
            else:
                _sink_worst(heap, n, candidate)
            if n == limit:
                most = heap[0].key
    return n


cdef int _rows_up_to(int64_t[::1] keys, int n, int64_t most, int32_t[::1] rows) except -1 nogil:
    """Write the numbers of the block's rows with a key of at most `most`, in order; returns how many."""
    # Safety: both are BLOCK_ROWS long, and n is no more.
    return bee_rows_up_to(&keys[0], n, most, &rows[0])


cdef int _fill(
    NodeTable table, Ask ask, Outcome outcome, Candidate* heap, Py_ssize_t n, bint truncated
) except -1 nogil:
    """Place tasks on the collected rows, best first.

    Stops when all are, when no row is left, or when rows that were not collected might be better (see above).
    """
    cdef Candidate bound = heap[0], best
    cdef Py_ssize_t index
    for index in range(n // 2 - 1, -1, -1):
        best = heap[index]
        _sink_best(heap, n, index, best)
    while n > 0 and outcome.placed < outcome.end:
        best = heap[0]
        if truncated and _better(bound, best):
            break
        if ask.take(table, best.row, outcome.pools, outcome.placed):
            outcome.add(best.row)
            best.key += (<int64_t>1 << 32) + 1
            _sink_best(heap, n, 0, best)
        else:
            n -= 1
            if n > 0:
                best = heap[n]
                _sink_best(heap, n, 0, best)
    return 0


cdef inline bint _better(Candidate a, Candidate b) noexcept nogil:
    """Whether a task goes to `a` rather than to `b`. Never true both ways: rows differ."""
    if a.key != b.key:
        return a.key < b.key
    if a.tie_break != b.tie_break:
        return a.tie_break < b.tie_break
    return a.row < b.row


# Safety: the heaps below are raw memory. `place_by_scan` allocates min(tasks, rows) candidates; `_collect` never holds
# more than `limit`, which is no more than that, and `_fill` only shrinks the heap. Arithmetic on indices below n cannot
# fail, hence noexcept.


cdef inline void _rise_worst(Candidate* heap, Py_ssize_t n, Candidate candidate) noexcept nogil:
    """Add to a heap of n candidates that has the worst on top."""
    cdef Py_ssize_t child = n, parent
    while child > 0:
        parent = (child - 1) // 2
        if not _better(heap[parent], candidate):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = candidate


cdef inline void _sink_worst(Candidate* heap, Py_ssize_t n, Candidate candidate) noexcept nogil:
    """Put a candidate in place of the top of a heap of n that has the worst on top."""
    cdef Py_ssize_t parent = 0, child
    while True:
        child = 2 * parent + 1
        if child >= n:
            break
        if child + 1 < n and _better(heap[child], heap[child + 1]):
            child += 1
        if not _better(candidate, heap[child]):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = candidate


cdef inline void _sink_best(Candidate* heap, Py_ssize_t n, Py_ssize_t parent, Candidate candidate) noexcept nogil:
    """Put a candidate at or below `parent` in a heap of n that has the best on top."""
    cdef Py_ssize_t child
    while True:
        child = 2 * parent + 1
        if child >= n:
            break
        if child + 1 < n and _better(heap[child + 1], heap[child]):
            child += 1
        if not _better(heap[child], candidate):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = candidate
