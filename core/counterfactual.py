"""What would have to give way for a task to find a place: the smallest changes that place it, each tried before it is told.

Theory of operation
-------------------
Each node lacks a set of what the demand requires (`core.requirements`), and takes the task when that whole set gives way. Of
all sets, those with the fewest members are the smallest relaxations: single ones when some node lacks one thing alone, else
pairs, and so on. What has a size gives way just as far as the nearest node needs. Every proposal is then made, on the live
table, counted by the kernel's own filters and undone; what places nothing is not told. Seldom that is all of them, as when a
slot without its addresses needs others: then sets with one member more are tried.

Between relaxations of as many changes a *cost* decides, in thousandths of what is given up: a resource by the part that is
missing; making a node ready, or anything that is only there or not, by the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters
from beeyard.core.amounts import cpu_text, memory_text
from beeyard.core.demand import COUNT_MAX, Demand
from beeyard.core.kinds import CPU, MEMORY
from beeyard.core.model import Node
from beeyard.core.pool_rows import PoolRows
from beeyard.core.reasons import Reason
from beeyard.core.relaxation import Change, Relaxation, Yield, relaxed
from beeyard.core.requirements import Requirement, Requirements
from beeyard.core.states import Availability, NodeState

# More than a person reads.
RELAXATIONS_MAX = 10
# Sets of requirements that are looked into, those that most nodes lack first; and what is tried of one requirement.
SETS_MAX = 24
OPTIONS_MAX = 4
NODES_NAMED = 3

_WHOLE = 1000
_COST = {
    Yield.ADDRESSES: 250,
    Yield.HOST_PORT: 350,
    Yield.REFUSALS: 400,
    Yield.CONSTRAINT: 500,
    Yield.PLATFORM: 600,
    Yield.LOG_DRIVER: 650,
    Yield.VOLUME_DRIVER: 700,
    Yield.IMAGE: 750,
    Yield.PUBLISHED_PORTS: 800,
    Yield.PINS: 800,
    Yield.VOLUME: 900,
    Yield.NETWORK: 950,
}
_COST_WITHDRAWN, _COST_DOWN = 300, 900  # of making a node ready that its operator withdrew, or that is out of reach

Row = NDArray[np.intp]
Option = tuple[tuple[Change, ...], Row]  # changes, and the rows among those given for which they are enough


class Counterfactuals:
    """Finds relaxations, over the parts of one placement index."""

    def __init__(self, requirements: Requirements, pools: PoolRows) -> None:
        self._requirements = requirements
        self._asking = requirements.asking
        self._table = requirements.table
        self._pools = pools

    def find(self, demand: Demand, masked: Collection[str], n_tasks: int) -> list[Relaxation]:
        """The smallest relaxations, smallest first; none when the task has a place.

        Args:
            masked: nodes that a hook refused.
            n_tasks: how many tasks wait, which all need addresses.
        """
        required = self._requirements.of(demand, masked)
        rows = self._requirements.rows(demand)
        found: dict[tuple[Change, ...], Relaxation] = {}
        size = 0
        for lacked, those in _smallest_sets(required, rows):
            if found and len(lacked) > size:
                break
            size = len(lacked)
            for changes in self._combine(demand, lacked, self._nearest(demand, lacked, those), n_tasks):
                if changes not in found and (relaxation := self.tried(demand, changes, masked)) is not None:
                    found[changes] = relaxation
        return sorted(found.values(), key=lambda relaxation: relaxation.order)[:RELAXATIONS_MAX]

    def tried(self, demand: Demand, changes: tuple[Change, ...], masked: Collection[str] = ()) -> Relaxation | None:
        """Make changes, ask the kernel, and undo them: the relaxation that they are, None when they place nothing."""
        gives = relaxed(demand, changes)
        left = () if any(change.what is Yield.REFUSALS for change in changes) else masked
        with ExitStack() as undo:
            for change in changes:
                self._make(change, undo)
            verdicts = np.empty(self._table.size, dtype=np.uint8)
            filters.check_all(self._table, self._asking.ask(gives, left), verdicts)
        fitting = np.flatnonzero(verdicts == 0)
        if not len(fitting):
            return None
        ids = tuple(self._asking.columns.ids[row] for row in fitting[:NODES_NAMED].tolist())
        return Relaxation(changes, gives, len(fitting), ids)

    def _make(self, change: Change, undo: ExitStack) -> None:
        """Make a change of the cluster; `undo` takes back what was done."""
        if change.what is Yield.NODE:
            row = self._requirements.holds.rows[change.name]
            if not self._table.row(row)[3]:
                self._table.set_ready(row, True)
                undo.callback(self._table.set_ready, row, False)
        elif change.what is Yield.ADDRESSES:
            self._pools.give((change.name,), change.amount)
            undo.callback(self._pools.give, (change.name,), -change.amount)

    def _nearest(self, demand: Demand, lacked: Sequence[Requirement], rows: Row) -> Row:
        """Where several resources are missing at once: the row that is missing the least of them all together."""
        some = [one for one in lacked if one.what in _LESS]
        if len(some) < 2:
            return rows
        short = [(one.amount - self._enough(one, rows)) * (_WHOLE / one.amount) for one in some]
        nearest: Row = rows[[int(np.argmin(np.sum(short, axis=0)))]]
        return nearest

    def _combine(
        self, demand: Demand, lacked: Sequence[Requirement], rows: Row, n_tasks: int
    ) -> Iterator[tuple[Change, ...]]:
        """Changes that make up for everything lacked on some of the rows."""
        if not lacked:
            yield ()
            return
        for changes, enough in self._options(demand, lacked[0], rows, n_tasks)[:OPTIONS_MAX]:
            for rest in self._combine(demand, lacked[1:], enough, n_tasks):
                yield (*changes, *rest)

    def _options(self, demand: Demand, lacked: Requirement, rows: Row, n_tasks: int) -> list[Option]:
        """The ways in which one requirement can give way for some of the rows that lack it."""
        match lacked.what:
            case Yield.NODE:
                return self._nodes(rows)
            case Yield.CPU | Yield.MEMORY | Yield.GENERIC:
                return self._less(demand, lacked, rows)
            case Yield.MAX_REPLICAS:
                return self._max_replicas(demand, rows)
            case Yield.ADDRESSES:
                return self._addresses(demand, rows, n_tasks)
            case Yield.PLATFORM:
                return self._platforms(rows)
            case Yield.IMAGE:
                return self._images(demand, rows)
        options: list[Option] = [((Change(lacked.what, self._words(lacked), _COST[lacked.what], lacked.name),), rows)]
        return [*options, *self._without_networks(demand, rows)] if lacked.what is Yield.PINS else options

    def _less(self, demand: Demand, lacked: Requirement, rows: Row) -> list[Option]:
        """As much less of a resource as the nearest row needs."""
        enough = self._enough(lacked, rows)
        most = int(enough.max())
        field = _ASKED.get(lacked.what)
        asked: int = lacked.amount if field is None else getattr(demand, field)
        cost = max(1, (lacked.amount - most) * _WHOLE // lacked.amount)
        text = _LESS[lacked.what](asked - most, lacked.name)
        return [((Change(lacked.what, text, cost, lacked.name, asked - most),), rows[enough == most])]

    def _enough(self, lacked: Requirement, rows: Row) -> NDArray[np.int64]:
        """How much of a resource could be asked for on each row. Who asks for nothing fits an overfull row too."""
        kind = {Yield.CPU: CPU, Yield.MEMORY: MEMORY}.get(lacked.what)
        column = self._requirements.free_of(lacked.name) if kind is None else self._table.free_of(kind)
        enough: NDArray[np.int64] = np.maximum(column[rows], 0)
        return enough

    def _node(self, row: int) -> Node:
        node = self._asking.columns.nodes[row]
        assert node is not None, f"row {row} is a node's"
        return node

    def _nodes(self, rows: Row) -> list[Option]:
        """Making one node ready: the one withdrawn by its operator whose name comes first, and one that is out of reach."""
        by_state: dict[str, list[tuple[str, int]]] = {}
        for row in rows.tolist():
            node = self._node(row)
            name = node.spec.name or node.description.hostname or node.id
            by_state.setdefault(_state_of(node), []).append((name, row))
        options: list[Option] = []
        for state, those in sorted(by_state.items()):
            name, row = min(those)
            others = f" (or {len(those) - 1} more)" if len(those) > 1 else ""
            cost = _COST_WITHDRAWN if state in _WITHDRAWN.values() else _COST_DOWN
            change = Change(
                Yield.NODE, f"{_TEXT_NODE.format(name=name, state=state)}{others}", cost, self._node(row).id
            )
            options.append(((change,), np.array([row], dtype=np.intp)))
        return options

    def _max_replicas(self, demand: Demand, rows: Row) -> list[Option]:
        column = self._requirements.holds.services.column(demand.service_id, self._table.capacity)[rows]
        limit = int(column.min()) + 1
        if limit > COUNT_MAX:
            return []
        text = f"{limit} instead of {demand.max_replicas_per_node} tasks of the service on a node"
        cost = min(_WHOLE, (limit - demand.replicas_limit) * _WHOLE // demand.replicas_limit)
        return [((Change(Yield.MAX_REPLICAS, text, cost, "", limit),), rows[column < limit])]

    def _platforms(self, rows: Row) -> list[Option]:
        found: dict[str, list[int]] = {}
        for row in rows.tolist():
            platform = self._node(row).description.platform
            # What did not say what it is takes only tasks that do not ask.
            is_known = platform.os or platform.architecture
            found.setdefault(f"{platform.os}/{platform.architecture}" if is_known else "", []).append(row)
        most = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        cost = _COST[Yield.PLATFORM]
        return [
            (
                (Change(Yield.PLATFORM, f"platform {name} too" if name else "any platform", cost, name),),
                np.array(those, dtype=np.intp),
            )
            for name, those in most
        ]

    def _images(self, demand: Demand, rows: Row) -> list[Option]:
        found: dict[str, list[int]] = {}
        for row in rows.tolist():
            for image in self._node(row).description.images:
                found.setdefault(image, []).append(row)
        most = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        cost = _COST[Yield.IMAGE]
        return [
            (
                (Change(Yield.IMAGE, f"image {name} instead of {demand.image}", cost, name),),
                np.array(those, dtype=np.intp),
            )
            for name, those in most
        ]

    def _addresses(self, demand: Demand, rows: Row, n_tasks: int) -> list[Option]:
        """More addresses in the pools that serve rows; or one network less."""
        fit = self._asking.fit(demand)
        served, number = np.unique(fit.pools[rows], axis=0, return_inverse=True)
        begin = fit.network_begin.tolist()
        options: list[Option] = []
        for which in np.argsort(-np.bincount(number.ravel()), kind="stable")[: OPTIONS_MAX - 1].tolist():
            missing = self._missing_addresses(served[which].tolist(), begin, n_tasks)
            changes = [
                Change(Yield.ADDRESSES, self._text_more(pool, n), _COST[Yield.ADDRESSES], self._pools.ids[pool], n)
                for pool, n in missing.items()
            ]
            options.append((tuple(changes), rows[number.ravel() == which]))
        return [*options, *self._without_networks(demand, rows)]

    def _without_networks(self, demand: Demand, rows: Row) -> list[Option]:
        cost = _COST[Yield.NETWORK]
        ids = dict.fromkeys(self._asking.with_pools(demand))
        return [((Change(Yield.NETWORK, self._text_without(id_), cost, id_),), rows) for id_ in ids]

    def _missing_addresses(self, pools: list[int], begin: list[int], n_tasks: int) -> dict[int, int]:
        """By pool: addresses that tasks lack who draw as the kernel does, from the first pool of a network that has some."""
        left: dict[int, int] = {}
        missing: dict[int, int] = {}
        for _ in range(n_tasks):
            for network in range(len(begin) - 1):
                serving = [pool for pool in pools[begin[network] : begin[network + 1]] if pool >= 0]
                for pool in serving:
                    left.setdefault(pool, int(self._pools.available[pool]))
                some = next((pool for pool in serving if left[pool] > 0), None)
                if some is None and serving:
                    some = serving[0]
                    missing[some] = missing.get(some, 0) + 1 - left[some]
                    left[some] = 1
                if some is not None:
                    left[some] -= 1
        return missing

    def _text_more(self, pool: int, n: int) -> str:
        return f"{n} {'address' if n == 1 else 'addresses'} more in {self._pools.names[pool]}"

    def _text_without(self, network_id: str) -> str:
        network = self._asking.networks.get(network_id)
        return f"without network {network_id if network is None else network.name}"

    def _words(self, lacked: Requirement) -> str:
        """What gives way, for a person."""
        if lacked.what is Yield.NETWORK:
            because = f" ({_TEXT_NETWORK[lacked.reason]})" if lacked.reason in _TEXT_NETWORK else ""
            return self._text_without(lacked.name) + because
        return _TEXT[lacked.what].format(name=lacked.name)


_ASKED = {Yield.CPU: "cpu_nano", Yield.MEMORY: "memory_bytes"}
_WITHDRAWN = {Availability.DRAIN: "drained", Availability.PAUSE: "paused"}
_TEXT_NODE = "node {name} ready, which is {state}"
_TEXT = {
    Yield.HOST_PORT: "another port than {name}",
    Yield.REFUSALS: "without the refusals of allocation hooks",
    Yield.CONSTRAINT: "without constraint {name}",
    Yield.LOG_DRIVER: "without log driver {name}",
    Yield.VOLUME_DRIVER: "without volume driver {name}",
    Yield.PUBLISHED_PORTS: "without published ports",
    Yield.PINS: "without the slot's addresses {name}",
    Yield.VOLUME: "without volume {name}",
}
_TEXT_NETWORK = {
    Reason.UNKNOWN_NETWORK: "it is not known",
    Reason.NO_POOL: "it has no pool there",
    Reason.PARENT_MISSING: "its parent interface is missing there",
    Reason.PARENT_TAKEN: "its parent interface is used otherwise there",
    Reason.PLUGIN: "its driver is missing there",
}


# A demand that is less by what is said fits: memory is rounded up.
_LESS: dict[Yield, Callable[[int, str], str]] = {
    Yield.CPU: lambda n, _: f"{cpu_text(n)} CPU less",
    Yield.MEMORY: lambda n, _: f"{memory_text(n, up=True)} memory less",
    Yield.GENERIC: lambda n, name: f"{n} {name} less",
}


def _state_of(node: Node) -> str:
    """Why a node takes no tasks: what its operator said of one that is there, else what is known of it."""
    is_there = node.status.state is NodeState.READY
    return _WITHDRAWN.get(node.availability, str(node.availability)) if is_there else str(node.status.state)


def _smallest_sets(required: Sequence[Requirement], rows: Row) -> Iterator[tuple[list[Requirement], Row]]:
    """The sets that rows lack: small ones first, then those that most rows lack; none when a row lacks nothing."""
    lacking = np.array([one.lacking[rows] for one in required], dtype=bool).reshape(len(required), len(rows)).T
    sizes = lacking.sum(axis=1)
    for size in np.unique(sizes).tolist():
        if size == 0:
            return
        among = np.flatnonzero(sizes == size)
        sets, number, counts = np.unique(lacking[among], axis=0, return_inverse=True, return_counts=True)
        for which in np.argsort(-counts, kind="stable")[:SETS_MAX].tolist():
            members = [required[index] for index in np.flatnonzero(sets[which]).tolist()]
            yield members, rows[among[number.ravel() == which]]


__all__ = ["RELAXATIONS_MAX", "Counterfactuals"]
