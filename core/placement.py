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
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import batch, filters, reasons, turns
from beeyard.core.asking import Asking
from beeyard.core.batch import TASKS_MIN, PackingReport
from beeyard.core.best_fit import place_at
from beeyard.core.bin_packing import PACKED_CLASSES_MAX
from beeyard.core.demand import Decision, Demand, Findings, Placed, PoolColumn, ReasonCount
from beeyard.core.explain import Explainer
from beeyard.core.failures import FailureMemory
from beeyard.core.filters import Ask
from beeyard.core.holds import Holds
from beeyard.core.kinds import Kinds
from beeyard.core.model import Node
from beeyard.core.node_table import NodeTable
from beeyard.core.parent_links import LinkUse, ParentLinks
from beeyard.core.pool_rows import PoolRows
from beeyard.core.reasons import Reason
from beeyard.core.requirements import Requirements
from beeyard.core.resources import Room
from beeyard.core.row_batch import RowBatch
from beeyard.core.states import Availability, NodeState
from beeyard.core.strategies import PACK, SPREAD, Strategies
from beeyard.core.volume import VolumeUse
from beeyard.core.whatif import WhatIf


class PlacementIndex:
    """Nodes, pools and holds. Deterministic: the same calls give the same placements; `seed` varies who wins a tie."""

    def __init__(self, seed: str = "", strategy: str = SPREAD) -> None:
        """
        Args:
            strategy: by which tasks are placed that name none, see `core.strategies`.

        Raises:
            ValueError: there is no such strategy.
        """
        self._seed = seed.encode()
        self._table = NodeTable()
        self._kinds = Kinds(self._table)
        self._links = ParentLinks()
        self._pools = PoolRows()
        self._holds = Holds(self._table, self._kinds, self._pools, self._links)
        self._asking = Asking(self._table, self._kinds, self._holds, self._pools, self._links)
        self.ports = self._holds.ports
        self.volumes = self._asking.volumes
        self._failures = FailureMemory()
        self._strategies = Strategies(self._table, self._kinds, strategy)

    def copy(self) -> PlacementIndex:
        """An index of its own to try things on. It is good until this one changes."""
        twin = PlacementIndex.__new__(PlacementIndex)
        twin.__dict__.update(self.__dict__)
        twin._table = self._table.copy()
        twin._kinds = self._kinds.copy(twin._table)
        twin._links, twin._pools = self._links.copy(), self._pools.copy()
        twin._holds = self._holds.copy(twin._table, twin._kinds, twin._pools, twin._links)
        twin._asking = self._asking.copy(twin._table, twin._kinds, twin._holds, twin._pools, twin._links)
        twin.ports, twin.volumes = twin._holds.ports, twin._asking.volumes
        twin._failures = self._failures.copy()
        twin._strategies = self._strategies.copy(twin._table, twin._kinds)
        return twin

    # --- nodes -------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or change a node. Tasks that were already held for its id count from now on."""
        self._holds.count_kinds(self._kinds.know(node))
        row = self._holds.rows.get(node.id)
        is_new = row is None
        if row is None:
            digest = hashlib.blake2b(node.id.encode(), digest_size=8, key=self._seed).digest()
            row = self._holds.rows[node.id] = self._table.add_row(int.from_bytes(digest, "little"))
        for kind, total in enumerate(self._kinds.totals(node)):
            self._table.set_total(row, kind, total)
        ready = node.status.state == NodeState.READY and node.availability == Availability.ACTIVE
        self._table.set_ready(row, ready)
        self._asking.columns.set(row, node)
        self.ports.set_listening(node.id, node.description.listening)
        for hold in self._holds.on(node.id) if is_new else ():
            self._holds.count(hold, row)

    def remove_node(self, node_id: str) -> None:
        """Forget a node. Its tasks' holds stay, and count again when the node comes back. Idempotent."""
        row = self._holds.rows.get(node_id)
        if row is None:
            return
        for hold in self._holds.on(node_id):
            self._holds.uncount(hold, row)
        del self._holds.rows[node_id]
        self.ports.set_listening(node_id, ())
        self._asking.columns.remove(row)
        self._table.remove_row(row)

    @property
    def kind_names(self) -> list[str]:
        """ "cpu", "memory" and "generic/KIND" of the generic kinds, in the order in which a `PackingReport` has them."""
        return ["cpu", "memory", *(f"generic/{kind}" for kind in self._kinds.names)]

    def room(self, node_id: str) -> Room | None:
        """What a node has for tasks and what of it is free; None when it is not known."""
        row = self._holds.rows.get(node_id)
        return None if row is None else self._kinds.room(row)

    # --- networks ----------------------------------------------------------------------------------------------------

    def set_network(self, network_id: str, driver: str, pools: Sequence[PoolColumn], *, name: str = "") -> None:
        """Add or change a network. Pools are used in order of their names. `name` is for explanations."""
        self._asking.set_network(network_id, driver, pools, name)

    def remove_network(self, network_id: str) -> None:
        """Forget a network: demands for it fit nowhere. Idempotent."""
        self._asking.remove_network(network_id)

    def set_pool_free(self, pool_id: str, free: int) -> None:
        """How many addresses of a pool may be handed out now, cooling ones excluded. Unknown pools are ignored."""
        self._pools.set_free(pool_id, free)

    def pool_for(self, network_id: str, node_id: str) -> list[str]:
        """Ids of the pools of a network that serve a node and whose parent it has, in order of their names."""
        row = self._holds.rows.get(node_id)
        if row is None or network_id not in self._asking.networks:
            return []
        return self._asking.serving(network_id, row)

    # --- holds -------------------------------------------------------------------------------------------------------

    def pools_for(self, task_id: str, network_id: str, node_id: str) -> list[str]:
        """Ids of the pools that may give a placed task its address: the chosen one, then others with the same parent.

        A task that was not placed here, or elsewhere, gets those of `pool_for`.
        """
        serving = self.pool_for(network_id, node_id)
        hold, network = self._holds.by_task.get(task_id), self._asking.networks.get(network_id)
        if hold is None or hold.node_id != node_id or not hold.pools or network is None:
            return serving
        chosen = dict(zip(self._asking.with_pools(hold.demand), hold.pools, strict=False)).get(network_id, "")
        if chosen not in serving or hold.demand.pins or len(serving) == 1:
            return [chosen] if chosen in serving else []
        links = {id_: network.link_in(self._pools.row(id_)) for id_ in serving}
        return [chosen, *(id_ for id_ in serving if id_ != chosen and links[id_] == links[chosen])]

    def hold(
        self,
        task_id: str,
        demand: Demand,
        node_id: str,
        *,
        links: Iterable[LinkUse] = (),
        volumes: Sequence[VolumeUse] = (),
    ) -> None:
        """Occupy a node for a task that is there already. Idempotent; the first call for a task counts.

        Args:
            links: the task's links on the node's parents.
            volumes: the cluster volumes that it has.
        """
        if task_id in self._holds.by_task:
            return
        links = tuple(links)
        for link in links:
            self._asking.know_link(link)
        self._holds.add(task_id, demand, node_id, links)
        self.volumes.reserve(task_id, node_id, volumes)

    def has_hold(self, task_id: str) -> bool:
        """Whether a task occupies a node."""
        return task_id in self._holds.by_task

    def drop(self, task_id: str) -> None:
        """End a task's hold, and what is left of its plan. Idempotent."""
        self._holds.drop(task_id)
        self.volumes.release(task_id)

    def settle(self, task_id: str) -> None:
        """End a task's plan: its addresses are in the pools' own counts, or will not be needed. Idempotent."""
        hold = self._holds.by_task.get(task_id)
        if hold is not None:
            self._holds.settle(hold)

    def note_failure(self, service_id: str, spec_version: int, node_id: str, now_s: float) -> None:
        """A task failed on a node, or was refused by it: after a few, its service's next tasks go elsewhere if they can.

        Args:
            now_s: of the clock that `place` is given.
        """
        self._failures.note(service_id, spec_version, node_id, now_s)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def place(
        self, demand: Demand, task_ids: Sequence[str], *, masked: Collection[str] = (), now_s: float = 0.0
    ) -> Decision:
        """Place a group of equal tasks, the same as one after another; each one placed is held, with its addresses planned.

        Args:
            demand: what each of them asks for.
            task_ids: new to the index.
            masked: nodes that are left out, because a hook refused them.
            now_s: of the clock of `note_failure`.
        """
        assert self._holds.by_task.keys().isdisjoint(task_ids), "a task is placed once"
        placed = self._place(demand, task_ids, masked, now_s)
        unplaced = len(task_ids) - len(placed)
        if not unplaced:
            return Decision(placed, 0, [], "")
        counts = self._why(demand, masked)[1]
        return Decision(placed, unplaced, counts, reasons.of_demand(demand.node_id, counts))

    def _place(self, demand: Demand, task_ids: Sequence[str], masked: Collection[str], now_s: float) -> list[Placed]:
        faulty = self._failures.faulty(demand.service_id, demand.spec_version, now_s) if self._failures else {}
        choose = partial(self._choose, demand, faulty)
        if demand.volumes:
            choose = partial(turns.with_volumes, self.volumes, demand, spread=choose)
        return choose(task_ids, masked)

    def _choose(
        self, demand: Demand, faulty: Mapping[str, int], task_ids: Sequence[str], masked: Collection[str]
    ) -> list[Placed]:
        """Place the first of some tasks, as many as fit, in one pass of the kernel."""
        ask = self._asking.ask(demand, masked, faulty=faulty)
        rows = np.empty(len(task_ids), dtype=np.int32)
        pools = np.empty((len(task_ids), ask.n_networks), dtype=np.int32)
        n_placed = self._strategies.place(demand, ask, rows, pools)
        return self._hold_placed(demand, task_ids, rows[:n_placed], pools[:n_placed])

    def _hold_placed(
        self, demand: Demand, task_ids: Sequence[str], rows: NDArray[np.int32], pools: NDArray[np.int32]
    ) -> list[Placed]:
        """Make the holds of the first of some tasks, whose room the kernel has taken."""
        node_ids, links_in = self._asking.columns.ids, self._asking.fit(demand).links
        n_before = len(self._holds.by_task)
        placed = self._holds.add_placed(demand, task_ids, rows.tolist(), pools.tolist(), node_ids, links_in)
        assert len(self._holds.by_task) == n_before + len(placed), "a task is given once"
        return placed

    def place_many(
        self, groups: Sequence[tuple[Demand, Sequence[str]]], *, now_s: float = 0.0, rounds: int = 0
    ) -> tuple[list[Decision], PackingReport | None]:
        """Place many groups: those to be packed that share nothing but room bin by bin, if they are large, then the others.

        Args:
            groups: demands with ids of tasks, as `place` takes them.
            now_s: of the clock of `note_failure`.
            rounds: how often to try to pack better, about 10,000 a second; for who has time left.

        Returns:
            A decision for each group, and how good the packing is; None when nothing was packed bin by bin.
        """
        packed = [number for number, (demand, _) in enumerate(groups) if self.packs_together(demand, now_s)]
        packed = packed[:PACKED_CLASSES_MAX]
        placed: dict[int, list[Placed]] = {}
        report = None
        if sum(len(groups[number][1]) for number in packed) >= TASKS_MIN:
            placed, report = self._pack({number: groups[number] for number in packed}, rounds)
        decisions = []
        for number, (demand, task_ids) in enumerate(groups):
            done = placed.get(number, [])
            rest = self.place(demand, task_ids[len(done) :], now_s=now_s)
            decisions.append(msgspec.structs.replace(rest, placed=[*done, *rest.placed]))
        return decisions, report

    def packs_together(self, demand: Demand, now_s: float) -> bool:
        """Whether tasks are to be packed, and where one fits depends on where others of the demand went by room alone."""
        if self._strategies.of(demand) != PACK or demand.host_ports or demand.volumes or demand.max_replicas_per_node:
            return False
        faulty = self._failures.faulty(demand.service_id, demand.spec_version, now_s) if self._failures else {}
        return not faulty and not self._asking.with_pools(demand)

    def _pack(
        self, groups: Mapping[int, tuple[Demand, Sequence[str]]], rounds: int
    ) -> tuple[dict[int, list[Placed]], PackingReport]:
        """Place groups bin by bin, as many of their first tasks as find room so."""
        kinds = range(self._table.n_kinds)
        asked = [dict(self._kinds.asked(demand).pairs()) for demand, _ in groups.values()]
        wanted, report = batch.pack(
            self._table,
            [
                ([amounts.get(kind, 0) for kind in kinds], len(task_ids), self._asking.fit(demand).codes)
                for amounts, (demand, task_ids) in zip(asked, groups.values(), strict=True)
            ],
            rounds,
        )
        placed = {}
        for (number, (demand, task_ids)), rows_wanted in zip(groups.items(), wanted, strict=True):
            ask, rows = self._asking.ask(demand), np.empty(len(task_ids), dtype=np.int32)
            pools = np.empty((len(task_ids), 0), dtype=np.int32)
            n_placed = place_at(self._table, ask, rows_wanted, rows, pools)
            placed[number] = self._hold_placed(demand, task_ids, rows[:n_placed], pools[:n_placed])
        return placed, report

    def batch(self, demands: Sequence[Demand]) -> RowBatch:
        """These kinds of demands, to place many tasks of them in arrays; see there."""
        return RowBatch(self._table, self._asking, demands)

    def feasible(self, demand: Demand, node_id: str, *, task_id: str = "", findings: Findings | None = None) -> str:
        """Whether a task fits on a node: "" or the sentence why not.

        Args:
            task_id: do not count this task's own hold, but count on the very volumes that it has. If its plan is settled, it
                has its addresses already and needs none.
            findings: of earlier calls since the last change of the index.
        """
        row = self._holds.rows.get(node_id)
        if row is None:
            return reasons.sentence(Reason.UNKNOWN_NODE, node_id, 1)
        own = self._holds.by_task.get(task_id)
        if own is None or not own.counted or own.node_id != node_id:
            return self._refusal(demand, row, has_addresses=False)
        # Of a task with volumes it is asked whether it can have those, which says nothing of another task.
        findings = Findings() if findings is None or self.volumes.uses_of(task_id) else findings
        key = (id(demand), id(own.demand), row, own.plans, own.links)
        if key not in findings.answers:
            self._holds.uncount(own, row)
            self._pools.settle(own.plans)
            uses = self.volumes.release(task_id)
            asked = demand.for_these(uses)
            try:
                findings.answers[key] = self._refusal(asked, row, has_addresses=not own.plans, findings=findings)
            finally:
                self.volumes.reserve(task_id, node_id, uses)
                self._pools.plan(own.plans)
                self._holds.count(own, row)
        return findings.answers[key]

    def explain(self, demand: Demand, *, masked: Collection[str] = ()) -> str:
        """Why no node takes a task with this demand now, such as "no suitable node (…)"; "" when one does.

        Of a demand for one node alone, why that one does not, such as "insufficient resources on 1 node".
        """
        fitting, counts = self._why(demand, masked)
        return "" if fitting else reasons.of_demand(demand.node_id, counts)

    @property
    def explainer(self) -> Explainer:
        """Explains demands in full."""
        requirements = Requirements(self._table, self._kinds, self._holds, self._asking)
        return Explainer(requirements, self._pools, self._why)

    def what_if(self, now_s: float = 0.0) -> WhatIf:
        """Answers what would happen if; now_s as for `place`."""
        place = partial(self.place, now_s=now_s)
        return WhatIf(self._table, self._holds, self._pools, self.volumes, place, self.drop, self._trying)

    def _trying(self) -> AbstractContextManager[None]:
        """Whatever is done within is undone within."""
        return self._strategies.unlearned()

    def _why(self, demand: Demand, masked: Collection[str]) -> tuple[int, list[ReasonCount]]:
        """How many of the nodes it may go to fit now, and why the others do not."""
        if not demand.node_id:
            return self._asking.reasons(demand, self._asking.ask(demand, masked))
        row = self._holds.rows.get(demand.node_id)
        if row is None:
            return 0, [(Reason.UNKNOWN_NODE, demand.node_id, 1)]
        counts = self._refusals(demand, self._asking.ask(demand, masked), row)
        return int(not counts), counts

    def _refusal(self, demand: Demand, row: int, *, has_addresses: bool, findings: Findings | None = None) -> str:
        known = {} if findings is None else findings.asks
        ask = known.get(key := (id(demand), has_addresses))
        if ask is None:
            ask = self._asking.ask(demand, has_addresses=has_addresses)
            # What it says of ports and contested parents is true without this one hold alone, and the column of tasks that
            # a limit looks at is the service's for a while only.
            if not (demand.host_ports or demand.max_replicas_per_node or self._links.contested):
                known[key] = ask
        counts = self._refusals(demand, ask, row)
        return reasons.sentence(*counts[0]) if counts else ""

    def _refusals(self, demand: Demand, ask: Ask, row: int) -> list[ReasonCount]:
        """Why one node does not fit; empty when it does."""
        verdict = filters.check_row(self._table, ask, row)
        return self._asking.counted(demand, np.array([row]), np.array([verdict])) if verdict else []


__all__ = ["Decision", "Demand", "Placed", "PlacementIndex", "PoolColumn"]
