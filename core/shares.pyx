"""The columns that best fit reads, kept in step with the node table.

Per kind of resource a row has the share of its node that is free and the inverse of the node's total, in single
precision: what is left after a task, `share - need * inverse`, is two columns read in one stream. Rows lie in blocks,
and the columns of a block side by side.

A share is a little more than the true one: a node whose room is enough, to the byte, is never ruled out by rounding,
and the few that are wrongly let in are refused by `Ask.check`, which counts in whole numbers.

Theory of operation
-------------------
Rows are put in order of the length of the vector of their shares, the fullest nodes first, and each block has bounds
of what its ready rows have: so a search passes over blocks of nodes that are emptier than the best found, and of nodes
that are too full. A row that changes stays where it is and stretches the bounds of its block, which makes searches
slower and never wrong; after many changes all are put in order anew.
"""

from libc.math cimport sqrt

from beeyard.core.node_table cimport ROW_READY, NodeTable

import numpy as np

cdef extern from "best_fit.h":
    const int BEE_SLOTS
    const int BEE_LENGTH
    const int BEE_BOUNDS
    const int BEE_MOST_FREE
    const int BEE_MOST_INVERSE
    const int BEE_LEAST_INVERSE

# Shares and inverse totals are doubled: so Σ left² + 0.5·(most left − least left), times four, needs no multiplication
# by 0.5.
cdef double SCALE = 2.0

# Relative; more than four roundings of a single precision number, 4 * 2**-24, come to.
cdef double MARGIN = 1.0 + 2.0**-21

# Rows are put in order after changes of half of them, and of this many: that takes 0.1 us a row.
cdef Py_ssize_t CHANGES_MIN = 4096

cdef float NOTHING_YET = 3e38


cdef class Shares:
    """Follows one table; `sync` before each use."""

    def __init__(self):
        self.n_rows = self.n_kinds = self.n_used = self.n_blocks = self._n_changes = 0
        self.columns = np.zeros(0, dtype=np.float32)

    @property
    def nbytes(self):
        """Memory of the columns, the order of the rows and the bounds, in bytes; for rows not used yet too."""
        kept = [self.columns, self.slot_of, self.row_at, self.bounds]
        return sum(np.asarray(one).nbytes for one in kept)

    cdef int sync(self, NodeTable table) except -1:
        """Take over what changed in the table since the last time. O(changes), but for a table that grew."""
        cdef Py_ssize_t row, blocks = (table.capacity + BEE_SLOTS - 1) // BEE_SLOTS
        cdef bint in_order = True
        if table.free.shape[0] != self.n_kinds or blocks * self.n_kinds * 2 * BEE_SLOTS > self.columns.shape[0]:
            self.n_kinds = table.free.shape[0]
            self.columns = _aligned_zeros(blocks * self.n_kinds * 2 * BEE_SLOTS)
            np.asarray(self.columns).reshape(-1, self.n_kinds, 2, BEE_SLOTS)[:, :, 0, :] = -1.0
            self.slot_of = np.arange(blocks * BEE_SLOTS, dtype=np.int32)
            self.row_at = np.arange(blocks * BEE_SLOTS, dtype=np.int32)
            self.n_rows = 0
        if self.n_rows == 0 or self.n_used != table.n_kinds:
            self.n_rows, self.n_used, in_order = 0, table.n_kinds, False
            self._forget_bounds()
        table.followed = True
        for row in range(self.n_rows, table.size):
            self.update(table, row)
        self.n_rows = table.size
        self.n_blocks = (table.size + BEE_SLOTS - 1) // BEE_SLOTS
        self.follow(table)
        if not in_order or self._n_changes > max(self.n_rows // 2, CHANGES_MIN):
            self._put_in_order(table)
        return 0

    def _forget_bounds(self):
        """As if no row had been written yet."""
        shape = (BEE_LENGTH + 1 + self.n_kinds * BEE_BOUNDS, len(self.slot_of) // BEE_SLOTS)
        bounds = np.zeros(shape, dtype=np.float32)
        bounds[BEE_LENGTH] = NOTHING_YET
        bounds[BEE_LENGTH + 1 + BEE_MOST_FREE :: BEE_BOUNDS] = -1.0
        bounds[BEE_LENGTH + 1 + BEE_LEAST_INVERSE :: BEE_BOUNDS] = NOTHING_YET
        self.bounds = bounds

    def _put_in_order(self, NodeTable table):
        """Write all rows anew: the fullest first, those that are not ready last."""
        cdef Py_ssize_t row
        shares = np.asarray(self.columns).reshape(-1, self.n_kinds, 2, BEE_SLOTS)[: self.n_blocks, : self.n_used, 0]
        squares = np.einsum("bks,bks->bs", shares, shares).reshape(-1)[: self.n_rows]
        ready = shares[:, 0].reshape(-1)[: self.n_rows] >= 0
        order = np.argsort(np.where(ready, squares, np.inf), kind="stable")
        row_at, slot_of = np.asarray(self.row_at), np.asarray(self.slot_of)
        row_at[: self.n_rows] = row_at[: self.n_rows][order]
        slot_of[row_at[: self.n_rows]] = np.arange(self.n_rows)
        self._forget_bounds()
        for row in range(self.n_rows):
            self.update(table, row)
        self._n_changes = 0

    cdef int follow(self, NodeTable table) except -1 nogil:
        """Take over changed rows; the table has no new ones."""
        cdef Py_ssize_t row
        while table.n_stale:
            table.n_stale = table.n_stale - 1
            row = table.stale_rows[table.n_stale]
            table.stale[row] = 0
            self.update(table, row)
        return 0

    cdef int update(self, NodeTable table, Py_ssize_t row) except -1 nogil:
        """Write a row anew. One that is not ready gets shares that never fit."""
        cdef Py_ssize_t slot = self.slot_of[row], kind
        cdef Py_ssize_t at = slot // BEE_SLOTS * self.n_kinds * 2 * BEE_SLOTS + slot % BEE_SLOTS
        cdef double inverse
        self._n_changes = self._n_changes + 1
        for kind in range(self.n_used):
            if table.state[row] == ROW_READY:
                inverse = SCALE / <double>max(table.total[kind, row], 1)
                self.columns[at] = <float>(MARGIN * <double>max(table.free[kind, row], 0) * inverse)
                self.columns[at + BEE_SLOTS] = <float>inverse
            else:
                self.columns[at] = -1.0
                self.columns[at + BEE_SLOTS] = 0.0
            at += 2 * BEE_SLOTS
        return self._bound(slot) if table.state[row] == ROW_READY else 0

    cdef int _bound(self, Py_ssize_t slot) except -1 nogil:
        """Stretch the bounds of a block to what one of its slots has."""
        cdef Py_ssize_t block = slot // BEE_SLOTS, first = BEE_LENGTH + 1, kind
        cdef Py_ssize_t at = block * self.n_kinds * 2 * BEE_SLOTS + slot % BEE_SLOTS
        cdef float[:, ::1] bounds = self.bounds
        cdef double squares = 0.0
        cdef float share, inverse
        for kind in range(self.n_used):
            share = self.columns[at + kind * 2 * BEE_SLOTS]
            inverse = self.columns[at + kind * 2 * BEE_SLOTS + BEE_SLOTS]
            squares += <double>share * <double>share
            bounds[first + BEE_MOST_FREE, block] = max(bounds[first + BEE_MOST_FREE, block], share)
            bounds[first + BEE_MOST_INVERSE, block] = max(bounds[first + BEE_MOST_INVERSE, block], inverse)
            bounds[first + BEE_LEAST_INVERSE, block] = min(bounds[first + BEE_LEAST_INVERSE, block], inverse)
            first += BEE_BOUNDS
        bounds[BEE_LENGTH, block] = min(bounds[BEE_LENGTH, block], <float>sqrt(squares))
        return 0


def _aligned_zeros(Py_ssize_t n):
    """Single precision numbers that begin with a cache line: no vector of them lies in two."""
    raw = np.zeros(n + 16, dtype=np.float32)
    begin = -(raw.ctypes.data // 4) % 16
    return raw[begin : begin + n]
