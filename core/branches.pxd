"""The data sheet of the tree that tasks are spread over: levels, branches, leaves."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Branches:
    cdef const int32_t[::1] leaf_of     # by row: the leaf that it is in, the innermost branch
    cdef const int32_t[:, ::1] path     # by leaf and level: the branch, outermost first
    cdef const int32_t[::1] weight      # by branch: its share among others, > 0
    cdef const uint8_t[::1] last        # by branch: 1 when it takes only what finds no room in the others
    cdef int64_t[::1] tasks             # by branch: tasks of the service, on nodes that take no more of them too
    cdef readonly Py_ssize_t n_leaves

    cdef int compare(self, int32_t leaf, int32_t other) except -2 nogil
    cdef int add(self, int32_t leaf) except -1 nogil
