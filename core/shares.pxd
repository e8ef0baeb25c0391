"""The data sheet of the columns that best fit reads: shares of nodes, in blocks."""

from libc.stdint cimport int32_t

from beeyard.core.node_table cimport NodeTable


cdef class Shares:
    cdef readonly Py_ssize_t n_rows     # of the table that are written here
    cdef readonly Py_ssize_t n_kinds    # kinds that there are columns for
    cdef readonly Py_ssize_t n_blocks   # of BEE_SLOTS rows; those of the last one that are no node's never fit
    cdef float[::1] columns             # by block, kind, (share that is free | inverse of the total), row of the block

    cdef int sync(self, NodeTable table) except -1
    cdef int follow(self, NodeTable table) except -1 nogil
    cdef int update(self, NodeTable table, Py_ssize_t row) except -1 nogil
