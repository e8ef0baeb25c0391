"""The kernel's table of nodes in columns, and the changes that Python makes to it.

Theory of operation
-------------------
A node is a row, a property a column; what a node has of each kind of resource is one column a kind, `free[kind, row]`
and `total[kind, row]`. Kind 0 is CPU in 1e-9 cores, kind 1 memory in bytes; from 2 on come generic resources in units,
as Python numbers them. Amounts stay below 2**53 each, so that a thousand of them do not overflow a column.

Rows keep their numbers for as long as their node is there; a removed node leaves a hole that the next one fills.

Every change of room, tasks or state goes through this class, which tells the index over its rows (`node_index`).
"""

from beeyard.core.node_index cimport clear_level, cross_rooms, room_bit, set_level

import numpy as np

# How many rows a table is made for; it doubles when they are used up.
ROWS_AT_FIRST = 64
KINDS_AT_FIRST = 2
KIND_COUNT_MAX = KINDS_MAX


cdef class Needs:
    """What a task reserves, by kind; shared by all tasks that reserve the same."""

    def __init__(self, amounts):
        """
        Args:
            amounts: (kind, amount) pairs with rising kinds; a kind of which nothing is needed is left out or 0.

        Raises:
            ValueError: a kind is out of order or beyond the last one, or an amount is negative.
        """
        cdef int32_t last = -1
        self.n = 0
        for kind, amount in amounts:
            if not last < kind < KINDS_MAX:
                raise ValueError(f"kind {kind} after {last}: at most {KINDS_MAX} kinds, rising")
            if amount < 0:
                raise ValueError(f"amount {amount} of kind {kind}: not negative")
            last = kind
            if amount:
                self.kind[self.n] = kind
                self.amount[self.n] = amount
                self.n += 1

    cdef int fill(self, const int64_t[::1] amounts) except -1:
        """Need other amounts from now on, given for each kind from 0 on; 0 and less is nothing."""
        cdef int kind
        self.n = 0
        for kind in range(min(amounts.shape[0], KINDS_MAX)):
            if amounts[kind] > 0:
                self.kind[self.n] = kind
                self.amount[self.n] = amounts[kind]
                self.n += 1
        return 0

    def pairs(self):
        """The (kind, amount) pairs with amounts above 0."""
        return [(self.kind[index], self.amount[index]) for index in range(self.n)]


cdef class NodeTable:
    """What decides a placement and changes with every task: room, number of tasks, state."""

    def __init__(self):
        self.size = 0
        self.n_kinds = KINDS_AT_FIRST
        self._holes = []
        self.followed = False
        self.n_stale = 0
        self._index = NodeIndex()
        self._resize(KINDS_AT_FIRST, ROWS_AT_FIRST)

    def copy(self):
        """The same table, to try things on; nothing follows it. O(size)."""
        cdef NodeTable twin = NodeTable.__new__(NodeTable)
        twin.size = self.size
        twin.n_kinds = self.n_kinds
        twin.free = np.array(self.free)
        twin.total = np.array(self.total)
        twin.tasks = np.array(self.tasks)
        twin.state = np.array(self.state)
        twin.tie_break = np.array(self.tie_break)
        twin.followed = False
        twin.n_stale = 0
        twin.stale = np.zeros(self.state.shape[0], dtype=np.uint8)
        twin.stale_rows = np.zeros(self.state.shape[0], dtype=np.int32)
        twin._index = self._index.copy()
        twin._holes = list(self._holes)
        return twin

    @property
    def capacity(self):
        """Rows that fit before the columns are copied into longer ones."""
        return self.state.shape[0]

    def add_kind(self):
        """A kind of resource of which no node has any yet. Returns its number.

        Raises:
            ValueError: there are as many as can be told apart.
        """
        if self.n_kinds == KINDS_MAX:
            raise ValueError(f"kinds of resources: at most {KINDS_MAX}")
        if self.n_kinds == self.free.shape[0]:
            self._resize(2 * self.n_kinds, self.state.shape[0])
        self.n_kinds += 1
        return self.n_kinds - 1

    def add_row(self, uint64_t tie_break):
        """A row for a node that is not ready and has no room yet; holes are used first. Returns its number."""
        cdef Py_ssize_t row, kind
        if self._holes:
            row = self._holes.pop()
        else:
            if self.size == self.state.shape[0]:
                self._resize(self.free.shape[0], 2 * self.size)
            row = self.size
            self.size += 1
        for kind in range(self.n_kinds):
            self.free[kind, row] = 0
            self.total[kind, row] = 0
        self.tasks[row] = 0
        self.state[row] = ROW_NOT_READY
        self.tie_break[row] = tie_break
        self._index.valid = False
        self._note_change(row)
        return row

    def remove_row(self, Py_ssize_t row):
        """Make the row a hole. Its tasks must have been given back."""
        self._check(row)
        self.set_ready(row, False)
        self.state[row] = ROW_ABSENT
        self._holes.append(row)

    def set_ready(self, Py_ssize_t row, bint ready):
        """Whether the node takes new tasks."""
        self._check(row)
        if ready != (self.state[row] == ROW_READY):
            if ready:
                self._index.show(row, self.tasks[row])
            else:
                self._index.hide(row, self.tasks[row])
        self.state[row] = ROW_READY if ready else ROW_NOT_READY
        self._note_change(row)

    def set_total(self, Py_ssize_t row, Py_ssize_t kind, int64_t amount):
        """What the node offers of a kind, in its unit; what its tasks hold stays held."""
        self._check(row)
        self._check_kind(kind)
        self._set_free(kind, row, self.free[kind, row] + amount - self.total[kind, row])
        self.total[kind, row] = amount

    def change_free(self, Py_ssize_t row, Py_ssize_t kind, int64_t change):
        """Correct what is free of a kind, where tasks were held before the kind had a number."""
        self._check(row)
        self._check_kind(kind)
        self._set_free(kind, row, self.free[kind, row] + change)

    def hold(self, Py_ssize_t row, Needs needs):
        """One task more, with its reservations."""
        self._check(row)
        self._check_needs(needs)
        self.take(row, needs)

    def give_back(self, Py_ssize_t row, Needs needs):
        """One task less, with its reservations. Raises ValueError when there is none."""
        self._check(row)
        self._check_needs(needs)
        if self.tasks[row] <= 0:
            raise ValueError(f"row {row} has no task to give back")
        self.take_some(row, needs, -1)

    def row(self, Py_ssize_t row):
        """A row as ([free by kind], [total by kind], tasks, ready), for tests and explanations."""
        self._check(row)
        kinds = range(self.n_kinds)
        free, total = [self.free[kind, row] for kind in kinds], [self.total[kind, row] for kind in kinds]
        return free, total, self.tasks[row], self.state[row] == ROW_READY

    def columns(self):
        """Copies of (free, total), by kind and row, and by row tasks and whether it is ready."""
        free, total = np.array(self.free), np.array(self.total)
        tasks, is_ready = np.array(self.tasks), np.array(self.state) == ROW_READY
        kinds, rows = slice(self.n_kinds), slice(self.size)
        return free[kinds, rows], total[kinds, rows], tasks[rows], is_ready[rows]

    def free_of(self, Py_ssize_t kind):
        """What is free of a kind by row, as a copy; holes have anything."""
        self._check_kind(kind)
        return np.array(self.free[kind, : self.size])

    cdef int take(self, Py_ssize_t row, Needs needs) except -1 nogil:
        """The same as `hold` for loops that know row and kinds to be right."""
        return self.take_some(row, needs, 1)

    cdef int take_some(self, Py_ssize_t row, Needs needs, int32_t n_tasks) except -1 nogil:
        """The same for some equal tasks; a negative number of them is given back."""
        cdef int number
        cdef int32_t kind
        for number in range(needs.n):
            kind = needs.kind[number]
            self._set_free(kind, row, self.free[kind, row] - n_tasks * needs.amount[number])
        self._set_tasks(row, self.tasks[row] + n_tasks)
        return 0

    cdef int take_at(self, Py_ssize_t row, Py_ssize_t place, Needs needs) except -1 nogil:
        """The same for one task on a ready row that was found in the index, at this position."""
        cdef int number
        cdef int32_t kind, tasks = self.tasks[row]
        cdef int64_t free
        for number in range(needs.n):
            kind = needs.kind[number]
            free = self.free[kind, row]
            self.free[kind, row] = free - needs.amount[number]
            cross_rooms(self._index, kind, place, free, free - needs.amount[number])
        self.tasks[row] = tasks + 1
        clear_level(self._index, place, tasks)
        set_level(self._index, place, tasks + 1)
        return self._note_change(row)

    cdef int take_counted(self, const int32_t[::1] taken, Needs needs) except -1 nogil:
        """The same for so many tasks on each row; only ready ones take any. The index is valid."""
        cdef Py_ssize_t row, place
        cdef int number
        cdef int32_t kind
        cdef int64_t free
        for number in range(needs.n):
            kind = needs.kind[number]
            for row in range(self.size):
                if taken[row]:
                    free = self.free[kind, row]
                    self.free[kind, row] = free - taken[row] * needs.amount[number]
                    cross_rooms(self._index, kind, self._index.position[row], free, self.free[kind, row])
        for row in range(self.size):
            if taken[row]:
                place = self._index.position[row]
                clear_level(self._index, place, self.tasks[row])
                self.tasks[row] += taken[row]
                set_level(self._index, place, self.tasks[row])
                self._note_change(row)
        return 0

    cdef int _set_free(self, Py_ssize_t kind, Py_ssize_t row, int64_t amount) except -1 nogil:
        self._index.change_room(kind, row, self.free[kind, row], amount)
        self.free[kind, row] = amount
        return self._note_change(row)

    cdef int _note_change(self, Py_ssize_t row) except -1 nogil:
        """Readiness or room of the row are not what the follower read."""
        if self.followed and not self.stale[row]:
            self.stale[row] = 1
            self.stale_rows[self.n_stale] = <int32_t>row
            self.n_stale = self.n_stale + 1
        return 0

    cdef int _set_tasks(self, Py_ssize_t row, int32_t tasks) except -1 nogil:
        if self.state[row] == ROW_READY:
            self._index.hide(row, self.tasks[row])
            self._index.show(row, tasks)
        self.tasks[row] = tasks
        return 0

    @property
    def index(self):
        """The index over the rows, up to date."""
        return self.indexed(Needs(()))

    @property
    def nbytes(self):
        """Memory of the columns and of the index, in bytes; for rows that are not used yet too."""
        columns = [self.free, self.total, self.tasks, self.state, self.tie_break, self.stale, self.stale_rows]
        return sum(np.asarray(column).nbytes for column in columns) + self._index.nbytes

    cdef NodeIndex indexed(self, Needs needs):
        """The index, up to date and with bitmaps for room that is enough for these needs, or nearly."""
        cdef int number, room
        if not self._index.valid:
            ready = np.asarray(self.state) == ROW_READY
            self._index.build(self.tie_break, self.tasks, ready.view(np.uint8), self.size)
        for number in range(needs.n):
            room = room_bit(needs.amount[number]) - 1
            if not self._index.watched[needs.kind[number]] >> room & 1:
                self._index.watch(needs.kind[number], room, self.free[needs.kind[number]])
        return self._index

    def _check(self, Py_ssize_t row):
        """Raise IndexError unless the row is a node's."""
        if not 0 <= row < self.size or self.state[row] == ROW_ABSENT:
            raise IndexError(f"row {row} is no node: the table has {self.size} rows")

    def _check_kind(self, Py_ssize_t kind):
        """Raise IndexError unless the kind is in use."""
        if not 0 <= kind < self.n_kinds:
            raise IndexError(f"kind {kind} of {self.n_kinds}")

    def _check_needs(self, Needs needs not None):
        """Raise IndexError unless all kinds that are needed are in use."""
        if needs.n and needs.kind[needs.n - 1] >= self.n_kinds:
            raise IndexError(f"kind {needs.kind[needs.n - 1]} of {self.n_kinds}")

    def _resize(self, Py_ssize_t n_kinds, Py_ssize_t capacity):
        """Copy the columns into longer ones; rows and kinds in use keep their numbers."""
        # Before the first row the old columns do not exist; the size says how much of them is read.
        self.free = _longer(self.free if self.size else None, np.int64, (n_kinds, capacity))
        self.total = _longer(self.total if self.size else None, np.int64, (n_kinds, capacity))
        self.tasks = _longer(self.tasks if self.size else None, np.int32, (capacity,))
        self.state = _longer(self.state if self.size else None, np.uint8, (capacity,))
        self.tie_break = _longer(self.tie_break if self.size else None, np.uint64, (capacity,))
        self.stale = _longer(self.stale if self.size else None, np.uint8, (capacity,))
        self.stale_rows = _longer(self.stale_rows if self.size else None, np.int32, (capacity,))


def _longer(column, dtype, shape):
    """Zeros of this shape that begin with the column's values; None: only zeros."""
    longer = np.zeros(shape, dtype=dtype)
    if column is not None:
        old = np.asarray(column)
        longer[tuple(slice(length) for length in old.shape)] = old
    return longer
