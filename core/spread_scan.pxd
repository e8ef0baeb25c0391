"""The data sheet of spreading by scans: what is known of a node that may take a task."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_table cimport NodeTable

cdef struct Candidate:
    int64_t key         # tasks of the service on the node (high 32 bits), all its tasks (low 32 bits)
    uint64_t tie_break  # NodeTable.tie_break
    int32_t row         # of the table


cdef int place_by_scan(NodeTable table, Ask ask, Outcome outcome) except -1
