"""Best fit: each task goes to the node that it leaves in the best state, where spreading asks for the emptiest one.

Two forms of what is best; equal keys are decided by the node's tie-break, then its row:

- *pack* leaves as little as it can, and what it leaves in proportion: the sum of squares of what is left of each kind,
  as shares of the node, plus half of the difference between the largest and the smallest. A kind that the task does
  not ask for adds its square alone, so that tasks without need of a device leave nodes with devices to others.
- *shape* goes where what is free has the proportions of what is asked for: the cosine between the two.

Theory of operation
-------------------
Placing a group is the same as placing its tasks one after another. A search has of each block of nodes (`core.shares`)
its least key, or, when that cannot be the least of all, a number that no key in it is below; then the block is scanned
once that number is the least. A placement changes one row, so only its block is scanned again. Nodes that are left with
more than the best is are most of a cluster, and searches need not look at them.

The scans see resources and readiness alone; the node they find is checked with `Ask.check`, the one feasibility
function, and ruled out when refused. When many are refused, all rows are masked at once with what the filters know of
them beforehand.

Source: on nodes of one shape the sum of squares plus imbalance refuses as few tasks under churn as the best of the
rules in tests/reference/packing_peers.py; on nodes of different shapes the cosine does.
"""

from libc.stdint cimport int32_t, int64_t

from beeyard.core.filters cimport Ask
from beeyard.core.node_table cimport Needs, NodeTable
from beeyard.core.shares cimport Shares

import numpy as np

FORM_PACK = 0
FORM_SHAPE = 1

# Nodes that a check refuses before all rows are masked: a mask costs about as much as this many checks on 1,000 nodes.
cdef Py_ssize_t REFUSED_MAX = 24


cdef class BestFit:
    """The searches on one table."""

    def __init__(self):
        self.shares = Shares()
        self._keys = np.zeros(BEE_SLOTS, dtype=np.int32)
        self._leasts = None
        self._n_out = 0

    @property
    def nbytes(self):
        """Memory of what it keeps of each row, in bytes."""
        return self.shares.nbytes

    def place(self, NodeTable table not None, Ask ask not None, int form, int32_t[::1] rows, int32_t[:, ::1] pools):
        """Place as many equal tasks as fit, and hold their room in the table, the service's column and the pools.

        Args:
            form: FORM_PACK or FORM_SHAPE.
            rows: (n_tasks,) overwritten with the row of each placed task, in the order of placing.
            pools: (n_tasks, n_networks) overwritten with the pool row for each network of each placed task.

        Returns:
            Number of tasks placed; the others find no room.

        Raises:
            ValueError: shapes disagree.
        """
        cdef Py_ssize_t placed = 0
        ask.must_be_for(table)
        if pools.shape[0] != rows.shape[0] or pools.shape[1] != ask.n_networks:
            raise ValueError(f"pools must be {rows.shape[0]} x {ask.n_networks}")
        if table.size == 0:
            return 0
        self._make_ready(table)
        # Nodes where tasks of the service failed take what finds no room elsewhere.
        levels = [0] if ask.penalty is None else np.unique(np.asarray(ask.penalty)[: table.size]).tolist()
        for level in levels:
            placed = self._place_on_level(table, ask, form, level, rows, pools, placed)
        return placed

    cdef Py_ssize_t _place_on_level(
        self, NodeTable table, Ask ask, int form, int32_t level, int32_t[::1] rows, int32_t[:, ::1] pools,
        Py_ssize_t placed,
    ) except -1 nogil:
        """Place the tasks from `placed` on among the nodes with this penalty. Returns how many are placed in all."""
        cdef Py_ssize_t row
        self._begin(table, ask.needs, form)
        if ask.penalty is not None:
            for row in range(table.size):
                if ask.penalty[row] != level:
                    self._put_out(row)
            self._scan_again()
        while placed < rows.shape[0]:
            row = self._best(table, ask)
            if row < 0:
                break
            if not ask.take(table, row, pools, placed):
                self._rule_out(row)
                continue
            self.shares.follow(table)
            self._scan(self.shares.slot_of[row] // BEE_SLOTS)
            rows[placed] = <int32_t>row
            placed += 1
        return placed

    def place_each(
        self, NodeTable table not None, Ask ask not None, int form, const int64_t[:, ::1] amounts, int32_t[::1] rows
    ):
        """Place tasks of different sizes one after another, each by itself, and hold their room in the table.

        Args:
            ask: filters for all of them; without networks and host ports. Its needs are overwritten.
            amounts: (n_tasks, kinds of the table) what each reserves, >= 0.
            rows: (n_tasks,) overwritten with the row of each task, -1 when it finds no room.

        Returns:
            Number of tasks placed.

        Raises:
            ValueError: shapes disagree, or the tasks share more than room.
        """
        cdef Py_ssize_t task, row, placed = 0
        cdef int kind
        cdef Needs needs = Needs(())
        ask.must_be_for(table)
        if amounts.shape[0] != rows.shape[0] or amounts.shape[1] != table.n_kinds:
            raise ValueError(f"amounts must be {rows.shape[0]} x {table.n_kinds}")
        if ask.n_networks or ask.one_per_node:
            raise ValueError("tasks with networks or host ports are placed as a group")
        if table.size == 0:
            rows[:] = -1
            return 0
        self._make_ready(table)
        ask.needs = needs
        with nogil:
            for task in range(rows.shape[0]):
                needs.n = 0
                for kind in range(table.n_kinds):
                    if amounts[task, kind] > 0:
                        needs.kind[needs.n] = kind
                        needs.amount[needs.n] = amounts[task, kind]
                        needs.n += 1
                self._begin(table, needs, form)
                row = self._best(table, ask)
                rows[task] = <int32_t>row
                if row >= 0:
                    table.take(row, needs)
                    self.shares.follow(table)
                    placed += 1
        return placed

    def _make_ready(self, NodeTable table):
        """Follow the table, and have room for as many rows and blocks."""
        self.shares.sync(table)
        n_blocks = (table.capacity + BEE_SLOTS - 1) // BEE_SLOTS
        if self._leasts is None or self._leasts.shape[0] < n_blocks:
            self._out = np.zeros(n_blocks * BEE_SLOTS, dtype=np.int32)
            self._out_slots = np.zeros(n_blocks * BEE_SLOTS, dtype=np.int32)
            self._n_out = 0
            self._leasts = np.zeros(n_blocks, dtype=np.int32)
            self._known = np.zeros(n_blocks, dtype=np.uint8)

    cdef int _begin(self, NodeTable table, Needs needs, int form) except -1 nogil:
        """Say what to look for, and scan for it; nothing is ruled out yet."""
        cdef Py_ssize_t kind
        cdef int asked = 0
        while self._n_out:
            self._n_out = self._n_out - 1
            self._out[self._out_slots[self._n_out]] = 0
        self._masked = False
        # CPU and memory are scored whether they are asked for or not.
        self._ask.n_kinds = self._ask.n_idle = 0
        for kind in range(table.n_kinds):
            while asked < needs.n and needs.kind[asked] < kind:
                asked += 1
            if kind < 2 or (asked < needs.n and needs.kind[asked] == kind):
                self._ask.kind[self._ask.n_kinds] = <int32_t>kind
                self._ask.need[self._ask.n_kinds] = 0
                if asked < needs.n and needs.kind[asked] == kind:
                    self._ask.need[self._ask.n_kinds] = <float>needs.amount[asked]
                self._ask.n_kinds = self._ask.n_kinds + 1
            else:
                self._ask.idle[self._ask.n_idle] = <int32_t>kind
                self._ask.n_idle = self._ask.n_idle + 1
        # Nothing has no shape.
        self._ask.form = form if needs.n else 0
        # Safety: the shares have n_blocks blocks with a column for each kind of the table, and bounds of them;
        # `_leasts` and `_known` have as many numbers (`_make_ready`). Slots that are no node's never fit.
        bee_scan_all(
            &self._ask, &self.shares.columns[0], self.shares.n_kinds * 2 * BEE_SLOTS,
            &self.shares.bounds[0, 0], self.shares.bounds.shape[1],
            <int>self.shares.n_blocks, &self._leasts[0], &self._known[0],
        )
        return 0

    cdef Py_ssize_t _best(self, NodeTable table, Ask ask) except -2 nogil:
        """The row that the next task goes to; -1: none fits."""
        cdef Py_ssize_t block, row, best
        cdef int32_t least
        cdef int n = <int>self.shares.n_blocks
        while True:
            block = bee_first_least(&self._leasts[0], n)
            least = self._leasts[block]
            if least == BEE_NEVER:
                return -1
            if not self._known[block]:
                self._scan(block)
                continue
            best = self._row_in(table, block)
            # Other blocks may have a node that is as good, and wins the tie.
            block += 1
            while block < n:
                block += bee_first_least(&self._leasts[block], <int>(n - block))
                if self._leasts[block] != least:
                    break
                if not self._known[block] and self._scan(block) != least:
                    block += 1
                    continue
                row = self._row_in(table, block)
                if self._wins(table, row, best):
                    best = row
                block += 1
            if ask.check(table, best) == 0:
                return best
            self._rule_out(best)
            if not self._masked and self._n_out >= REFUSED_MAX:
                self._mask(table, ask)

    cdef bint _wins(self, NodeTable table, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Whether, of two rows with equal keys, `a` is preferred."""
        if table.tie_break[a] != table.tie_break[b]:
            return table.tie_break[a] < table.tie_break[b]
        return a < b

    cdef int32_t _scan(self, Py_ssize_t block) except -1 nogil:
        """Write the keys of a block, and the least of them, which it returns."""
        # Safety: `_out` and `_keys` hold all slots of a block.
        self._leasts[block] = bee_scan_block(
            &self._ask, &self.shares.columns[block * self.shares.n_kinds * 2 * BEE_SLOTS],
            &self._out[block * BEE_SLOTS], &self._keys[0],
        )
        self._known[block] = 1
        return self._leasts[block]

    cdef Py_ssize_t _row_in(self, NodeTable table, Py_ssize_t block) except -1 nogil:
        """The row of a block that has its least key and wins the tie."""
        cdef Py_ssize_t first = block * BEE_SLOTS, best, row
        cdef Py_ssize_t slot = 0
        cdef int32_t least = self._scan(block)
        slot = bee_first_least(&self._keys[0], BEE_SLOTS)
        best = self.shares.row_at[first + slot]
        slot += 1
        while slot < BEE_SLOTS:
            slot += bee_first_least(&self._keys[slot], <int>(BEE_SLOTS - slot))
            if self._keys[slot] != least:
                break
            row = self.shares.row_at[first + slot]
            if self._wins(table, row, best):
                best = row
            slot += 1
        return best

    cdef int _rule_out(self, Py_ssize_t row) except -1 nogil:
        """No task of this search goes to the row any more."""
        self._put_out(row)
        self._scan(self.shares.slot_of[row] // BEE_SLOTS)
        return 0

    cdef int _put_out(self, Py_ssize_t row) except -1 nogil:
        """The same, for who scans its block later."""
        cdef int32_t slot = self.shares.slot_of[row]
        if self._out[slot] == 0:
            self._out[slot] = BEE_NEVER
            self._out_slots[self._n_out] = slot
            self._n_out = self._n_out + 1
        return 0

    cdef int _scan_again(self) except -1 nogil:
        """Scan all blocks that were scanned again, with what is out by now."""
        cdef Py_ssize_t block
        for block in range(self.shares.n_blocks):
            if self._known[block] and self._leasts[block] != BEE_NEVER:
                self._scan(block)
        return 0

    cdef int _mask(self, NodeTable table, Ask ask) except -1 nogil:
        """Rule out at once all rows that a filter other than resources and pools refuses."""
        cdef Py_ssize_t row
        for row in range(table.size):
            if (
                ask.static_code[row]
                or ask.ports_taken[row]
                or ask.refused[row]
                or ask.service_tasks[row] >= ask.max_replicas
            ):
                self._put_out(row)
        self._masked = True
        return self._scan_again()


def place_at(
    NodeTable table not None, Ask ask not None, const int32_t[::1] wanted, int32_t[::1] rows, int32_t[:, ::1] pools
):
    """Place equal tasks on rows that were chosen before, as far as they fit there, and hold their room.

    Args:
        wanted: (n_tasks,) a row for each.
        rows, pools: as of `BestFit.place`.

    Returns:
        Number of tasks placed; those that do not fit where they were wanted are left out.

    Raises:
        ValueError: shapes disagree.
        IndexError: a row is not there.
    """
    cdef Py_ssize_t placed = 0, task
    ask.must_be_for(table)
    if rows.shape[0] < wanted.shape[0] or pools.shape[0] < wanted.shape[0] or pools.shape[1] != ask.n_networks:
        raise ValueError(f"rows and pools must be for {wanted.shape[0]} tasks and {ask.n_networks} networks")
    for task in range(wanted.shape[0]):
        if not 0 <= wanted[task] < table.size:
            raise IndexError(f"row {wanted[task]} of {table.size}")
    with nogil:
        for task in range(wanted.shape[0]):
            if ask.take(table, wanted[task], pools, placed):
                rows[placed] = wanted[task]
                placed += 1
    return placed
