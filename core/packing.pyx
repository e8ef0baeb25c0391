"""Spread: each task goes to the node with the fewest tasks of its service, then the fewest tasks, then by tie-break.

Theory of operation
-------------------
Placing a group gives the same as placing its tasks one after another, each on the best node of its moment; nothing is
approximated. `_collect` scans the table once and keeps the best rows, at most as many as tasks are left, in a bounded
heap. `_fill` then takes the best of them, checks it again, places a task, and puts the row back with its new key.

A row that was not collected is no better than the worst one collected (the bound). As long as the best row at hand is
not beyond the bound it is therefore the best of all. It can get beyond only when a pool shared by many nodes ran empty
and took collected rows away; then the table is scanned again. Every scan after the first follows a pool that ran empty,
so there are at most as many as pools.

Source: SwarmKit `manager/scheduler` nodeLess and scheduleNTasksOnNodes, for the order.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc

from beeyard.core.filters cimport BLOCK_ROWS, Ask, block_keys, rows_up_to
from beeyard.core.node_table cimport NodeTable

import numpy as np


def spread(NodeTable table, Ask ask, int32_t[::1] rows, int32_t[:, ::1] pools):
    """Place as many equal tasks as fit, and hold their room in the table, the service's column and the pools.

    Args:
        rows: (n_tasks,) overwritten with the row of each placed task, in the order of placing.
        pools: (n_tasks, n_networks) overwritten with the pool row for each network of each placed task.

    Returns:
        Number of tasks placed; the others find no room.

    Raises:
        ValueError: shapes disagree.

    O(n_nodes + n_tasks * log(n_tasks)) when no pool runs empty meanwhile.
    """
    cdef Py_ssize_t n_tasks = rows.shape[0], placed = 0
    cdef int64_t[::1] keys = np.empty(BLOCK_ROWS, dtype=np.int64)
    cdef int32_t[::1] found = np.empty(BLOCK_ROWS, dtype=np.int32)
    if pools.shape[0] != n_tasks or pools.shape[1] != ask.n_networks:
        raise ValueError(f"pools must be {n_tasks} x {ask.n_networks}")
    if n_tasks == 0 or table.size == 0:
        return 0
    cdef Candidate* heap = <Candidate*>malloc(min(n_tasks, table.size) * sizeof(Candidate))
    if heap == NULL:
        raise MemoryError
    try:
        with nogil:
            placed = _spread(table, ask, rows, pools, keys, found, heap)
    finally:
        free(heap)
    return placed


cdef Py_ssize_t _spread(
    NodeTable table,
    Ask ask,
    int32_t[::1] rows,
    int32_t[:, ::1] pools,
    int64_t[::1] keys,
    int32_t[::1] found,
    Candidate* heap,
) except -1 nogil:
    """Scan and fill by turns until all tasks are placed or a scan finds no row."""
    cdef Py_ssize_t n_tasks = rows.shape[0], placed = 0, before = -1, collected, limit
    # Each turn places a task: the best row of a fresh scan fits. The second condition only guards against a bug.
    while before < placed < n_tasks:
        before = placed
        limit = min(n_tasks - placed, table.size)
        collected = _collect(table, ask, limit, keys, found, heap)
        if collected == 0:
            break
        placed = _fill(table, ask, rows, pools, placed, heap, collected, collected == limit)
    return placed


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
        for index in range(rows_up_to(keys, in_block, most, found)):
            row = begin + found[index]
            candidate.key = keys[found[index]]
            candidate.tie_break = table.tie_break[row]
            candidate.row = <int32_t>row
            if n == limit and not _better(candidate, heap[0]):
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


cdef Py_ssize_t _fill(
    NodeTable table,
    Ask ask,
    int32_t[::1] rows,
    int32_t[:, ::1] pools,
    Py_ssize_t placed,
    Candidate* heap,
    Py_ssize_t n,
    bint truncated,
) except -1 nogil:
    """Place tasks on the collected rows, best first. Returns how many are placed in all.

    Stops when all are, when no row is left, or when rows that were not collected might be better (see above).
    """
    cdef Candidate bound = heap[0], best
    cdef Py_ssize_t index
    for index in range(n // 2 - 1, -1, -1):
        best = heap[index]
        _sink_best(heap, n, index, best)
    while n > 0 and placed < rows.shape[0]:
        best = heap[0]
        if truncated and _better(bound, best):
            return placed
        if ask.check(table, best.row) or (
            ask.n_networks and ask.take_pools(best.row, pools[placed]) != ask.n_networks
        ):
            n -= 1
            if n > 0:
                best = heap[n]
                _sink_best(heap, n, 0, best)
            continue
        table.take(best.row, ask.needs)
        ask.service_tasks[best.row] += 1
        if ask.one_per_node:
            ask.ports_taken[best.row] = 1
        rows[placed] = best.row
        placed += 1
        best.key += (<int64_t>1 << 32) + 1
        _sink_best(heap, n, 0, best)
    return placed


cdef inline bint _better(Candidate a, Candidate b) noexcept nogil:
    """Whether a task goes to `a` rather than to `b`. Never true both ways: rows differ."""
    if a.key != b.key:
        return a.key < b.key
    if a.tie_break != b.tie_break:
        return a.tie_break < b.tie_break
    return a.row < b.row


# Safety: the heaps below are raw memory. `spread` allocates min(tasks, rows) candidates; `_collect` never holds more
# than `limit`, which is no more than that, and `_fill` only shrinks the heap. Arithmetic on indices below n cannot
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
