"""The data sheet of the columns that best fit reads: shares of nodes, in blocks."""

from libc.stdint cimport int32_t

from beeyard.core.node_table cimport NodeTable


cdef class Shares:
    cdef readonly Py_ssize_t n_rows     # of the table that are written here
    cdef readonly Py_ssize_t n_kinds    # kinds that there are columns for
    cdef readonly Py_ssize_t n_used     # kinds of the table that are written here
    cdef readonly Py_ssize_t n_blocks   # of BEE_SLOTS slots; those of the last one that are no row's never fit
    cdef float[::1] columns             # by block, kind, (share that is free | inverse of the total), slot of the block
    cdef int32_t[::1] slot_of           # by row: where it is; the first n_rows slots are the rows in another order
    cdef int32_t[::1] row_at            # by slot: whose it is
    cdef float[:, ::1] bounds           # by BeeBound, by block: what no ready row of the block is beyond
    cdef Py_ssize_t _n_changes          # since rows were put in order

    cdef int sync(self, NodeTable table) except -1
    cdef int follow(self, NodeTable table) except -1 nogil
    cdef int update(self, NodeTable table, Py_ssize_t row) except -1 nogil
    cdef int _bound(self, Py_ssize_t slot) except -1 nogil
