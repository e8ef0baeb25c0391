"""The data sheet of placing one task after another."""

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_table cimport NodeTable

cdef enum:
    FAILED_MIN = 256    # rows that a walk tries in vain, besides a quarter of the table, before a full scan is cheaper


cdef Py_ssize_t place(NodeTable table, Ask ask, Outcome outcome) except -1
