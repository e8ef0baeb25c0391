"""Which node takes a task: the Python face of the kernel.

`PlacementIndex` mirrors the nodes, the networks' pools and everything that occupies a node. There is one feasibility
function (`filters.Ask.check`), used to propose (`place`), to check again before committing (`feasible`) and to explain.

A *hold* is a task's room on a node: its reservations, its host ports, its place in the count of its service. It begins when
the task is placed (or with `hold`, for tasks that were stored before) and ends with `drop`, when the task's observed state
is terminal. A hold made by `place` also plans one address in a pool of each of the task's networks, because the address
itself is reserved a little later by a hook; `settle` ends the plan once the pool's own count includes the address.

Nothing here raises for "no room": a decision says how many tasks are left and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters, packing, reasons
from beeyard.core.demand import Decision, Demand, Findings, Placed, PoolColumn, ReasonCount, room_of
from beeyard.core.filters import Ask
from beeyard.core.host_ports import PortTable
from beeyard.core.model import Node
from beeyard.core.network_options import KIND_ALONE
from beeyard.core.node_columns import Fit, NetworkShape, NodeColumns, Pool
from beeyard.core.node_table import NodeTable
from beeyard.core.parent_links import LinkUse, ParentLinks, describe_kind
from beeyard.core.pool_rows import PoolRows
from beeyard.core.reasons import Reason
from beeyard.core.service_tasks import ServiceTasks
from beeyard.core.states import Availability, NodeState
from beeyard.core.verdicts import count_reasons

# Of a pool whose addresses nobody counts.
_PLENTY = 1 << 62


class _Hold(msgspec.Struct, gc=False):
    demand: Demand
    node_id: str
    counted: bool = False  # the node is known, so the hold is in the table
    plans: tuple[str, ...] = ()  # pools in which an address is planned
    pools: tuple[str, ...] = ()  # those that were chosen, one for each network of the demand that has pools
    links: tuple[LinkUse, ...] = ()  # its links on the node's parents


class PlacementIndex:
    """Nodes, pools and holds. Deterministic: the same calls give the same placements; `seed` varies who wins a tie."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed.encode()
        self._table = NodeTable()
        self._links = ParentLinks()
        self._columns = NodeColumns(self._links)
        self._row: dict[str, int] = {}
        self._holds: dict[str, _Hold] = {}
        self._holds_by_node: dict[str, dict[str, _Hold]] = {}
        self._services = ServiceTasks()
        self.ports = PortTable()
        self._networks: dict[str, NetworkShape] = {}
        self._pools = PoolRows()
        # For demands without host ports or masked nodes.
        self._no_flags: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or change a node. Tasks that were already held for its id count from now on."""
        row = self._row.get(node.id)
        before = None if row is None else self._columns.nodes[row]
        if row is None:
            digest = hashlib.blake2b(node.id.encode(), digest_size=8, key=self._seed).digest()
            row = self._row[node.id] = self._table.add_row(int.from_bytes(digest, "little"))
        old_cpu, old_memory = (0, 0) if before is None else room_of(before)
        cpu_nano, memory_bytes = room_of(node)
        self._table.add_room(row, cpu_nano - old_cpu, memory_bytes - old_memory)
        ready = node.status.state == NodeState.READY and node.availability == Availability.ACTIVE
        self._table.set_ready(row, ready)
        self._columns.set(row, node)
        self.ports.set_listening(node.id, node.description.listening)
        if before is None:
            for hold in self._holds_by_node.get(node.id, {}).values():
                self._count(hold, row)

    def remove_node(self, node_id: str) -> None:
        """Forget a node. Its tasks' holds stay, and count again when the node comes back. Idempotent."""
        row = self._row.get(node_id)
        if row is None:
            return
        for hold in self._holds_by_node.get(node_id, {}).values():
            self._uncount(hold, row)
        del self._row[node_id]
        self.ports.set_listening(node_id, ())
        self._columns.remove(row)
        self._table.remove_row(row)

    # --- networks ----------------------------------------------------------------------------------------------------

    def set_network(self, network_id: str, driver: str, pools: Sequence[PoolColumn], *, name: str = "") -> None:
        """Add or change a network. Pools are used in order of their names. `name` is for explanations."""
        ordered = sorted(pools, key=lambda pool: (pool.name, pool.pool_id))
        rows = [self._pools.add(pool.pool_id, pool.name, network_id, pool.free) for pool in ordered]
        for pool in self._networks[network_id].pools if network_id in self._networks else ():
            if pool.row not in rows:
                self._pools.remove(pool.row, network_id)
        for column in ordered:
            self._know_link((column.parent, column.kind))
        shape = tuple(Pool.of(column, row) for column, row in zip(ordered, rows, strict=True))
        network = NetworkShape(network_id, name or network_id, driver, shape)
        if network != self._networks.get(network_id):
            self._networks[network_id] = network
            self._columns.touch()

    def remove_network(self, network_id: str) -> None:
        """Forget a network: demands for it fit nowhere. Idempotent."""
        network = self._networks.pop(network_id, None)
        if network is not None:
            for pool in network.pools:
                self._pools.remove(pool.row, network_id)
            self._columns.touch()

    def set_pool_free(self, pool_id: str, free: int) -> None:
        """How many addresses of a pool may be handed out now, cooling ones excluded. Unknown pools are ignored."""
        self._pools.set_free(pool_id, free)

    def pool_for(self, network_id: str, node_id: str) -> list[str]:
        """Ids of the pools of a network that serve a node and whose parent it has, in order of their names."""
        row = self._row.get(node_id)
        if row is None or network_id not in self._networks:
            return []
        fit = self._columns.fit("", (), (), ((network_id, self._networks[network_id]),))
        return [self._pools.ids[pool] for pool in fit.pools[row].tolist() if pool >= 0]

    # --- holds -------------------------------------------------------------------------------------------------------

    def pools_for(self, task_id: str, network_id: str, node_id: str) -> list[str]:
        """Ids of the pools that may give a placed task its address: the chosen one, then others with the same parent.

        A task that was not placed here, or elsewhere, gets those of `pool_for`.
        """
        serving = self.pool_for(network_id, node_id)
        hold, network = self._holds.get(task_id), self._networks.get(network_id)
        if hold is None or hold.node_id != node_id or not hold.pools or network is None:
            return serving
        chosen = dict(zip(self._with_pools(hold.demand), hold.pools, strict=False)).get(network_id, "")
        if chosen not in serving or hold.demand.pins or len(serving) == 1:
            return [chosen] if chosen in serving else []
        links = {id_: network.link_in(self._pools.row(id_)) for id_ in serving}
        return [chosen, *(id_ for id_ in serving if id_ != chosen and links[id_] == links[chosen])]

    def hold(self, task_id: str, demand: Demand, node_id: str, *, links: Iterable[LinkUse] = ()) -> None:
        """Occupy a node for a task that is there already. Idempotent; the first call for a task counts.

        Args:
            links: the task's links on the node's parents.
        """
        if task_id in self._holds:
            return
        hold = _Hold(demand, node_id, links=tuple(links))
        self._holds[task_id] = self._holds_by_node.setdefault(node_id, {})[task_id] = hold
        for link in hold.links:
            self._know_link(link)
        row = self._row.get(node_id)
        if row is not None:
            self._count(hold, row)

    def has_hold(self, task_id: str) -> bool:
        """Whether a task occupies a node."""
        return task_id in self._holds

    def drop(self, task_id: str) -> None:
        """End a task's hold, and what is left of its plan. Idempotent."""
        hold = self._holds.pop(task_id, None)
        if hold is None:
            return
        self._settle(hold)
        of_node = self._holds_by_node[hold.node_id]
        del of_node[task_id]
        if not of_node:
            del self._holds_by_node[hold.node_id]
        if hold.counted:
            self._uncount(hold, self._row[hold.node_id])

    def settle(self, task_id: str) -> None:
        """End a task's plan: its addresses are in the pools' own counts, or will not be needed. Idempotent."""
        hold = self._holds.get(task_id)
        if hold is not None:
            self._settle(hold)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def place(self, demand: Demand, task_ids: Sequence[str], *, masked: Collection[str] = ()) -> Decision:
        """Place a group of equal tasks, the same as one after another; each one placed is held, with its addresses planned.

        Args:
            demand: what each of them asks for.
            task_ids: new to the index.
            masked: nodes that are left out, because a hook refused them.
        """
        assert not any(task_id in self._holds for task_id in task_ids), "a task is placed once"
        ask = self._ask(demand, masked)
        rows = np.empty(len(task_ids), dtype=np.int32)
        pools = np.empty((len(task_ids), ask.n_networks), dtype=np.int32)
        n_placed = packing.spread(self._table, ask, rows, pools)
        placed = self._hold_placed(demand, task_ids, rows[:n_placed].tolist(), pools[:n_placed].tolist())
        unplaced = len(task_ids) - n_placed
        if not unplaced:
            return Decision(placed, 0, [], "")
        counts = self._reasons(demand, ask)[1]
        return Decision(placed, unplaced, counts, reasons.explain(counts))

    def feasible(self, demand: Demand, node_id: str, *, task_id: str = "", findings: Findings | None = None) -> str:
        """Whether a task fits on a node: "" or the sentence why not.

        Args:
            task_id: do not count this task's own hold. If its plan is settled, it has its addresses already and needs none.
            findings: of earlier calls since the last change of the index.
        """
        row = self._row.get(node_id)
        if row is None:
            return reasons.sentence(Reason.UNKNOWN_NODE, node_id, 1)
        own = self._holds.get(task_id)
        if own is None or not own.counted or own.node_id != node_id:
            return self._refusal(demand, row, has_addresses=False)
        findings = findings or Findings()
        key = (id(demand), id(own.demand), row, own.plans, own.links)
        if key not in findings.answers:
            self._uncount(own, row)
            self._pools.settle(own.plans)
            try:
                findings.answers[key] = self._refusal(demand, row, has_addresses=not own.plans, findings=findings)
            finally:
                self._pools.plan(own.plans)
                self._count(own, row)
        return findings.answers[key]

    def explain(self, demand: Demand, *, masked: Collection[str] = ()) -> str:
        """Why no node takes a task with this demand now, such as "no suitable node (…)"; "" when one does."""
        fitting, counts = self._reasons(demand, self._ask(demand, masked))
        return "" if fitting else reasons.explain(counts)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _know_link(self, link: LinkUse) -> None:
        """When a parent becomes contested, the links that sit on it already are counted."""
        if self._links.know(*link):
            for hold in self._holds.values():
                for parent, kind in hold.links if hold.counted else ():
                    if parent == link[0]:
                        self._links.add(parent, kind, self._row[hold.node_id])
            self._columns.touch()

    def _with_pools(self, demand: Demand) -> list[str]:
        """The networks of a demand for which the kernel chooses a pool."""
        return [id_ for id_ in demand.network_ids if id_ in self._networks and self._networks[id_].driver != "host"]

    def _fit(self, demand: Demand) -> Fit:
        networks = tuple((network_id, self._networks.get(network_id)) for network_id in demand.network_ids)
        return self._columns.fit(
            demand.image,
            demand.constraints,
            demand.platforms,
            networks,
            pins=demand.pins,
            forwards_ports=demand.forwards_ports,
        )

    def _ask(self, demand: Demand, masked: Collection[str] = (), *, has_addresses: bool = False) -> Ask:
        """The demand in the kernel's form."""
        fit, capacity = self._fit(demand), self._table.capacity
        if len(self._no_flags) < capacity:
            self._no_flags = np.zeros(capacity, dtype=np.uint8)
        ports_taken = refused = self._no_flags
        if demand.host_ports:
            ports_taken = np.zeros(capacity, dtype=np.uint8)
            for port in demand.host_ports:
                # Ports may also be held on nodes that are not known, or not any more.
                ports_taken[[row for id_ in self.ports.nodes(port) if (row := self._row.get(id_)) is not None]] = 1
        if masked:
            refused = np.zeros(capacity, dtype=np.uint8)
            refused[[self._row[node_id] for node_id in masked if node_id in self._row]] = 1
        begin = fit.network_begin[:1] if has_addresses else fit.network_begin
        available = self._pools.available
        links = (*fit.contested, *self._links.arrays(capacity)) if fit.contested is not None else ()
        return Ask(
            self._table.size,
            *demand.amounts,
            demand.replicas_limit,
            bool(demand.host_ports),
            fit.codes,
            ports_taken,
            refused,
            self._services.column(demand.service_id, capacity),
            fit.pools,
            begin,
            np.full_like(available, _PLENTY) if demand.pins else available,
            np.empty(len(begin), dtype=np.int32),
            *links,
        )

    def _refusal(self, demand: Demand, row: int, *, has_addresses: bool, findings: Findings | None = None) -> str:
        known = {} if findings is None else findings.asks
        ask = known.get(key := (id(demand), has_addresses))
        if ask is None:
            ask = self._ask(demand, has_addresses=has_addresses)
            # What it says of ports and contested parents is true without this one hold alone.
            if not demand.host_ports and not self._links.contested:
                known[key] = ask
        verdict = filters.check_row(self._table, ask, row)
        if verdict == 0:
            return ""
        return reasons.sentence(*self._counted(demand, np.array([row]), np.array([verdict]))[0])

    def _reasons(self, demand: Demand, ask: Ask) -> tuple[int, list[ReasonCount]]:
        """How many nodes fit now, and why the others do not."""
        verdicts = np.empty(self._table.size, dtype=np.uint8)
        fitting = filters.check_all(self._table, ask, verdicts)
        rows = np.flatnonzero((verdicts != 0) & (verdicts != filters.VERDICT_ABSENT))
        return fitting, self._counted(demand, rows, verdicts[rows])

    def _counted(self, demand: Demand, rows: NDArray[np.intp], verdicts: NDArray[np.integer]) -> list[ReasonCount]:
        return count_reasons(self._fit(demand), rows, verdicts, self._pools.names, partial(self._link_conflict, demand))

    def _link_conflict(self, demand: Demand, number: int, row: int) -> str:
        """What is on the parent of the first pool that would serve a row, for the demand's network of this number."""
        fit, network = self._fit(demand), self._networks[self._with_pools(demand)[number]]
        first = next(p for p in fit.pools[row, fit.network_begin[number] :].tolist() if p >= 0)
        pool = next(pool for pool in network.pools if pool.row == first)
        kinds = [kind for kind in self._links.on(pool.parent, row) if kind != pool.kind or kind == KIND_ALONE]
        by = describe_kind(kinds[0], pool.kind) if kinds else "another network of the task"
        return f"{pool.parent} for network {network.name} is used by {by}"

    def _hold_placed(
        self, demand: Demand, task_ids: Sequence[str], rows: list[int], pools: list[list[int]]
    ) -> list[Placed]:
        """Make the holds of tasks whose room the kernel has taken already. Once for each task, so every step counts."""
        nodes, by_node, holds, pool_ids = self._columns.nodes, self._holds_by_node, self._holds, self._pools.ids
        contested, links_in = self._links.contested, self._fit(demand).links
        seen: dict[tuple[int, ...], tuple[Placed, tuple[str, ...], tuple[LinkUse, ...]]] = {}
        placed = []
        for task_id, row, pool_rows in zip(task_ids, rows, pools, strict=False):
            known = seen.get(key := (row, *pool_rows))
            if known is None:
                node = nodes[row]
                assert node is not None
                where = Placed(node.id, tuple(pool_ids[pool] for pool in pool_rows))
                plans = () if demand.pins else where.pool_ids
                links = tuple(of_network[pool] for of_network, pool in zip(links_in, pool_rows, strict=True))
                known = seen[key] = (where, plans, links)
            where, plans, links = known
            node_id, pooled = where.node_id, where.pool_ids
            hold = _Hold(demand, node_id, True, plans, pooled, links)
            if contested:
                self._links.add_all(links, row)
            holds[task_id] = hold
            of_node = by_node.get(node_id)
            if of_node is None:
                of_node = by_node[node_id] = {}
            of_node[task_id] = hold
            placed.append(where)
        self._services.note(demand.service_id, rows)
        if not demand.pins:
            self._pools.note_plans(pool_id for where in placed for pool_id in where.pool_ids)
        for where in placed if demand.host_ports else ():
            self.ports.take(where.node_id, demand.host_ports)
        return placed

    def _count(self, hold: _Hold, row: int) -> None:
        """Put a hold into the table."""
        demand = hold.demand
        hold.counted = True
        self._table.hold(row, *demand.amounts)
        self._services.add(demand.service_id, row)
        if demand.host_ports:
            self.ports.take(hold.node_id, demand.host_ports)
        if self._links.contested:
            self._links.add_all(hold.links, row)

    def _uncount(self, hold: _Hold, row: int) -> None:
        """Take a hold out of the table."""
        demand = hold.demand
        hold.counted = False
        self._table.give_back(row, *demand.amounts)
        self._services.remove(demand.service_id, row)
        if demand.host_ports:
            self.ports.give(hold.node_id, demand.host_ports)
        if self._links.contested:
            self._links.remove_all(hold.links, row)

    def _settle(self, hold: _Hold) -> None:
        self._pools.settle(hold.plans)
        hold.plans = ()


__all__ = ["Decision", "Demand", "Placed", "PlacementIndex", "PoolColumn"]
