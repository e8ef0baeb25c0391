"""Spread over a tree: first evenly over racks or zones, as their labels say, then over the nodes of each.

Theory of operation
-------------------
A task goes to the node that is least by: the load of its branch at the first level, at the second, ..., failures, tasks
of the service on the node, all its tasks, tie-break. The load of a branch counts the service's tasks on all its nodes,
those that take no more included. Each task changes the loads of the branches that it is in, so the tasks of a group are
placed one by one, in one of two ways:

1. *Walk*, for few tasks. Of the leaves whose branches are least loaded, a walk through the index finds the best node
   without a task of the service. A leaf where nothing fits is out of the running for good, since room only shrinks.
2. *Heaps*. All rows that fit are put into a heap for each leaf; every task looks at the best node of each leaf.

Source: SwarmKit `manager/scheduler` nodeset.tree and scheduleNTasksOnSubtree; it does not update the counts of branches
between passes, so large groups come out uneven there.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from beeyard.core.ask_walk cimport lay_masks, note_failed, take_met
from beeyard.core.branches cimport Branches
from beeyard.core.filters cimport BLOCK_ROWS, Ask, Outcome, block_keys
from beeyard.core.node_index cimport LAST_LEVEL, NodeIndex, Walk, next_place
from beeyard.core.node_table cimport NodeTable

import numpy as np

# Walks start anew for every task; from this part of the table on, heaps are cheaper.
cdef Py_ssize_t WALKED_PART = 64


cdef int place_in_tree(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1:
    """Place tasks as long as they fit anywhere."""
    cdef Branches branches = ask.branches
    cdef uint8_t[::1] state = np.empty(ask.branches.n_leaves, dtype=np.uint8)
    cdef bint walking = outcome.end - outcome.placed <= 1 + index.n // WALKED_PART
    if walking:
        state[:] = LIVING
        with nogil:
            while walking and outcome.placed < outcome.end:
                walking = _walk(table, ask, branches, index, outcome, state)
    if outcome.placed < outcome.end:
        _place_from_heaps(table, ask, index, outcome)
    return 0


cdef enum:
    DEAD = 0        # nothing fits there any more
    LIVING = 1
    CHOSEN = 2      # least loaded of those that are not dead


cdef bint _walk(
    NodeTable table, Ask ask, Branches branches, NodeIndex index, Outcome outcome, uint8_t[::1] state
) except -1 nogil:
    """Place one task, or find that nothing fits in the chosen leaves. False when only heaps can tell what is next."""
    cdef Walk walk
    cdef Py_ssize_t place, row, n_met = 0
    cdef int32_t leaf
    cdef bint passed_over = index.level_count[LAST_LEVEL] > 0
    if not _choose(branches, state):
        return False
    lay_masks(ask, index, &walk)
    while n_met <= 1 + index.n // 4:
        place = next_place(index, &walk)
        if place < 0:
            break
        row = index.row_at[place]
        leaf = branches.leaf_of[row]
        n_met += 1
        if state[leaf] != CHOSEN:
            continue
        if ask.service_tasks[row] or (ask.penalty is not None and ask.penalty[row]):
            passed_over = True
            continue
        if take_met(table, ask, row, place, outcome):
            if not ask.alone:
                branches.add(leaf)
            return True
        note_failed(table, ask, index, &walk)
    else:
        return False
    for leaf in range(state.shape[0]):
        if state[leaf] == CHOSEN:
            state[leaf] = DEAD
    return not passed_over


cdef bint _choose(Branches branches, uint8_t[::1] state) except -1 nogil:
    """Mark the least loaded of the leaves that are not dead. False when all are."""
    cdef int32_t leaf, best = -1
    for leaf in range(state.shape[0]):
        if state[leaf] != DEAD and (best < 0 or branches.compare(leaf, best) < 0):
            best = leaf
    if best < 0:
        return False
    for leaf in range(state.shape[0]):
        if state[leaf] != DEAD:
            state[leaf] = CHOSEN if branches.compare(leaf, best) == 0 else LIVING
    return True


cdef int _place_from_heaps(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1:
    """Sort all rows that fit into heaps, one a leaf, and take the best."""
    cdef Branches branches = ask.branches
    cdef int32_t[::1] begin = np.zeros(ask.branches.n_leaves + 1, dtype=np.int32)
    cdef int32_t[::1] size = np.zeros(ask.branches.n_leaves, dtype=np.int32)
    cdef int64_t[::1] keys = np.full(table.size, INT64_MAX, dtype=np.int64)
    cdef Twig[::1] heap
    cdef Py_ssize_t block, row, n_rows
    cdef int32_t leaf
    for block in range((table.size + BLOCK_ROWS - 1) // BLOCK_ROWS):
        row = block * BLOCK_ROWS
        n_rows = min(BLOCK_ROWS, table.size - row)
        block_keys(table, ask, row, <int>n_rows, keys[row : row + n_rows])
    for row in range(table.size):
        begin[ask.branches.leaf_of[row] + 1] += keys[row] < INT64_MAX
    for leaf in range(size.shape[0]):
        begin[leaf + 1] += begin[leaf]
    heap = np.empty(max(1, begin[size.shape[0]]), dtype=TWIG)
    with nogil:
        for row in range(table.size):
            if keys[row] < INT64_MAX:
                _add(table, ask, index, row, keys[row], heap, begin, size)
        for leaf in range(size.shape[0]):
            _heapify(heap, begin[leaf], size[leaf])
        while outcome.placed < outcome.end:
            if not _take_best(table, ask, branches, outcome, heap, begin, size):
                break
    return 0


TWIG = np.dtype([("key", np.int64), ("penalty", np.int32), ("place", np.int32), ("row", np.int32)], align=True)


cdef int _add(
    NodeTable table,
    Ask ask,
    NodeIndex index,
    Py_ssize_t row,
    int64_t key,
    Twig[::1] heap,
    int32_t[::1] begin,
    int32_t[::1] size,
) except -1 nogil:
    """Put a row among those of its leaf, in no order yet."""
    cdef int32_t leaf = ask.branches.leaf_of[row]
    cdef Twig twig
    twig.key = key
    twig.penalty = ask.penalty[row] if ask.penalty is not None else 0
    twig.place = index.position[row]
    twig.row = <int32_t>row
    heap[begin[leaf] + size[leaf]] = twig
    size[leaf] += 1
    return 0


cdef bint _take_best(
    NodeTable table,
    Ask ask,
    Branches branches,
    Outcome outcome,
    Twig[::1] heap,
    int32_t[::1] begin,
    int32_t[::1] size,
) except -1 nogil:
    """Place a task on the best row, or drop the row when it does not fit. False when there is none."""
    cdef int32_t leaf, best = -1
    cdef int order
    cdef Twig twig
    for leaf in range(size.shape[0]):
        if size[leaf] == 0:
            continue
        order = -1 if best < 0 else branches.compare(leaf, best)
        if order < 0 or order == 0 and _better(heap[begin[leaf]], heap[begin[best]]):
            best = leaf
    if best < 0:
        return False
    twig = heap[begin[best]]
    if ask.take(table, twig.row, outcome.pools, outcome.placed):
        outcome.add(twig.row)
        if not ask.alone:
            branches.add(best)
            twig.key += (<int64_t>1 << 32)
        twig.key += 1
    else:
        size[best] -= 1
        if size[best] == 0:
            return True
        twig = heap[begin[best] + size[best]]
    _sink(heap, begin[best], size[best], 0, twig)
    return True


cdef inline bint _better(Twig one, Twig other) noexcept nogil:
    """Whether a task goes to a node rather than to another one of a leaf that is as loaded."""
    if one.penalty != other.penalty:
        return one.penalty < other.penalty
    if one.key != other.key:
        return one.key < other.key
    return one.place < other.place


cdef int _heapify(Twig[::1] heap, Py_ssize_t begin, Py_ssize_t size) except -1 nogil:
    """Make a heap with the best on top of some elements."""
    cdef Py_ssize_t parent
    for parent in range(size // 2 - 1, -1, -1):
        _sink(heap, begin, size, parent, heap[begin + parent])
    return 0


cdef int _sink(Twig[::1] heap, Py_ssize_t begin, Py_ssize_t size, Py_ssize_t parent, Twig twig) except -1 nogil:
    """Put an element at or below `parent` in the heap of `size` that starts at `begin`."""
    cdef Py_ssize_t child
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _better(heap[begin + child + 1], heap[begin + child]):
            child += 1
        if not _better(heap[begin + child], twig):
            break
        heap[begin + parent] = heap[begin + child]
        parent = child
    heap[begin + parent] = twig
    return 0
