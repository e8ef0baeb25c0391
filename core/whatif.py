"""What would happen if: a service were created, nodes were lost, nodes were drained.

Theory of operation
-------------------
A question is played on the live index itself, and every step is undone before the answer is given: that costs as much as
the question is large, where a copy would cost as much as the cluster. Tasks are placed by `PlacementIndex.place`, as they
would be if it happened; nothing is learned from them.

*Lost* nodes are out of reach: their tasks are replaced elsewhere, and what these have, addresses and volumes, stays theirs
until their lease has ended. The tasks of *drained* nodes end first, so what they have can be had again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from typing import TypeVar

import msgspec

from beeyard.core.demand import Decision, Demand, Placed
from beeyard.core.holds import Hold, Holds
from beeyard.core.node_table import NodeTable
from beeyard.core.pool_rows import PoolRows
from beeyard.core.volumes import VolumeTable

T = TypeVar("T")

# (demand, ids of new tasks) → where they go.
Place = Callable[[Demand, Sequence[str]], Decision]
# Pools in which a task has an address.
PoolsOf = Callable[[str], Sequence[str]]


class Move(msgspec.Struct, frozen=True, gc=False):
    """A task is replaced by one elsewhere."""

    task_id: str
    node_id: str  # where it is
    to: Placed


class Stuck(msgspec.Struct, frozen=True, gc=False):
    """A task is replaced by one that has no place."""

    task_id: str
    node_id: str
    explanation: str


class Aftermath(msgspec.Struct, frozen=True):
    """What becomes of the tasks of some nodes."""

    node_ids: tuple[str, ...]  # the nodes, as far as they are known
    moves: list[Move]
    stuck: list[Stuck]


class WhatIf:
    """Plays questions over the parts of one placement index.

    Args:
        place: places tasks and holds their room.
        drop: ends such a hold.
        trying: around everything that is done and undone.
    """

    def __init__(
        self,
        table: NodeTable,
        holds: Holds,
        pools: PoolRows,
        volumes: VolumeTable,
        place: Place,
        drop: Callable[[str], None],
        trying: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._table = table
        self._holds = holds
        self._pools = pools
        self._volumes = volumes
        self._place = place
        self._drop = drop
        self._trying = trying

    def service(self, demand: Demand, n_tasks: int) -> Decision:
        """Where the tasks of a service would go now."""
        return self.service_and(demand, n_tasks, lambda decision: decision)

    def service_and(self, demand: Demand, n_tasks: int, ask: Callable[[Decision], T]) -> T:
        """What `ask` finds out about the index while the tasks of a service are where they would go now."""
        with self._trying(), ExitStack() as undo:
            return ask(self._put(demand, n_tasks, _names(), undo))

    def lost(self, node_ids: Sequence[str], *, stay: Mapping[str, str] | None = None) -> Aftermath:
        """These nodes are out of reach at once.

        Args:
            stay: tasks that are not replaced, and why; "": nobody wants them, so they are left out.
        """
        return self._without(node_ids, stay or {}, None)

    def drained(
        self, node_ids: Sequence[str], *, stay: Mapping[str, str] | None = None, pools_of: PoolsOf | None = None
    ) -> Aftermath:
        """These nodes take no tasks any more, and those that they have end.

        Args:
            stay: as for `lost`.
            pools_of: which addresses are free when a task has ended; None: those that the index chose.
        """
        return self._without(node_ids, stay or {}, pools_of or self._pools_chosen)

    def _without(self, node_ids: Sequence[str], stay: Mapping[str, str], ends: PoolsOf | None) -> Aftermath:
        known = tuple(node_id for node_id in dict.fromkeys(node_ids) if node_id in self._holds.rows)
        groups: dict[Demand, list[str]] = {}
        stuck: list[Stuck] = []
        with self._trying(), ExitStack() as undo:
            for node_id in known:
                self._take_out(node_id, undo)
                for task_id in tuple(self._holds.tasks_on(node_id)):
                    hold = self._holds.by_task[task_id]
                    if ends is not None:
                        self._end(task_id, hold, ends, undo)
                    why = stay.get(task_id, None if ends is not None else _waits_for_pins(hold.demand))
                    if why is None:
                        groups.setdefault(hold.demand, []).append(task_id)
                    elif why:
                        stuck.append(Stuck(task_id, node_id, why))
            moves = self._replace(groups, stuck, undo)
        return Aftermath(known, moves, stuck)

    def _replace(self, groups: Mapping[Demand, list[str]], stuck: list[Stuck], undo: ExitStack) -> list[Move]:
        """Place a new task for each of some, group by group; those for one node alone first, as the manager does."""
        moves: list[Move] = []
        names = _names()
        for demand, task_ids in sorted(groups.items(), key=lambda group: not group[0].node_id):
            decision = self._put(demand, len(task_ids), names, undo)
            for task_id, where in zip(task_ids, decision.placed, strict=False):
                moves.append(Move(task_id, self._holds.by_task[task_id].node_id, where))
            stuck += [
                Stuck(task_id, self._holds.by_task[task_id].node_id, decision.explanation)
                for task_id in task_ids[len(decision.placed) :]
            ]
        return moves

    def _put(self, demand: Demand, n_tasks: int, names: Iterator[str], undo: ExitStack) -> Decision:
        task_ids = [next(names) for _ in range(n_tasks)]
        undo.callback(self._drop_all, task_ids)
        return self._place(demand, task_ids)

    def _drop_all(self, task_ids: Sequence[str]) -> None:
        for task_id in reversed(task_ids):
            self._drop(task_id)

    def _take_out(self, node_id: str, undo: ExitStack) -> None:
        row = self._holds.rows[node_id]
        if self._table.row(row)[3]:
            self._table.set_ready(row, False)
            undo.callback(self._table.set_ready, row, True)

    def _end(self, task_id: str, hold: Hold, pools_of: PoolsOf, undo: ExitStack) -> None:
        """Take a task's room, volumes and addresses out, all of which `undo` puts back."""
        row, plans = self._holds.rows[hold.node_id], hold.plans
        self._holds.uncount(hold, row)
        undo.callback(self._holds.count, hold, row)
        uses = self._volumes.release(task_id)
        undo.callback(self._volumes.reserve, task_id, hold.node_id, uses)
        pool_ids = () if plans or hold.demand.pins else tuple(pools_of(task_id))
        self._pools.settle(plans)
        self._pools.give(pool_ids, 1)
        undo.callback(self._pools.plan, plans)
        undo.callback(self._pools.give, pool_ids, -1)

    def _pools_chosen(self, task_id: str) -> Sequence[str]:
        return self._holds.by_task[task_id].pools


def _names() -> Iterator[str]:
    """Ids that no task has."""
    return (f"what if {number}" for number in count())


def _waits_for_pins(demand: Demand) -> str | None:
    """Addresses of a slot stay with a lost task: its successor waits for them."""
    if not demand.pins:
        return None
    return f"waits for {', '.join(demand.pins)}, which the lost task keeps until its lease has ended"


__all__ = ["Aftermath", "Move", "Stuck", "WhatIf"]
