"""The one feasibility function: does a task fit on a node, and if not, what is the first reason?

Order of the filters, SwarmKit's with the address pools last: ready, resources, (image, network driver, parent link,
pool for the node), constraints, platform, host ports, replicas per node, other tasks' links on the parent and free
addresses, network by network, refused by a hook. What is in parentheses and the two behind it do not change with the
tasks; `core.node_columns` works them out once for each kind of demand.

Two forms of the same rule: `Ask.check` for one row says the reason; `block_keys` for 256 rows at a time says only which
fit, free of branches so that the compiler vectorises it. The unit tests compare both with plain Python.
"""

from beeyard.core.node_table cimport KINDS_MAX

import numpy as np


cdef class Ask:
    """A demand, ready for the loops. The arrays are borrowed: the index owns and updates them."""

    def __init__(
        self,
        NodeTable table not None,
        Needs needs not None,
        int32_t max_replicas,
        bint one_per_node,
        const uint8_t[::1] static_code,
        uint8_t[::1] ports_taken,
        const uint8_t[::1] refused,
        int32_t[::1] service_tasks,
        const int32_t[:, ::1] pools,
        const int32_t[::1] network_begin,
        int64_t[::1] pool_free,
        int32_t[::1] scratch,
        const int32_t[:, ::1] link_parent=None,
        const int32_t[:, ::1] link_kind=None,
        int32_t[:, ::1] use_kind=None,
        int32_t[:, ::1] use_count=None,
        *,
        const uint64_t[::1] passing=None,
        const int32_t[::1] penalty=None,
        Py_ssize_t n_occupied=0,
        bint alone=False,
        Py_ssize_t only=-1,
        bint any_refused=True,
        Branches branches=None,
    ):
        """
        Args:
            table: every array by row is at least as long as it has rows.
            needs: what each task reserves.
            max_replicas: 0 for no limit.
            pools: values below the length of `pool_free`, or -1.
            network_begin: one more element than networks with pools, rising from 0 to the width of `pools`.
            scratch: (networks,) overwritten.
            link_parent, link_kind: (networks, pool rows, up to the last in `pools`). Parents are rows of the next two,
                or -1. All four are left out when no parent is contested.
            use_kind, use_count: (contested parents, rows).
            passing: what `NodeIndex.pack` gives for `static_code`, of the table's index as it is.
            penalty: by row: failures of this service there, where they count; a node without any comes first.
            n_occupied: rows with tasks of the service, more or less.
            only: the one row that the tasks may go to, also one that is not there; -1 for any.
            any_refused: False when `refused` is known to be 0 everywhere.
            branches: what the tasks are spread over first, made for this table.
            alone: every task is of a service of its own; `service_tasks` is 0 everywhere and stays so.

        Raises:
            ValueError: an array is too short, or a network or a kind has no column. (The loops trust it.)
        """
        cdef Py_ssize_t n_networks = network_begin.shape[0] - 1, size = table.size, network
        if needs.n and needs.kind[needs.n - 1] >= table.n_kinds:
            raise ValueError(f"kind {needs.kind[needs.n - 1]} of {table.n_kinds}")
        shortest = min(static_code.shape[0], ports_taken.shape[0], refused.shape[0], service_tasks.shape[0])
        if shortest < size or (n_networks and pools.shape[0] < size):
            raise ValueError(f"columns of {shortest} rows for a table of {size}")
        if not 0 <= n_networks <= POOL_NETWORKS_MAX or scratch.shape[0] < n_networks:
            raise ValueError(f"{n_networks} networks: at most {POOL_NETWORKS_MAX}")
        self._contested = link_parent is not None
        if self._contested and (
            min(link_parent.shape[0], link_kind.shape[0]) < n_networks
            or link_parent.shape[1] != link_kind.shape[1]
            or min(use_kind.shape[1], use_count.shape[1]) < size
        ):
            raise ValueError("links do not match networks, pools and rows")
        for network in range(n_networks):
            if network_begin[network + 1] < network_begin[network]:
                raise ValueError(f"networks {np.asarray(network_begin).tolist()} do not rise")
        if network_begin[0] != 0 or network_begin[n_networks] > pools.shape[1]:
            raise ValueError("networks do not lie within the pool columns")
        self.needs = needs
        self.max_replicas = max_replicas if max_replicas > 0 else 0x7FFFFFFF
        self.one_per_node = one_per_node
        self.static_code = static_code
        self.ports_taken = ports_taken
        self.refused = refused
        self.service_tasks = service_tasks
        self.pools = pools
        self.network_begin = network_begin
        self.n_networks = n_networks
        self.pool_free = pool_free
        self.link_parent = link_parent
        self.link_kind = link_kind
        self.use_kind = use_kind
        self.use_count = use_count
        self._scratch = scratch
        if penalty is not None and penalty.shape[0] < size:
            raise ValueError(f"penalties of {penalty.shape[0]} rows for a table of {size}")
        if branches is not None and branches.leaf_of.shape[0] < size:
            raise ValueError(f"leaves of {branches.leaf_of.shape[0]} rows for a table of {size}")
        if passing is not None and passing.shape[0] < max(8, (size + 511) // 512 * 8):
            raise ValueError(f"bits of {passing.shape[0] * 64} rows for a table of {size}")
        self.passing = passing
        self.penalty = penalty
        self.n_occupied = n_occupied
        self.alone = alone
        self.only = only
        self.any_refused = any_refused
        self.branches = branches
        self.alive = None
        self.n_failed = 0
        self.varied = False
        self._size = size

    cdef int must_be_for(self, NodeTable table) except -1:
        """Raise ValueError unless the table is as long as the one that this was made for: the loops trust it."""
        if table.size != self._size:
            raise ValueError(f"an Ask for {self._size} rows: the table has {table.size}")
        if self.needs.n and self.needs.kind[self.needs.n - 1] >= table.n_kinds:
            raise ValueError(f"kind {self.needs.kind[self.needs.n - 1]} of {table.n_kinds}")
        return 0

    cdef int check(self, NodeTable table, Py_ssize_t row) except -1 nogil:
        """The first reason why the row does not fit, a Verdict; FITS when there is none."""
        cdef Py_ssize_t network
        cdef int index
        if table.state[row] != 2:
            return NOT_READY if table.state[row] == 1 else ABSENT
        # What is not asked for is not compared: an overcommitted node takes a task that reserves nothing.
        for index in range(self.needs.n):
            if table.free[self.needs.kind[index], row] < self.needs.amount[index]:
                return RESOURCES
        if self.static_code[row]:
            return STATIC + self.static_code[row]
        if self.ports_taken[row]:
            return HOST_PORT
        if self.service_tasks[row] >= self.max_replicas:
            return MAX_REPLICAS
        if self.n_networks:
            network = self.try_pools(row)
            if network < self.n_networks:
                return POOL + <int>network
            if network > self.n_networks:
                return LINK + <int>(network - self.n_networks - 1)
        return REFUSED if self.refused[row] or self.only >= 0 and self.only != row else FITS

    cdef bint take(self, NodeTable table, Py_ssize_t row, int32_t[:, ::1] pools, Py_ssize_t task) except -1 nogil:
        """Place a task on a row if it fits: hold its room, count it for its service, plan its addresses in `pools`."""
        if self.check(table, row):
            return False
        if self.n_networks and self.take_pools(row, pools[task]) != self.n_networks:
            return False
        table.take(row, self.needs)
        if not self.alone:
            self.service_tasks[row] += 1
        if self.one_per_node:
            self.ports_taken[row] = 1
        return True

    cdef Py_ssize_t count_failed(self) except -1 nogil:
        """A walk met a row in vain. Returns how many it were since the last scan."""
        self.n_failed = self.n_failed + 1
        return self.n_failed

    cdef Py_ssize_t take_pools(self, Py_ssize_t row, int32_t[::1] chosen) except -1 nogil:
        """Plan one address for each network of the demand, from the first of the row's pools that has one.

        All or nothing. Two networks may draw from the same pool; then it must have two addresses.

        Returns:
            The number of networks when all got one. Else the first network that did not, plus 1 and the number of
            networks when that is because each parent of its pools has links of another kind.
        """
        cdef Py_ssize_t network, column
        cdef int32_t pool
        cdef bint some_parent
        for network in range(self.n_networks):
            some_parent = not self._contested
            for column in range(self.network_begin[network], self.network_begin[network + 1]):
                pool = self.pools[row, column]
                # Nor is there a pool with a number that is too large.
                if <uint32_t>pool >= <uint64_t>self.pool_free.shape[0]:
                    continue
                if self._contested:
                    if not self._link_fits(row, network, pool):
                        continue
                    some_parent = True
                if self.pool_free[pool] > 0:
                    self.pool_free[pool] -= 1
                    if self._contested:
                        self._count_link(row, network, pool, 1)
                    chosen[network] = pool
                    break
            else:
                self.give_pools(row, chosen, network)
                return network if some_parent else self.n_networks + 1 + network
        return self.n_networks

    cdef int give_pools(self, Py_ssize_t row, int32_t[::1] chosen, Py_ssize_t n) except -1 nogil:
        """Undo the plans of the first `n` networks."""
        cdef Py_ssize_t network
        for network in range(n):
            self.pool_free[chosen[network]] += 1
            if self._contested:
                self._count_link(row, network, chosen[network], -1)
        return 0

    cdef Py_ssize_t try_pools(self, Py_ssize_t row) except -1 nogil:
        """What `take_pools` would return, without planning anything."""
        cdef Py_ssize_t network = self.take_pools(row, self._scratch)
        if network == self.n_networks:
            self.give_pools(row, self._scratch, self.n_networks)
        return network

    cdef int32_t _parent(self, Py_ssize_t network, int32_t pool) except -2 nogil:
        """The contested parent of a pool in a network; -1: it is not contested."""
        if pool >= self.link_parent.shape[1]:
            return -1
        cdef int32_t parent = self.link_parent[network, pool]
        return parent if -1 <= parent < min(self.use_kind.shape[0], self.use_count.shape[0]) else -1

    cdef bint _link_fits(self, Py_ssize_t row, Py_ssize_t network, int32_t pool) except -1 nogil:
        """Whether the network's kind of link goes with what is on the parent of its pool."""
        cdef int32_t parent = self._parent(network, pool), kind
        if parent < 0 or self.use_count[parent, row] == 0:
            return True
        kind = self.link_kind[network, pool]
        return kind != ALONE and self.use_kind[parent, row] == kind

    cdef int _count_link(self, Py_ssize_t row, Py_ssize_t network, int32_t pool, int32_t change) except -1 nogil:
        """Add a link to the parent of the network's pool, or take one away."""
        cdef int32_t parent = self._parent(network, pool)
        if parent >= 0:
            if self.use_count[parent, row] == 0:
                self.use_kind[parent, row] = self.link_kind[network, pool]
            self.use_count[parent, row] += change
        return 0


cdef class Outcome:
    """Where the tasks of a group go."""

    def __init__(self, int32_t[::1] rows, int32_t[:, ::1] pools, Py_ssize_t n_networks):
        """Raises ValueError when shapes disagree."""
        if pools.shape[0] != rows.shape[0] or pools.shape[1] < n_networks:
            raise ValueError(f"pools must be {rows.shape[0]} x {n_networks}")
        self.rows = rows
        self.pools = pools
        self.placed = 0
        self.end = rows.shape[0]

    cdef int add(self, Py_ssize_t row) except -1 nogil:
        """The next task is on this row."""
        self.rows[self.placed] = <int32_t>row
        self.placed = self.placed + 1
        return 0


POOL_NETWORKS_MAX = LINK - POOL


cdef extern from *:
    """
    #include <stdint.h>
    /* The loop is C because only so can it be compiled twice, for processors with 256-bit vectors and for all others,
       with the choice made when the module is loaded. Elsewhere it is compiled once. */
    #if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__)
    #define BEE_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define BEE_CLONES
    #endif

    BEE_CLONES static int64_t bee_block_keys(
        const int64_t *const *free, const int64_t *least, int n_kinds, const int32_t *tasks,
        const int32_t *service_tasks, const uint8_t *state, const uint8_t *static_code, const uint8_t *ports_taken,
        const uint8_t *refused, int32_t max_replicas, int n, int64_t *keys)
    {
        int64_t smallest = INT64_MAX;
        uint8_t ruled_out[256];
        for (int i = 0; i < n; i++)
            ruled_out[i] = (uint8_t)((state[i] ^ 2) | static_code[i] | ports_taken[i] | refused[i]);
        for (int i = 0; i < n; i++) {
            int64_t key = ((int64_t)service_tasks[i] << 32) | (int64_t)tasks[i];
            int64_t out = -(int64_t)(service_tasks[i] >= max_replicas) | -(int64_t)(ruled_out[i] != 0);
            keys[i] = key | (out & INT64_MAX);
        }
        for (int kind = 0; kind < n_kinds; kind++) {
            const int64_t *column = free[kind], amount = least[kind];
            for (int i = 0; i < n; i++)
                keys[i] |= -(int64_t)(column[i] < amount) & INT64_MAX;
        }
        for (int i = 0; i < n; i++)
            smallest = keys[i] < smallest ? keys[i] : smallest;
        return smallest;
    }
    """
    int64_t bee_block_keys(
        const int64_t** free, const int64_t* least, int n_kinds, const int32_t* tasks, const int32_t* service_tasks,
        const uint8_t* state, const uint8_t* static_code, const uint8_t* ports_taken, const uint8_t* refused,
        int32_t max_replicas, int n, int64_t* keys,
    ) noexcept nogil


cdef int64_t block_keys(NodeTable table, Ask ask, Py_ssize_t begin, int n, int64_t[::1] keys) except -1 nogil:
    """Give each row of a block its key for the spread order, INT64_MAX where a filter other than the pools fails.

    A key is the number of the service's tasks on the node (high 32 bits), then of all its tasks (low 32 bits). Returns
    the smallest. Comparisons become masks, joined by `|`: the loop has no branch to predict and is vectorised.
    """
    # Safety: the C loop reads rows begin to begin + n - 1, n <= BLOCK_ROWS. The columns of the table and of the Ask
    # (see Ask.__init__) are at least table.size long; the debug build checks it here by their last row.
    cdef Py_ssize_t last = begin + n - 1
    cdef int64_t probe = table.tasks[last] | ask.static_code[last] | keys[n - 1]
    cdef const int64_t* free[KINDS_MAX]
    cdef int index
    probe |= ask.service_tasks[last] | ask.ports_taken[last] | ask.refused[last]
    for index in range(ask.needs.n):
        probe |= table.free[ask.needs.kind[index], last]
        free[index] = &table.free[ask.needs.kind[index], begin]
    return bee_block_keys(
        free, ask.needs.amount, ask.needs.n, &table.tasks[begin], &ask.service_tasks[begin], &table.state[begin],
        &ask.static_code[begin], &ask.ports_taken[begin], &ask.refused[begin], ask.max_replicas, n, &keys[0],
    )


def check_row(NodeTable table not None, Ask ask not None, Py_ssize_t row):
    """The Verdict on one row, as an int."""
    ask.must_be_for(table)
    if not 0 <= row < table.size:
        raise IndexError(f"row {row} of {table.size}")
    return ask.check(table, row)


def check_all(NodeTable table not None, Ask ask not None, uint8_t[::1] verdicts):
    """Write the Verdict on every row into `verdicts`, (table.size,) uint8; returns how many fit."""
    cdef Py_ssize_t row, fitting = 0
    ask.must_be_for(table)
    if verdicts.shape[0] != table.size:
        raise ValueError(f"{verdicts.shape[0]} verdicts for {table.size} rows")
    with nogil:
        for row in range(table.size):
            verdicts[row] = ask.check(table, row)
            fitting += verdicts[row] == FITS
    return fitting


def check_sets(NodeTable table not None, Ask ask not None, uint32_t[::1] failing):
    """Write for every row into `failing`, (table.size,) uint32, which filters it fails: bit number v for Verdict v.

    POOL and LINK stand for all networks. `static_code` is not looked at: there may be several reasons behind one code.
    An absent row fails bit 31 alone.
    """
    cdef Py_ssize_t row
    ask.must_be_for(table)
    if failing.shape[0] != table.size:
        raise ValueError(f"{failing.shape[0]} sets for {table.size} rows")
    with nogil:
        for row in range(table.size):
            failing[row] = _failing(table, ask, row)


cdef uint32_t _failing(NodeTable table, Ask ask, Py_ssize_t row) except? 0xFFFFFFFF nogil:
    """The filters of `Ask.check`, none left out because an earlier one fails."""
    cdef uint32_t bits = 0
    cdef Py_ssize_t index, network
    if table.state[row] == 0:
        return <uint32_t>1 << 31
    bits |= <uint32_t>(table.state[row] != 2) << NOT_READY
    for index in range(ask.needs.n):
        bits |= <uint32_t>(table.free[ask.needs.kind[index], row] < ask.needs.amount[index]) << RESOURCES
    bits |= <uint32_t>(ask.ports_taken[row] != 0) << HOST_PORT
    bits |= <uint32_t>(ask.service_tasks[row] >= ask.max_replicas) << MAX_REPLICAS
    bits |= <uint32_t>(ask.refused[row] != 0 or ask.only >= 0 and ask.only != row) << REFUSED
    if ask.n_networks:
        network = ask.try_pools(row)
        bits |= <uint32_t>(network < ask.n_networks) << POOL
        bits |= <uint32_t>(network > ask.n_networks) << SET_OF_LINK
    return bits


VERDICT_NOT_READY = NOT_READY
VERDICT_RESOURCES = RESOURCES
VERDICT_HOST_PORT = HOST_PORT
VERDICT_MAX_REPLICAS = MAX_REPLICAS
VERDICT_REFUSED = REFUSED
VERDICT_POOL = POOL
VERDICT_LINK = LINK
VERDICT_STATIC = STATIC
VERDICT_ABSENT = ABSENT
