"""The data sheet of the node table: one row a node, one column a property."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from beeyard.core.node_index cimport NodeIndex

cdef enum NodeRow:
    ROW_ABSENT = 0      # a hole: its node was removed, the row waits for another one
    ROW_NOT_READY = 1   # not READY, or an operator paused or drained it
    ROW_READY = 2       # takes new tasks

cdef enum:
    KINDS_MAX = 16      # kinds of resources that can be told apart: kind 0 is CPU, 1 is memory, the others are generic


cdef class Needs:
    cdef readonly int n                 # kinds that the task reserves some of, <= KINDS_MAX
    cdef int32_t kind[KINDS_MAX]        # rising; the first n count
    cdef int64_t amount[KINDS_MAX]      # > 0, in the unit of the kind

    cdef int fill(self, const int64_t[::1] amounts) except -1


cdef class NodeTable:
    cdef readonly Py_ssize_t size       # rows in use, holes included; every column is at least this long
    cdef readonly int n_kinds           # kinds in use, >= 2
    cdef int64_t[:, ::1] free           # by kind and row: total less what is held; < 0 when the node shrank meanwhile
    cdef int64_t[:, ::1] total          # by kind and row: what the node offers to tasks, >= 0
    cdef int32_t[::1] tasks             # tasks held there, of all services, >= 0
    cdef uint8_t[::1] state             # a NodeRow
    cdef uint64_t[::1] tie_break        # drawn from the node's id: decides between equal nodes; smaller wins
    cdef NodeIndex _index               # of the rows that are ready; `indexed` gives it when it may be read
    cdef list _holes                    # rows in state ROW_ABSENT
    cdef bint followed                  # something reads the next three: before that nothing is noted
    cdef uint8_t[::1] stale             # by row: 1 when it changed since the follower (`core.shares`) read it
    cdef int32_t[::1] stale_rows        # the first n_stale: the rows for which that is so
    cdef Py_ssize_t n_stale

    cdef int take(self, Py_ssize_t row, Needs needs) except -1 nogil
    cdef int take_some(self, Py_ssize_t row, Needs needs, int32_t n_tasks) except -1 nogil
    cdef int take_at(self, Py_ssize_t row, Py_ssize_t place, Needs needs) except -1 nogil
    cdef int take_counted(self, const int32_t[::1] taken, Needs needs) except -1 nogil
    cdef int _set_free(self, Py_ssize_t kind, Py_ssize_t row, int64_t amount) except -1 nogil
    cdef int _set_tasks(self, Py_ssize_t row, int32_t tasks) except -1 nogil
    cdef int _note_change(self, Py_ssize_t row) except -1 nogil
    cdef NodeIndex indexed(self, Needs needs)
