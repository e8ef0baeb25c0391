"""Demands in the kernel's form, and the kernel's verdicts in words.

`Asking` knows the nodes' properties and the networks with their pools: everything besides the holds that decides where a
demand fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters, reasons
from beeyard.core.branches import Branches
from beeyard.core.demand import Demand, PoolColumn, ReasonCount
from beeyard.core.filters import Ask
from beeyard.core.holds import Holds
from beeyard.core.kinds import Kinds
from beeyard.core.network_options import KIND_ALONE
from beeyard.core.node_columns import Fit, NetworkShape, NodeColumns, Pool
from beeyard.core.node_table import NodeTable
from beeyard.core.parent_links import LinkUse, ParentLinks, describe_kind
from beeyard.core.pool_rows import PoolRows
from beeyard.core.preference_tree import PreferenceTrees
from beeyard.core.reasons import Reason
from beeyard.core.verdicts import count_reasons
from beeyard.core.volumes import VolumeTable

# Of a pool whose addresses nobody counts.
_PLENTY = 1 << 62
# A row that no table has, for demands that are bound to a node nobody knows.
NOWHERE = (1 << 31) - 1


class Asking:
    """Nodes' properties and networks; makes an `Ask` of a demand and counts verdicts."""

    def __init__(self, table: NodeTable, kinds: Kinds, holds: Holds, pools: PoolRows, links: ParentLinks) -> None:
        self._table = table
        self._kinds = kinds
        self._holds = holds
        self._pools = pools
        self._links = links
        self.columns = NodeColumns(links)
        self.networks: dict[str, NetworkShape] = {}
        self._trees = PreferenceTrees(self.columns)
        self.volumes = VolumeTable(self.columns, holds.rows)
        self._no_flags: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)  # without host ports or masked nodes
        self._no_tasks: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def copy(self, table: NodeTable, kinds: Kinds, holds: Holds, pools: PoolRows, links: ParentLinks) -> Asking:
        """One of its own to try things on, over copies of the rest."""
        twin = Asking(table, kinds, holds, pools, links)
        twin.columns, twin.networks = self.columns.copy(links), dict(self.networks)
        twin._trees = self._trees.copy(twin.columns)
        twin.volumes = self.volumes.copy(twin.columns, holds.rows)
        return twin

    # --- networks ----------------------------------------------------------------------------------------------------

    def set_network(self, network_id: str, driver: str, pools: Sequence[PoolColumn], name: str) -> None:
        """Add or change a network."""
        ordered = sorted(pools, key=lambda pool: (pool.name, pool.pool_id))
        rows = [self._pools.add(pool.pool_id, pool.name, network_id, pool.free) for pool in ordered]
        for pool in self.networks[network_id].pools if network_id in self.networks else ():
            if pool.row not in rows:
                self._pools.remove(pool.row, network_id)
        for column in ordered:
            self.know_link((column.parent, column.kind))
        shape = tuple(Pool.of(column, row) for column, row in zip(ordered, rows, strict=True))
        network = NetworkShape(network_id, name or network_id, driver, shape)
        if network != self.networks.get(network_id):
            self.networks[network_id] = network
            self.columns.touch()

    def remove_network(self, network_id: str) -> None:
        """Forget a network. Idempotent."""
        network = self.networks.pop(network_id, None)
        if network is not None:
            for pool in network.pools:
                self._pools.remove(pool.row, network_id)
            self.columns.touch()

    def know_link(self, link: LinkUse) -> None:
        """When a parent becomes contested, the links that sit on it already are counted."""
        if self._links.know(*link):
            self._holds.count_links(link[0])
            self.columns.touch()

    def serving(self, network_id: str, row: int) -> list[str]:
        """Ids of the pools of a known network that serve a row and whose parent it has, in order of their names."""
        fit = self.columns.fit("", (), (), ((network_id, self.networks[network_id]),))
        return [self._pools.ids[pool] for pool in fit.pools[row].tolist() if pool >= 0]

    def with_pools(self, demand: Demand) -> list[str]:
        """The networks of a demand for which the kernel chooses a pool."""
        return [id_ for id_ in demand.network_ids if id_ in self.networks and self.networks[id_].driver != "host"]

    # --- demands -----------------------------------------------------------------------------------------------------

    def fit(self, demand: Demand) -> Fit:
        """What of a demand does not change with the tasks."""
        networks = tuple((network_id, self.networks.get(network_id)) for network_id in demand.network_ids)
        return self.columns.fit(
            demand.image,
            demand.constraints,
            demand.platforms,
            networks,
            pins=demand.pins,
            forwards_ports=demand.forwards_ports,
            plugins=demand.plugins,
        )

    def ask(
        self,
        demand: Demand,
        masked: Collection[str] = (),
        *,
        has_addresses: bool = False,
        faulty: Mapping[str, int] | None = None,
        alone: bool = False,
    ) -> Ask:
        """The demand in the kernel's form, as long as nothing changes but by the kernel.

        Args:
            masked: nodes that are left out.
            has_addresses: it has its addresses already.
            faulty: node id → failures of the service that count.
            alone: each task is of a service of its own, which has no other.
        """
        fit, capacity, rows = self.fit(demand), self._table.capacity, self._holds.rows
        if len(self._no_flags) < capacity:
            self._no_flags, self._no_tasks = np.zeros(capacity, dtype=np.uint8), np.zeros(capacity, dtype=np.int32)
        ports_taken = refused = self._no_flags
        if demand.host_ports:
            ports_taken = np.zeros(capacity, dtype=np.uint8)
            for port in demand.host_ports:
                # Ports may also be held on nodes that are not known, or not any more.
                on = [row for id_ in self._holds.ports.nodes(port) if (row := rows.get(id_)) is not None]
                ports_taken[on] = 1
        if masked or demand.volumes:
            refused = self._refused(demand, masked)
        begin = fit.network_begin[:1] if has_addresses else fit.network_begin
        available = self._pools.available
        links = (*fit.contested, *self._links.arrays(capacity)) if fit.contested is not None else ()
        return Ask(
            self._table,
            self._kinds.asked(demand),
            demand.replicas_limit,
            bool(demand.host_ports),
            fit.codes,
            ports_taken,
            refused,
            self._no_tasks[:capacity] if alone else self._holds.services.column(demand.service_id, capacity),
            fit.pools,
            begin,
            np.full_like(available, _PLENTY) if demand.pins else available,
            np.empty(len(begin), dtype=np.int32),
            *links,
            passing=self._passing(fit),
            penalty=self._penalty(faulty) if faulty else None,
            n_occupied=0 if alone else self._holds.services.n_rows(demand.service_id),
            alone=alone,
            branches=self._branches(demand, alone),
            any_refused=refused is not self._no_flags,
            only=rows.get(demand.node_id, NOWHERE) if demand.node_id else -1,
        )

    def _branches(self, demand: Demand, alone: bool) -> Branches | None:
        """What the tasks are spread over before nodes count."""
        if not demand.preferences or demand.node_id:
            return None
        counts = Counter[int]() if alone else self._holds.services.counts(demand.service_id)
        return self._trees.branches(demand.preferences, counts)

    def _passing(self, fit: Fit) -> NDArray[np.uint64] | None:
        """The rows with code 0 as the table's index has them."""
        index = self._table.index
        if fit.generation != index.generation:
            fit.passing, fit.generation = index.pack(fit.codes), index.generation
        return fit.passing

    def _penalty(self, faulty: Mapping[str, int]) -> NDArray[np.int32]:
        """By row: how many failures count."""
        penalty = np.zeros(self._table.capacity, dtype=np.int32)
        for node_id, n_failures in faulty.items():
            if node_id in self._holds.rows:
                penalty[self._holds.rows[node_id]] = n_failures
        return penalty

    def _refused(self, demand: Demand, masked: Collection[str]) -> NDArray[np.uint8]:
        """By row: whether something besides the kernel's own columns rules it out."""
        rows, size = self._holds.rows, self._table.size
        refused = np.zeros(self._table.capacity, dtype=np.uint8)
        refused[[rows[node_id] for node_id in masked if node_id in rows]] = 1
        if demand.volumes:
            refused[:size] |= ~self.volumes.fitting(demand.volumes)
        return refused

    # --- verdicts ----------------------------------------------------------------------------------------------------

    def reasons(self, demand: Demand, ask: Ask) -> tuple[int, list[ReasonCount]]:
        """How many nodes fit now, and why the others do not."""
        verdicts = np.empty(self._table.size, dtype=np.uint8)
        fitting = filters.check_all(self._table, ask, verdicts)
        rows = np.flatnonzero((verdicts != 0) & (verdicts != filters.VERDICT_ABSENT))
        return fitting, self.counted(demand, rows, verdicts[rows])

    def counted(self, demand: Demand, rows: NDArray[np.intp], verdicts: NDArray[np.integer]) -> list[ReasonCount]:
        """Verdicts on rows that do not fit, in words."""
        if demand.volumes:
            without = (verdicts == filters.VERDICT_REFUSED) & ~self.volumes.fitting(demand.volumes)[rows]
            others = self.counted(msgspec.structs.replace(demand, volumes=()), rows[~without], verdicts[~without])
            return reasons.in_order([*others, (Reason.VOLUMES, "", int(without.sum()))] if without.any() else others)
        return count_reasons(self.fit(demand), rows, verdicts, self._pools.names, partial(self._link_conflict, demand))

    def _link_conflict(self, demand: Demand, number: int, row: int) -> str:
        """What is on the parent of the first pool that would serve a row, for the demand's network of this number."""
        fit, network = self.fit(demand), self.networks[self.with_pools(demand)[number]]
        first = next(p for p in fit.pools[row, fit.network_begin[number] :].tolist() if p >= 0)
        pool = next(pool for pool in network.pools if pool.row == first)
        kinds = [kind for kind in self._links.on(pool.parent, row) if kind != pool.kind or kind == KIND_ALONE]
        by = describe_kind(kinds[0], pool.kind) if kinds else "another network of the task"
        return f"{pool.parent} for network {network.name} is used by {by}"


__all__ = ["Asking"]
