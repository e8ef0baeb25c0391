"""Spread: each task goes to the node with the fewest tasks of its service, then the fewest tasks, then by tie-break.

Theory of operation
-------------------
Placing a group gives the same as placing its tasks one after another, each on the best node of its moment; nothing is
approximated. While a group is placed rooms and pools only shrink, so a row that does not fit once need not be tried
again, and the order of the rows that do is known in advance. Three ways lead through it:

1. *Walk.* Rows without a task of the service come first, in the order of the index. Nothing is sorted, and nothing
   is looked at but the rows that take a task and those that the bitmaps do not tell from them. When many of those
   do not fit for a reason that no bitmap knows (ports, pools, limits), a full scan makes one of those that fit.
2. *Scan* (`spread_scan`), when few tasks are left and many rows have tasks of the service: the table is scanned
   once for the best rows.
3. *Rounds* (`spread_rounds`), when many tasks are left, or rows where the service failed: all rows that fit are
   sorted once, and each round gives each of them one task.

With placement preferences the order is another one: see `spread_tree`.

Source: SwarmKit `manager/scheduler` nodeLess and scheduleNTasksOnNodes, for the order.
"""

from libc.stdint cimport int32_t, int64_t

from beeyard.core.ask_walk cimport lay_masks, take_met, note_failed
from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_index cimport NodeIndex, Walk, next_place
from beeyard.core.node_table cimport Needs, NodeTable
from beeyard.core.spread_rounds cimport place_in_rounds
from beeyard.core.spread_scan cimport place_by_scan
from beeyard.core.spread_tree cimport place_in_tree

# A service on no more rows than these, and a part of the table, is walked around: a row that is met and passed over
# costs about as much as 16 rows of a scan.
cdef Py_ssize_t OCCUPIED_MIN = 64
cdef Py_ssize_t OCCUPIED_PART = 16


def spread(NodeTable table not None, Ask ask not None, int32_t[::1] rows, int32_t[:, ::1] pools):
    """Place as many equal tasks as fit, and hold their room in the table, the service's column and the pools.

    Args:
        rows: (n_tasks,) overwritten with the row of each placed task, in the order of placing.
        pools: (n_tasks, n_networks) overwritten with the pool row for each network of each placed task.

    Returns:
        Number of tasks placed; the others find no room.

    Raises:
        ValueError: shapes disagree.

    O(n_tasks) when rows without a task of the service take them all, else O(n_nodes + n_tasks).
    """
    ask.must_be_for(table)
    return place(table, ask, Outcome(rows, pools, ask.n_networks))


def spread_each(
    NodeTable table not None,
    list asks not None,
    const int32_t[::1] ask_of,
    const int64_t[:, ::1] amounts,
    int32_t[::1] rows,
    int32_t[:, ::1] pools,
):
    """Place tasks that differ, in their order, and hold their room as `spread` does.

    Args:
        asks: the kinds of tasks, each an Ask.
        ask_of: (n_tasks,) which of them each task is.
        amounts: (n_tasks, kinds of resources in use) what each task needs instead of what its Ask says; None: that.
        rows: (n_tasks,) overwritten: the row of each task, -1 where none has room.
        pools: (n_tasks, most networks) overwritten as `spread` does.

    Returns:
        Number of tasks placed.

    Raises:
        ValueError, IndexError: shapes disagree, or numbers are out of range.
    """
    cdef Py_ssize_t task, placed = 0, n_networks = 0
    cdef Needs needs = Needs(())
    cdef Ask ask
    cdef Outcome outcome
    n_networks = _most_networks(table, asks)
    if ask_of.shape[0] != rows.shape[0] or (amounts is not None and amounts.shape[0] != rows.shape[0]):
        raise ValueError(f"kinds and amounts of {rows.shape[0]} tasks")
    if amounts is not None and amounts.shape[1] != table.n_kinds:
        raise ValueError(f"amounts of {amounts.shape[1]} kinds of resources: there are {table.n_kinds}")
    outcome = Outcome(rows, pools, n_networks)
    for task in range(rows.shape[0]):
        if not 0 <= ask_of[task] < len(asks):
            raise IndexError(f"kind {ask_of[task]} of {len(asks)}")
        ask = <Ask>asks[ask_of[task]]
        if amounts is not None:
            needs.fill(amounts[task])
            ask.needs = needs
            ask.varied = True
        outcome.placed, outcome.end = task, task + 1
        place(table, ask, outcome)
        if outcome.placed == task:
            rows[task] = -1
        else:
            placed += 1
    return placed


def give_back_each(
    NodeTable table not None,
    list asks not None,
    const int32_t[::1] ask_of,
    const int64_t[:, ::1] amounts,
    const int32_t[::1] rows,
    int32_t[:, ::1] pools,
):
    """Undo a `spread_each` that was given the same; its arguments are as there. Each task is given back once.

    Raises:
        ValueError, IndexError: shapes disagree, or a number is out of range. Tasks before that one are given back.
    """
    cdef Py_ssize_t task, network, n_networks = _most_networks(table, asks)
    cdef Needs needs = Needs(())
    cdef Ask ask
    if ask_of.shape[0] < rows.shape[0] or (amounts is not None and amounts.shape[0] < rows.shape[0]):
        raise ValueError(f"kinds and amounts of {rows.shape[0]} tasks")
    if n_networks and (pools.shape[0] < rows.shape[0] or pools.shape[1] < n_networks):
        raise ValueError(f"pools must be {rows.shape[0]} x {n_networks}")
    for task in range(rows.shape[0]):
        if rows[task] < 0:
            continue
        if not 0 <= ask_of[task] < len(asks):
            raise IndexError(f"kind {ask_of[task]} of {len(asks)}")
        ask = <Ask>asks[ask_of[task]]
        for network in range(ask.n_networks):
            if not 0 <= pools[task, network] < ask.pool_free.shape[0]:
                raise IndexError(f"pool {pools[task, network]} of {ask.pool_free.shape[0]}")
        if amounts is None:
            needs = ask.needs
        else:
            needs.fill(amounts[task])
        table.give_back(rows[task], needs)
        if not ask.alone:
            ask.service_tasks[rows[task]] -= 1
        if ask.n_networks:
            ask.give_pools(rows[task], pools[task], ask.n_networks)


cdef Py_ssize_t _most_networks(NodeTable table, list asks) except -1:
    """The most networks that any of some Asks has, all of which must be for the table."""
    cdef Py_ssize_t most = 0
    for kind in asks:
        if not isinstance(kind, Ask):
            raise TypeError(f"asks: {type(kind).__name__} is no Ask")
        (<Ask>kind).must_be_for(table)
        most = max(most, (<Ask>kind).n_networks)
    return most


cdef Py_ssize_t place(NodeTable table, Ask ask, Outcome outcome) except -1:
    """Place tasks by the three ways in turn until all are placed or none fits. Returns how many are placed."""
    cdef Py_ssize_t left
    if outcome.placed == outcome.end or table.size == 0:
        return outcome.placed
    if ask.only >= 0:
        return _fill_one(table, ask, outcome)
    cdef NodeIndex index = table.indexed(ask.needs)
    if ask.branches is not None:
        place_in_tree(table, ask, index, outcome)
        return outcome.placed
    left = outcome.end - outcome.placed
    if left <= index.n // 2 and (
        ask.n_occupied <= OCCUPIED_MIN + index.n // OCCUPIED_PART or left > index.n // OCCUPIED_PART
    ):
        with nogil:
            _walk(table, ask, index, outcome)
    left = outcome.end - outcome.placed
    if 0 < left <= index.n // OCCUPIED_PART and not ask.alone:
        place_by_scan(table, ask, outcome)
    if outcome.placed < outcome.end:
        place_in_rounds(table, ask, index, outcome)
    return outcome.placed


cdef Py_ssize_t _fill_one(NodeTable table, Ask ask, Outcome outcome) except -1:
    """Place tasks on the only row that they may go to."""
    while outcome.placed < outcome.end and ask.only < table.size:
        if not ask.take(table, ask.only, outcome.pools, outcome.placed):
            break
        outcome.add(ask.only)
    return outcome.placed


cdef int _walk(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1 nogil:
    """One task for each row that has none of the service and that fits, in the order of the index."""
    cdef Walk walk
    cdef Py_ssize_t place, row
    lay_masks(ask, index, &walk)
    while outcome.placed < outcome.end:
        place = next_place(index, &walk)
        if place < 0:
            break
        row = index.row_at[place]
        # These come later, among those that have as many tasks of the service.
        if ask.service_tasks[row] or (ask.penalty is not None and ask.penalty[row]):
            continue
        if not take_met(table, ask, row, place, outcome):
            note_failed(table, ask, index, &walk)
    return 0
