"""A placement index that writes down what it is told and what it decides, in the form of `core.decision_log`.

What is written for a call comes before the call is carried out, so the last message of a log names what went wrong; of a
decision it comes after. Calls that the index makes to itself are not written. `RowBatch` is not: it keeps books of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from beeyard.core import decision_log as log
from beeyard.core.batch import PackingReport
from beeyard.core.decision_snapshot import snapshot
from beeyard.core.demand import Decision, Demand, Findings, Placed, PoolColumn
from beeyard.core.host_ports import PortTable
from beeyard.core.model import HostPort, Node
from beeyard.core.parent_links import LinkUse
from beeyard.core.placement import PlacementIndex
from beeyard.core.strategies import SPREAD
from beeyard.core.volume import Volume, VolumeUse
from beeyard.core.volumes import VolumeTable
from beeyard.core.whatif import Aftermath, PoolsOf, WhatIf

T = TypeVar("T")


class Notes:
    """What is written, and whether the index is at work by itself just now."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write
        self.depth = 0

    def note(self, entry: log.AnyEntry) -> None:
        """Write a message, unless it is about what the index does by itself."""
        if not self.depth:
            self.write(log.frame(entry))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """While the index is at work."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


class RecordedIndex(PlacementIndex):
    """The same decisions as `PlacementIndex`. `write` gets the bytes of a log, piece by piece, and must not call back."""

    def __init__(self, write: Callable[[bytes], None], seed: str = "", strategy: str = SPREAD) -> None:
        """Raises ValueError as `PlacementIndex` does."""
        super().__init__(seed, strategy)
        self._begin = log.Begin(seed, strategy)
        self._notes = Notes(write)
        self._numbers: dict[Demand, int] = {}
        self._networks: dict[str, log.SetNetwork] = {}
        self._free: dict[str, int] = {}
        self._holes: list[int] = []  # rows of removed nodes, that which is used next at the end
        # Both are empty yet, so that nobody knows the others.
        self.ports = self._holds.ports = RecordedPorts(self._notes)
        self.volumes = self._asking.volumes = RecordedVolumes(self._notes, self.volumes)
        self.begin_log()

    def begin_log(self) -> None:
        """Begin a new log, whole in itself: what is in the index now comes first. Between calls alone."""
        self._numbers.clear()
        self._notes.write(log.MAGIC + log.frame(self._begin))
        for entry in snapshot(self, self._networks.values(), self._free, self._holes, self._number):
            self._notes.note(entry)

    def _number(self, demand: Demand) -> int:
        """The number of a demand in this log."""
        number = self._numbers.get(demand)
        if number is None:
            number = self._numbers[demand] = len(self._numbers)
            self._notes.note(log.NewDemand(number, demand))
        return number

    # --- what it is told ---------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        self._notes.note(log.SetNode(node))
        if node.id not in self._holds.rows and self._holes:
            self._holes.pop()
        with self._notes.silent():
            super().set_node(node)

    def remove_node(self, node_id: str) -> None:
        self._notes.note(log.RemoveNode(node_id))
        if node_id in self._holds.rows:
            self._holes.append(self._holds.rows[node_id])
        with self._notes.silent():
            super().remove_node(node_id)

    def set_network(self, network_id: str, driver: str, pools: Sequence[PoolColumn], *, name: str = "") -> None:
        entry = log.SetNetwork(network_id, driver, tuple(pools), name)
        self._notes.note(entry)
        self._networks.pop(network_id, None)
        self._networks[network_id] = entry  # last in the dict, as it was told last
        self._free.update({pool.pool_id: pool.free for pool in pools})
        with self._notes.silent():
            super().set_network(network_id, driver, pools, name=name)

    def remove_network(self, network_id: str) -> None:
        self._notes.note(log.RemoveNetwork(network_id))
        self._networks.pop(network_id, None)
        with self._notes.silent():
            super().remove_network(network_id)

    def set_pool_free(self, pool_id: str, free: int) -> None:
        if self._free.get(pool_id) != free:  # said again and again
            self._notes.note(log.SetPoolFree(pool_id, free))
            self._free[pool_id] = free
        super().set_pool_free(pool_id, free)

    def hold(
        self,
        task_id: str,
        demand: Demand,
        node_id: str,
        *,
        links: Iterable[LinkUse] = (),
        volumes: Sequence[VolumeUse] = (),
    ) -> None:
        links = tuple(links)
        self._notes.note(log.Hold(task_id, self._number(demand), node_id, links, tuple(volumes)))
        with self._notes.silent():
            super().hold(task_id, demand, node_id, links=links, volumes=volumes)

    def drop(self, task_id: str) -> None:
        self._notes.note(log.Drop(task_id))
        with self._notes.silent():
            super().drop(task_id)

    def settle(self, task_id: str) -> None:
        self._notes.note(log.Settle(task_id))
        super().settle(task_id)

    def note_failure(self, service_id: str, spec_version: int, node_id: str, now_s: float) -> None:
        self._notes.note(log.Failure(service_id, spec_version, node_id, now_s))
        super().note_failure(service_id, spec_version, node_id, now_s)

    # --- what it decides ---------------------------------------------------------------------------------------------

    def place(
        self, demand: Demand, task_ids: Sequence[str], *, masked: Collection[str] = (), now_s: float = 0.0
    ) -> Decision:
        with self._notes.silent():
            decision = super().place(demand, task_ids, masked=masked, now_s=now_s)
        if not self._notes.depth:
            number, choices = self._number(demand), choices_of(decision.placed)
            self._notes.note(log.Place(number, tuple(task_ids), tuple(masked), now_s, choices))
        return decision

    def place_many(
        self, groups: Sequence[tuple[Demand, Sequence[str]]], *, now_s: float = 0.0, rounds: int = 0
    ) -> tuple[list[Decision], PackingReport | None]:
        with self._notes.silent():
            decisions, report = super().place_many(groups, now_s=now_s, rounds=rounds)
        noted = tuple((self._number(demand), tuple(task_ids)) for demand, task_ids in groups)
        choices = tuple(choices_of(decision.placed) for decision in decisions)
        self._notes.note(log.PlaceMany(noted, now_s, rounds, choices))
        return decisions, report

    def feasible(self, demand: Demand, node_id: str, *, task_id: str = "", findings: Findings | None = None) -> str:
        with self._notes.silent():
            return super().feasible(demand, node_id, task_id=task_id, findings=findings)

    def what_if(self, now_s: float = 0.0) -> WhatIf:
        return RecordedWhatIf(self._notes, super().what_if(now_s))

    @contextmanager
    def _trying(self) -> Iterator[None]:
        with self._notes.silent(), super()._trying():
            yield


class RecordedWhatIf(WhatIf):
    """The same; what is only tried is not written down."""

    def __init__(self, notes: Notes, inner: WhatIf) -> None:
        self.__dict__.update(inner.__dict__)
        self._notes = notes

    def service_and(self, demand: Demand, n_tasks: int, ask: Callable[[Decision], T]) -> T:
        with self._notes.silent():
            return super().service_and(demand, n_tasks, ask)

    def lost(self, node_ids: Sequence[str], *, stay: Mapping[str, str] | None = None) -> Aftermath:
        with self._notes.silent():
            return super().lost(node_ids, stay=stay)

    def drained(
        self, node_ids: Sequence[str], *, stay: Mapping[str, str] | None = None, pools_of: PoolsOf | None = None
    ) -> Aftermath:
        with self._notes.silent():
            return super().drained(node_ids, stay=stay, pools_of=pools_of)


class RecordedPorts(PortTable):
    """The same, written down."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def take(self, node_id: str, ports: Iterable[HostPort]) -> None:
        ports = tuple(ports)
        if ports:
            self._notes.note(log.TakePorts(node_id, ports))
        super().take(node_id, ports)

    def give(self, node_id: str, ports: Iterable[HostPort]) -> None:
        ports = tuple(ports)
        if ports:
            self._notes.note(log.GivePorts(node_id, ports))
        super().give(node_id, ports)


class RecordedVolumes(VolumeTable):
    """The same, written down."""

    def __init__(self, notes: Notes, empty: VolumeTable) -> None:
        super().__init__(empty._columns, empty._row_of)
        self._notes = notes

    def set(self, volume: Volume) -> None:
        self._notes.note(log.SetVolume(volume))
        with self._notes.silent():
            super().set(volume)

    def remove(self, volume_id: str) -> None:
        if volume_id in self._volumes:
            self._notes.note(log.RemoveVolume(volume_id))
        super().remove(volume_id)

    def reserve(self, task_id: str, node_id: str, uses: Sequence[VolumeUse]) -> None:
        if uses:
            self._notes.note(log.Reserve(task_id, node_id, tuple(uses)))
        super().reserve(task_id, node_id, uses)

    def release(self, task_id: str) -> tuple[VolumeUse, ...]:
        if self.uses_of(task_id):
            self._notes.note(log.Release(task_id))
        return super().release(task_id)


def choices_of(placed: Sequence[Placed]) -> tuple[log.Choice, ...]:
    """Where tasks went, as a log has it."""
    return tuple((where.node_id, where.pool_ids, where.volumes) for where in placed)


__all__ = ["RecordedIndex", "choices_of"]
