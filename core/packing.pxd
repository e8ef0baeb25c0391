"""The data sheet of placing one task after another."""

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_table cimport NodeTable


cdef Py_ssize_t place(NodeTable table, Ask ask, Outcome outcome) except -1
