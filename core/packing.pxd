"""The data sheet of spreading: what is known of a node that may take a task."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct Candidate:
    int64_t key         # tasks of the service on the node (high 32 bits), all its tasks (low 32 bits)
    uint64_t tie_break  # NodeTable.tie_break
    int32_t row         # of the table
