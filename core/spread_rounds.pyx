"""Spread by water-filling: all rows are sorted once, then every round gives one task to each that has room.

Theory of operation
-------------------
A task raises both numbers that the order goes by, the tasks of the service and all tasks of its node; their difference
stays. So among rows with equally many tasks of the service, a *level*, the order is always the same: by the difference,
then by tie-break. A row is active from the level that it has at first until it has no room. The rounds go from level to
level; each places a task on every active row in that order, and rows that begin at the next level are merged in. Rows
where the service failed come after all others, those with fewer failures first, in rounds of their own.

Sorting is by radix on (level, difference), beginning from the order of the positions, which is that of the tie-breaks.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from beeyard.core.filters cimport BLOCK_ROWS, Ask, Outcome, block_keys
from beeyard.core.node_index cimport NodeIndex
from beeyard.core.node_table cimport NodeTable

import numpy as np

cdef enum:
    DIGIT_BITS = 11     # 2048 counters of 4 bytes stay in the first-level cache


cdef int place_in_rounds(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1:
    """Place tasks as long as they fit anywhere. O(n_nodes + n_tasks)."""
    penalties = [0]
    if ask.penalty is not None:
        penalties = np.unique(np.asarray(ask.penalty)[: table.size]).tolist()
    for penalty in penalties:
        if outcome.placed < outcome.end:
            _place_with(table, ask, index, outcome, penalty)
    return 0


cdef int _place_with(NodeTable table, Ask ask, NodeIndex index, Outcome outcome, int32_t penalty) except -1:
    """Place tasks on the rows with so many failures that count."""
    keys, rows = np.empty(table.size, dtype=np.int64), np.empty(table.size, dtype=np.int32)
    other_keys, other_rows = np.empty(table.size, dtype=np.int64), np.empty(table.size, dtype=np.int32)
    cdef Py_ssize_t n = _gather(table, ask, index, penalty, other_keys, keys, rows)
    cdef int64_t[::1] sorted_keys
    cdef int32_t[::1] sorted_rows, active, taken
    sorted_keys, sorted_rows = _sort(keys[:n], rows[:n], other_keys[:n], other_rows[:n])
    active = np.empty(n, dtype=np.int32)
    if ask.n_networks:
        with nogil:
            _fill(table, ask, index, outcome, sorted_keys, sorted_rows, active)
    else:
        taken = np.zeros(table.size, dtype=np.int32)
        _fill_counted(table, ask, index, outcome, sorted_keys, sorted_rows, active, taken, np.zeros(n, dtype=np.int32))
        _take_counted(table, ask, taken)
    return 0


cdef Py_ssize_t _gather(
    NodeTable table,
    Ask ask,
    NodeIndex index,
    int32_t penalty,
    int64_t[::1] by_row,
    int64_t[::1] keys,
    int32_t[::1] rows,
) except -1:
    """Write the keys, level * 2**32 + difference, and the rows that fit, pools aside, by position. Returns how many.

    Args:
        by_row: (rows of the table,) overwritten.
    """
    cdef Py_ssize_t block, begin, row, place, n_rows = 0
    cdef int64_t key
    with nogil:
        for block in range((table.size + BLOCK_ROWS - 1) // BLOCK_ROWS):
            begin = block * BLOCK_ROWS
            block_keys(table, ask, begin, <int>min(BLOCK_ROWS, table.size - begin), by_row[begin:])
        if ask.penalty is not None:
            for row in range(table.size):
                if ask.penalty[row] != penalty:
                    by_row[row] = INT64_MAX
        for place in range(table.size):
            row = index.row_at[place]
            key = by_row[row]
            # Tasks in the low half; those of the service are a part of them. What does not fit is overwritten.
            keys[n_rows] = key - (key >> 32)
            rows[n_rows] = <int32_t>row
            n_rows += key < INT64_MAX
    return n_rows


def _sort(
    int64_t[::1] keys, int32_t[::1] rows, int64_t[::1] other_keys, int32_t[::1] other_rows
):
    """Sort by key, equal keys staying in their order. Returns sorted keys and rows, each one of the arrays given."""
    cdef int32_t[::1] begins = np.empty(1 << DIGIT_BITS, dtype=np.int32)
    cdef Py_ssize_t index, n = keys.shape[0]
    cdef int64_t differing = 0
    cdef int shift
    for index in range(1, n):
        differing |= keys[index] ^ keys[0]
    for shift in range(0, 64, DIGIT_BITS):
        if differing >> shift & ((1 << DIGIT_BITS) - 1):
            _sort_digit(keys, rows, other_keys, other_rows, begins, shift)
            keys, rows, other_keys, other_rows = other_keys, other_rows, keys, rows
    return keys, rows


cdef int _sort_digit(
    int64_t[::1] keys,
    int32_t[::1] rows,
    int64_t[::1] to_keys,
    int32_t[::1] to_rows,
    int32_t[::1] begins,
    int shift,
) except -1 nogil:
    """One pass: copy everything in the order of one digit of the keys, which are not negative."""
    cdef Py_ssize_t index
    cdef int32_t total = 0, count
    cdef int64_t digit, mask = (1 << DIGIT_BITS) - 1
    begins[:] = 0
    for index in range(keys.shape[0]):
        begins[keys[index] >> shift & mask] += 1
    for index in range(begins.shape[0]):
        count = begins[index]
        begins[index] = total
        total += count
    for index in range(keys.shape[0]):
        digit = keys[index] >> shift & mask
        to_keys[begins[digit]] = keys[index]
        to_rows[begins[digit]] = rows[index]
        begins[digit] += 1
    return 0


cdef int32_t _room(NodeTable table, Ask ask, Py_ssize_t row, int64_t most) except -1 nogil:
    """How many of the tasks a row takes, at most that many; at least one, since it fits."""
    cdef int kind
    most = min(most, 1 if ask.one_per_node else ask.max_replicas - ask.service_tasks[row])
    for kind in range(ask.needs.n):
        most = min(most, table.free[ask.needs.kind[kind], row] // ask.needs.amount[kind])
    return <int32_t>most


cdef int _fill_counted(
    NodeTable table,
    Ask ask,
    NodeIndex index,
    Outcome outcome,
    const int64_t[::1] keys,
    const int32_t[::1] rows,
    int32_t[::1] active,
    int32_t[::1] taken,
    int32_t[::1] room,
) except -1 nogil:
    """The rounds when nothing but a row's own room decides. The table stays as it is.

    Args:
        active: as long as `rows`, overwritten with numbers of rows that are sorted by their keys and then by tie-break.
        taken: by row of the table: 0; what it takes is added.
        room: as long as `rows`: 0; what they take at most, of those for which that is worked out.
    """
    cdef Py_ssize_t n_active = 0, kept, number, begin = 0, end, n = rows.shape[0], placed = outcome.placed
    cdef int64_t level = 0
    cdef int32_t which
    while placed < outcome.end and (n_active or begin < n):
        if n_active == 0:
            level = keys[begin] >> 32
        end = begin
        while end < n and keys[end] >> 32 == level:
            end += 1
        n_active = min(_merge_counted(index, keys, rows, active, n_active, begin, end), outcome.end - placed)
        begin = end
        for number in range(n_active):
            which = rows[active[number]]
            outcome.rows[placed + number] = which
            taken[which] += 1
        placed += n_active
        kept = 0
        for number in range(n_active):
            # Each takes at least one of those that are left.
            if kept == outcome.end - placed:
                break
            which = active[number]
            if room[which] == 0:
                room[which] = _room(table, ask, rows[which], outcome.end - outcome.placed)
            active[kept] = which
            kept += taken[rows[which]] < room[which]
        n_active = kept
        level += 1
    outcome.placed = placed
    return 0


cdef int _take_counted(NodeTable table, Ask ask, const int32_t[::1] taken) except -1 nogil:
    """Hold what the rounds have given away, by row."""
    cdef Py_ssize_t row
    table.take_counted(taken, ask.needs)
    if not ask.alone:
        for row in range(table.size):
            ask.service_tasks[row] += taken[row]
    if ask.one_per_node:
        for row in range(table.size):
            if taken[row]:
                ask.ports_taken[row] = 1
    return 0


cdef Py_ssize_t _merge_counted(
    NodeIndex index,
    const int64_t[::1] keys,
    const int32_t[::1] rows,
    int32_t[::1] active,
    Py_ssize_t n_active,
    Py_ssize_t begin,
    Py_ssize_t end,
) except -1 nogil:
    """Put the numbers from `begin` to `end` among those that are active already. Returns how many are active now."""
    cdef Py_ssize_t left = n_active, right = end, to = n_active + end - begin
    cdef int32_t one, other
    cdef int64_t difference, low = (<int64_t>1 << 32) - 1
    while right > begin:
        to -= 1
        if left > 0:
            one, other = rows[right - 1], rows[active[left - 1]]
            difference = (keys[right - 1] & low) - (keys[active[left - 1]] & low)
            if difference < 0 or difference == 0 and index.position[one] < index.position[other]:
                left -= 1
                active[to] = active[left]
                continue
        right -= 1
        active[to] = <int32_t>right
    return n_active + end - begin


cdef int _fill(
    NodeTable table,
    Ask ask,
    NodeIndex index,
    Outcome outcome,
    const int64_t[::1] keys,
    const int32_t[::1] rows,
    int32_t[::1] active,
) except -1 nogil:
    """The rounds when pools decide too. `active` is as long as `rows`, which are sorted by key, then by tie-break."""
    cdef Py_ssize_t n_active = 0, kept, number, begin = 0, end, n = rows.shape[0]
    cdef int64_t level = 0
    while outcome.placed < outcome.end and (n_active or begin < n):
        if n_active == 0:
            level = keys[begin] >> 32
        end = begin
        while end < n and keys[end] >> 32 == level:
            end += 1
        n_active = _merge(table, ask, index, active, n_active, rows[begin:end])
        begin = end
        kept = 0
        for number in range(n_active):
            if outcome.placed == outcome.end:
                break
            if ask.take(table, active[number], outcome.pools, outcome.placed):
                outcome.add(active[number])
                active[kept] = active[number]
                kept += 1
        n_active = kept
        level += 1
    return 0


cdef Py_ssize_t _merge(
    NodeTable table, Ask ask, NodeIndex index, int32_t[::1] active, Py_ssize_t n_active, const int32_t[::1] more
) except -1 nogil:
    """Put rows that begin at this level among those that are active already. Returns how many are active now."""
    cdef Py_ssize_t left = n_active, right = more.shape[0], to = n_active + more.shape[0]
    while right > 0:
        to -= 1
        if left > 0 and _comes_before(table, ask, index, more[right - 1], active[left - 1]):
            left -= 1
            active[to] = active[left]
        else:
            right -= 1
            active[to] = more[right]
    return n_active + more.shape[0]


cdef bint _comes_before(NodeTable table, Ask ask, NodeIndex index, int32_t one, int32_t other) except -1 nogil:
    """Whether a row gets its task before another one with as many tasks of the service."""
    if table.tasks[one] != table.tasks[other]:
        return table.tasks[one] < table.tasks[other]
    return index.position[one] < index.position[other]
