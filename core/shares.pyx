"""The columns that best fit reads, kept in step with the node table.

Per kind of resource a row has the share of its node that is free and the inverse of the node's total, in single
precision: what is left after a task, `share - need * inverse`, is two columns read in one stream. Rows lie in blocks,
and the columns of a block side by side.

A share is a little more than the true one: a node whose room is enough, to the byte, is never ruled out by rounding,
and the few that are wrongly let in are refused by `Ask.check`, which counts in whole numbers.
"""

from beeyard.core.node_table cimport ROW_READY, NodeTable

import numpy as np

cdef extern from "best_fit.h":
    const int BEE_SLOTS

# Shares and inverse totals are doubled: so Σ left² + 0.5·(most left − least left), times four, needs no multiplication
# by 0.5.
cdef double SCALE = 2.0

# Relative; more than four roundings of a single precision number, 4 * 2**-24, come to.
cdef double MARGIN = 1.0 + 2.0**-21


cdef class Shares:
    """Follows one table; `sync` before each use."""

    def __init__(self):
        self.n_rows = self.n_kinds = self.n_blocks = 0
        self.columns = np.zeros(0, dtype=np.float32)

    cdef int sync(self, NodeTable table) except -1:
        """Take over what changed in the table since the last time. O(changes), but for a table that grew."""
        cdef Py_ssize_t row, blocks = (table.capacity + BEE_SLOTS - 1) // BEE_SLOTS
        if table.free.shape[0] != self.n_kinds or blocks * self.n_kinds * 2 * BEE_SLOTS > self.columns.shape[0]:
            self.n_kinds = table.free.shape[0]
            self.columns = _aligned_zeros(blocks * self.n_kinds * 2 * BEE_SLOTS)
            np.asarray(self.columns).reshape(-1, self.n_kinds, 2, BEE_SLOTS)[:, :, 0, :] = -1.0
            self.n_rows = 0
        table.followed = True
        for row in range(self.n_rows, table.size):
            self.update(table, row)
        self.n_rows = table.size
        self.n_blocks = (table.size + BEE_SLOTS - 1) // BEE_SLOTS
        return self.follow(table)

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
        cdef Py_ssize_t at = row // BEE_SLOTS * self.n_kinds * 2 * BEE_SLOTS + row % BEE_SLOTS, kind
        cdef double inverse
        for kind in range(table.n_kinds):
            if table.state[row] == ROW_READY:
                inverse = SCALE / <double>max(table.total[kind, row], 1)
                self.columns[at] = <float>(MARGIN * <double>max(table.free[kind, row], 0) * inverse)
                self.columns[at + BEE_SLOTS] = <float>inverse
            else:
                self.columns[at] = -1.0
                self.columns[at + BEE_SLOTS] = 0.0
            at += 2 * BEE_SLOTS
        return 0


def _aligned_zeros(Py_ssize_t n):
    """Single precision numbers that begin with a cache line: no vector of them lies in two."""
    raw = np.zeros(n + 16, dtype=np.float32)
    begin = -(raw.ctypes.data // 4) % 16
    return raw[begin : begin + n]
