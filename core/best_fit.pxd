"""The data sheet of a search for the best fit."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from beeyard.core.filters cimport Ask
from beeyard.core.node_table cimport Needs, NodeTable
from beeyard.core.shares cimport Shares

cdef extern from "best_fit.h":
    const int BEE_SLOTS
    const int32_t BEE_NEVER
    ctypedef struct BeeAsk:
        int form
        int n_kinds
        int n_idle
        int32_t kind[16]
        int32_t idle[16]
        float need[16]
    void bee_scan_all(
        const BeeAsk* ask, const float* columns, size_t stride, const float* bounds, size_t bound_stride, int n_blocks,
        int32_t* leasts, uint8_t* known
    ) noexcept nogil
    int32_t bee_scan_block(const BeeAsk* ask, const float* block, const int32_t* out, int32_t* keys) noexcept nogil
    int bee_first_least(const int32_t* numbers, int n) noexcept nogil


cdef class BestFit:
    cdef Shares shares
    cdef BeeAsk _ask                # what the scans look for now
    cdef int32_t[::1] _leasts       # by block: the least key in it, or a number that it is not below
    cdef uint8_t[::1] _known        # by block: 1 when it is the least key
    cdef int32_t[::1] _keys         # by slot of one block, scratch
    cdef int32_t[::1] _out          # by slot: BEE_NEVER where a check refused the node, else 0
    cdef int32_t[::1] _out_slots    # the first _n_out: the slots for which that is so
    cdef Py_ssize_t _n_out
    cdef bint _masked               # all nodes that filters beside resources and pools refuse are out

    cdef int _begin(self, NodeTable table, Needs needs, int form) except -1 nogil
    cdef Py_ssize_t _best(self, NodeTable table, Ask ask) except -2 nogil
    cdef bint _wins(self, NodeTable table, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef int32_t _scan(self, Py_ssize_t block) except -1 nogil
    cdef Py_ssize_t _row_in(self, NodeTable table, Py_ssize_t block) except -1 nogil
    cdef Py_ssize_t _place_on_level(
        self, NodeTable table, Ask ask, int form, int32_t level, int32_t[::1] rows, int32_t[:, ::1] pools,
        Py_ssize_t placed,
    ) except -1 nogil
    cdef int _put_out(self, Py_ssize_t row) except -1 nogil
    cdef int _scan_again(self) except -1 nogil
    cdef int _rule_out(self, Py_ssize_t row) except -1 nogil
    cdef int _mask(self, NodeTable table, Ask ask) except -1 nogil
