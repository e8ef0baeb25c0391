"""The data sheet of spreading over a tree: what is known of a node that may take a task."""

from libc.stdint cimport int32_t, int64_t

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_index cimport NodeIndex
from beeyard.core.node_table cimport NodeTable

cdef struct Twig:
    int64_t key         # tasks of the service on the node (high 32 bits), all its tasks (low 32 bits)
    int32_t penalty     # failures of the service there that count, before the key
    int32_t place       # the position of the row, after the key
    int32_t row


cdef int place_in_tree(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1
