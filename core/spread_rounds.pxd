"""The data sheet of spreading in rounds."""

from beeyard.core.filters cimport Ask, Outcome
from beeyard.core.node_index cimport NodeIndex
from beeyard.core.node_table cimport NodeTable


cdef int place_in_rounds(NodeTable table, Ask ask, NodeIndex index, Outcome outcome) except -1
