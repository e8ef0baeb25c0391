"""The data sheet of the node table: one row a node, one column a property."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum NodeRow:
    ROW_ABSENT = 0      # a hole: its node was removed, the row waits for another one
    ROW_NOT_READY = 1   # not READY, or an operator paused or drained it
    ROW_READY = 2       # takes new tasks


cdef class NodeTable:
    cdef readonly Py_ssize_t size       # rows in use, holes included; every column is at least this long
    cdef int64_t[::1] cpu_free          # 1e-9 cores: capacity less what is held; < 0 when the node shrank meanwhile
    cdef int64_t[::1] memory_free       # bytes, likewise
    cdef int32_t[::1] tasks             # tasks held there, of all services, >= 0
    cdef uint8_t[::1] state             # a NodeRow
    cdef uint64_t[::1] tie_break        # drawn from the node's id: decides between equal nodes; smaller wins
    cdef list _holes                    # rows in state ROW_ABSENT

    cdef int take(self, Py_ssize_t row, int64_t cpu_nano, int64_t memory_bytes) except -1 nogil
