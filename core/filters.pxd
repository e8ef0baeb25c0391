"""The data sheet of a demand as the kernel sees it, and the verdicts on a row."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from beeyard.core.branches cimport Branches
from beeyard.core.node_table cimport Needs, NodeTable

cdef enum Verdict:
    FITS = 0
    NOT_READY = 1
    RESOURCES = 2
    HOST_PORT = 3
    MAX_REPLICAS = 4
    REFUSED = 5             # a hook refused the node for this task
    POOL = 16               # + index of the network whose pools are empty, < 24
    LINK = 40               # + index of the network whose parents have links of other kinds, < 24
    STATIC = 64             # + code of a property that does not change with the tasks, 1..190
    ABSENT = 255

cdef enum:
    SET_OF_LINK = 17        # the bit in a set of verdicts that stands for LINK, which is too large to be one
    ALONE = 1               # the kind of link that tolerates none beside it on its parent
    BLOCK_ROWS = 256        # rows whose keys are computed at a time: 2 KiB of keys stay in the first-level cache


cdef class Ask:
    cdef Needs needs                        # what each task reserves; all its kinds are columns of the table
    cdef int32_t max_replicas               # tasks of the service a node takes; 2**31 - 1: no limit
    cdef bint one_per_node                  # it asks for host ports, so a node takes at most one of these tasks
    cdef const uint8_t[::1] static_code     # by row: 0 fits, else why image, network, constraint or platform do not
    cdef uint8_t[::1] ports_taken           # by row: 1 where one of the host ports is in use
    cdef const uint8_t[::1] refused         # by row: 1 where the caller masked the node
    cdef bint any_refused                   # some is
    cdef int32_t[::1] service_tasks         # by row: tasks of this service held there
    cdef const int32_t[:, ::1] pools        # by row: pool rows, network by network, each by name; -1: none
    cdef const int32_t[::1] network_begin   # first column in `pools` of each network, and one past the last of all
    cdef readonly Py_ssize_t n_networks     # networks that have pools
    cdef int64_t[::1] pool_free             # by pool row: addresses free and not planned
    cdef bint _contested                    # some parent has links of several kinds: only then the next four are read
    cdef const int32_t[:, ::1] link_parent  # by network and pool row: row of the next but one; -1: not contested
    cdef const int32_t[:, ::1] link_kind    # by network and pool row: the kind of link that the network makes there
    cdef int32_t[:, ::1] use_kind           # by contested parent and row: the kind of its links; -1: several
    cdef int32_t[:, ::1] use_count          # by contested parent and row: how many
    cdef int32_t[::1] _scratch              # one pool row for each network
    cdef const uint64_t[::1] passing        # by position: bits of rows with static_code 0; None: all
    cdef const int32_t[::1] penalty         # by row: failures of this service that count, before all else; None: none
    cdef readonly Branches branches         # what it is spread over before nodes count; None: over nodes alone
    cdef Py_ssize_t only                    # the one row that it may go to; -1: any
    cdef readonly bint alone                # each task is of a service of its own, which has no other
    cdef readonly Py_ssize_t n_occupied     # rows with tasks of the service when the Ask was made
    cdef uint64_t[::1] alive                # by position: bits of rows that a full scan found to fit; None: no scan yet
    cdef Py_ssize_t n_failed                # rows that walks met and that did not fit, since the last scan
    cdef Py_ssize_t _size                   # rows of the table that it was made for
    cdef bint varied                        # `needs` changes from task to task, so that no scan may look at it

    cdef int must_be_for(self, NodeTable table) except -1
    cdef int check(self, NodeTable table, Py_ssize_t row) except -1 nogil
    cdef bint take(self, NodeTable table, Py_ssize_t row, int32_t[:, ::1] pools, Py_ssize_t task) except -1 nogil
    cdef Py_ssize_t count_failed(self) except -1 nogil
    cdef Py_ssize_t take_pools(self, Py_ssize_t row, int32_t[::1] chosen) except -1 nogil
    cdef int give_pools(self, Py_ssize_t row, int32_t[::1] chosen, Py_ssize_t n) except -1 nogil
    cdef Py_ssize_t try_pools(self, Py_ssize_t row) except -1 nogil
    cdef int32_t _parent(self, Py_ssize_t network, int32_t pool) except -2 nogil
    cdef bint _link_fits(self, Py_ssize_t row, Py_ssize_t network, int32_t pool) except -1 nogil
    cdef int _count_link(self, Py_ssize_t row, Py_ssize_t network, int32_t pool, int32_t change) except -1 nogil


cdef class Outcome:
    cdef int32_t[::1] rows          # by task: its row; filled up to `placed`
    cdef int32_t[:, ::1] pools      # by task and network with pools: the pool row
    cdef Py_ssize_t placed          # tasks so far
    cdef Py_ssize_t end             # tasks that are to be placed, no more than either array has room for

    cdef int add(self, Py_ssize_t row) except -1 nogil


cdef int64_t block_keys(NodeTable table, Ask ask, Py_ssize_t begin, int n, int64_t[::1] keys) except -1 nogil
