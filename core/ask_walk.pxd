"""The data sheet of walks for a demand."""

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_index cimport NodeIndex, Walk
from beeyard.core.node_table cimport NodeTable

cdef enum:
    FAILED_MIN = 256    # rows that a walk tries in vain, besides a quarter of the table, before a full scan is cheaper


cdef int lay_masks(Ask ask, NodeIndex index, Walk* walk) except -1 nogil
cdef bint take_met(NodeTable table, Ask ask, Py_ssize_t row, Py_ssize_t place, Outcome outcome) except -1 nogil
cdef int note_failed(NodeTable table, Ask ask, NodeIndex index, Walk* walk) except -1 nogil
