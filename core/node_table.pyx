"""The kernel's table of nodes in columns, and the changes that Python makes to it."""

import numpy as np

# How many rows a table is made for; it doubles when they are used up.
ROWS_AT_FIRST = 64


cdef class NodeTable:
    """What decides a placement and changes with every task: room, number of tasks, state."""

    def __init__(self):
        self.size = 0
        self._holes = []
        self._resize(ROWS_AT_FIRST)

    @property
    def capacity(self):
        """Rows that fit before the columns are copied into longer ones."""
        return self.state.shape[0]

    def add_row(self, uint64_t tie_break):
        """A row for a node that is not ready and has no room yet; holes are used first. Returns its number."""
        cdef Py_ssize_t row
        if self._holes:
            row = self._holes.pop()
        else:
            if self.size == self.state.shape[0]:
                self._resize(2 * self.size)
            row = self.size
            self.size += 1
        self.cpu_free[row] = 0
        self.memory_free[row] = 0
        self.tasks[row] = 0
        self.state[row] = ROW_NOT_READY
        self.tie_break[row] = tie_break
        return row

    def remove_row(self, Py_ssize_t row):
        """Make the row a hole. Its tasks must have been given back."""
        self._check(row)
        self.state[row] = ROW_ABSENT
        self._holes.append(row)

    def set_ready(self, Py_ssize_t row, bint ready):
        """Whether the node takes new tasks."""
        self._check(row)
        self.state[row] = ROW_READY if ready else ROW_NOT_READY

    def add_room(self, Py_ssize_t row, int64_t cpu_nano, int64_t memory_bytes):
        """Raise what is free (1e-9 cores, bytes); negative amounts lower it. The number of tasks stays."""
        self._check(row)
        self.cpu_free[row] += cpu_nano
        self.memory_free[row] += memory_bytes

    def hold(self, Py_ssize_t row, int64_t cpu_nano, int64_t memory_bytes):
        """One task more, with its reservations (1e-9 cores, bytes)."""
        self._check(row)
        self.take(row, cpu_nano, memory_bytes)

    def give_back(self, Py_ssize_t row, int64_t cpu_nano, int64_t memory_bytes):
        """One task less, with its reservations."""
        self._check(row)
        self.cpu_free[row] += cpu_nano
        self.memory_free[row] += memory_bytes
        self.tasks[row] -= 1

    def row(self, Py_ssize_t row):
        """A row as (cpu free, memory free, tasks, ready), for tests and explanations."""
        self._check(row)
        return self.cpu_free[row], self.memory_free[row], self.tasks[row], self.state[row] == ROW_READY

    cdef int take(self, Py_ssize_t row, int64_t cpu_nano, int64_t memory_bytes) except -1 nogil:
        """The same for loops that know the row to be right."""
        self.cpu_free[row] -= cpu_nano
        self.memory_free[row] -= memory_bytes
        self.tasks[row] += 1
        return 0

    def _check(self, Py_ssize_t row):
        """Raise IndexError unless the row is a node's."""
        if not 0 <= row < self.size or self.state[row] == ROW_ABSENT:
            raise IndexError(f"row {row} is no node: the table has {self.size} rows")

    def _resize(self, Py_ssize_t capacity):
        """Copy the columns into longer ones; rows in use keep their numbers."""
        # Before the first row the old columns do not exist; the size says how much of them is read.
        self.cpu_free = _longer(self.cpu_free if self.size else None, np.int64, capacity)
        self.memory_free = _longer(self.memory_free if self.size else None, np.int64, capacity)
        self.tasks = _longer(self.tasks if self.size else None, np.int32, capacity)
        self.state = _longer(self.state if self.size else None, np.uint8, capacity)
        self.tie_break = _longer(self.tie_break if self.size else None, np.uint64, capacity)


def _longer(column, dtype, Py_ssize_t capacity):
    """Zeros of this length that begin with the column's values; None: only zeros."""
    longer = np.zeros(capacity, dtype=dtype)
    if column is not None:
        longer[: column.shape[0]] = column
    return longer
