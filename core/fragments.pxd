"""The data sheet of fragmentation: what of a node's room the usual tasks could not use."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

from beeyard.core.filters cimport Ask
from beeyard.core.node_table cimport NodeTable

cdef enum:
    FRAGMENT_KINDS_MAX = 16     # kinds of resources, see `core.node_table`
    DEVICES_MAX = 16            # devices of a node that tasks may share
    DEVICE_WHOLE = 1000         # what a device has, in 1e-3 devices


cdef struct Class:
    int n_kinds                             # kinds that its tasks need some of
    int32_t kind[FRAGMENT_KINDS_MAX]
    int64_t amount[FRAGMENT_KINDS_MAX]      # > 0
    int32_t n_devices                       # devices that each needs; 0: none
    int32_t milli                           # of each of them; less than DEVICE_WHOLE only when it is one
    int64_t weight                          # tasks of the class that were asked for


cdef struct Spot:
    int64_t free[FRAGMENT_KINDS_MAX]
    int64_t total[FRAGMENT_KINDS_MAX]
    int32_t device[DEVICES_MAX]             # free of each device, in 1e-3 devices
    int32_t n_devices


cdef class Fragments:
    cdef readonly int n_kinds
    cdef readonly Py_ssize_t n_rows
    cdef Spot* _spots                       # by row, room for _capacity
    cdef Py_ssize_t _capacity
    cdef Class* _mix                        # the usual tasks
    cdef int _n_mix
    cdef int64_t[::1] _lost                 # by row: what of it the mix cannot use, weighted
    cdef uint32_t[::1] _version             # by row: rises when it changes, never 0
    # by needs: what is known of a class: (growth by row, device by row, version by row)
    cdef dict _growths

    cdef int _follow_row(self, NodeTable table, Py_ssize_t row) except -1 nogil
    cdef Py_ssize_t _first(self, NodeTable table, Ask ask, int64_t[::1] growth) except -2 nogil
    cdef Class _class(self, needs, weight)
    cdef int64_t _lost_on(self, const Spot* spot) noexcept nogil
    cdef int _changed(self, Py_ssize_t row) except -1 nogil
    cdef int _grow(
        self, Py_ssize_t row, const Class* task, int64_t[::1] growth, int8_t[::1] device, uint32_t[::1] seen
    ) except -1 nogil


cdef int64_t copies_in(const Spot* spot, const Class* task) noexcept nogil
cdef int put_in(Spot* spot, const Class* task) noexcept nogil


cdef inline bint fits_in(const Spot* spot, const Class* task) noexcept nogil:
    """Whether a row has room for a task of a class: `copies_in` without its divisions."""
    cdef int number, left = task.n_devices
    for number in range(task.n_kinds):
        if spot.free[task.kind[number]] < task.amount[number]:
            return False
    if left:
        for number in range(spot.n_devices):
            if spot.device[number] >= task.milli:
                left -= 1
                if left == 0:
                    return True
    return left == 0
