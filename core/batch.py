"""Placing many groups at once: those that are to be packed bin by bin, the others one after another.

A group can be packed bin by bin when its tasks share nothing but room: host ports, addresses, volumes, limits of replicas and
nodes that failed it make where a task fits depend on where others went. What a packing wants is placed by `Ask.take` like
everything else, so it can only ask for what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core.bin_packing import BinPacking
from beeyard.core.node_table import NodeTable

# Steps that improving may take at most, a fifth of a second: whoever packs does nothing else meanwhile. Not a time, because
# a decision has to come out the same when it is made again.
STEPS_MAX = 10_000_000

# Waiting tasks from which on packing bin by bin is worth its time: below, one after another finds nearly the same.
TASKS_MIN = 256

Group = tuple[list[int], int, NDArray[np.uint8]]  # amounts by kind, tasks, by row: whether it may not go there


class PackingReport(msgspec.Struct, frozen=True):
    """How good a packing is. A node counts when it had no task before."""

    n_tasks: int
    opened: int  # nodes that were empty and have tasks now
    bound: int  # no packing opens fewer
    bound_by_kind: tuple[int, ...]  # the same for each kind alone

    @property
    def gap(self) -> float:
        """By what part more nodes are opened than the bound says; 0 when that opens none."""
        return self._over(self.bound)

    @property
    def gap_by_kind(self) -> tuple[float, ...]:
        """By what part more nodes are opened than each kind alone would need: the kind with the least gap is the scarcest."""
        return tuple(map(self._over, self.bound_by_kind))

    def _over(self, bound: int) -> float:
        return (self.opened - bound) / bound if bound else 0.0


def pack(
    table: NodeTable, nodes: Iterable[int], groups: Sequence[Group], rounds: int
) -> tuple[list[NDArray[np.int32]], PackingReport]:
    """The rows that the tasks of each group should go to, and how good that is. The table is not changed.

    Args:
        nodes: the rows that are nodes.
        rounds: how often to try to improve, about 10,000 a second; `STEPS_MAX` ends it earlier.
    """
    seen = sorted(((row, *table.row(row)) for row in nodes), key=_order)
    bins = [(row, free, total, n_tasks) for row, free, total, n_tasks, is_ready in seen if is_ready]
    free, total = (
        np.array(column, dtype=np.float64).reshape(len(bins), table.n_kinds)
        for column in ([one[1] for one in bins], [one[2] for one in bins])
    )
    is_open = np.array([n_tasks > 0 for *_, n_tasks in bins], dtype=bool)
    most = total.max(axis=0, initial=0.0)
    # What no node could ever take must not make its kind look scarce.
    possible = [(amounts, n if np.all(np.array(amounts) <= most) else 0) for amounts, n, _ in groups]
    packing = BinPacking(
        table.n_kinds,
        [((tuple(amounts), 0, 1000), n) for amounts, n in possible],
        [*_weights(_sum(possible, table.n_kinds), free), 0.0],
    )
    barred = np.stack([codes for *_, codes in groups], axis=1) != 0
    for row, room, all_, n_tasks in bins:
        packing.add_bin(room, all_, [], n_tasks > 0, barred[row].tobytes())
    packing.fill()
    packing.improve(rounds, STEPS_MAX)
    chosen: list[list[int]] = [[] for _ in groups]
    for number, (row, *_) in enumerate(bins):
        for group in packing.tasks_in(number):
            chosen[group].append(row)
    placed = [(amounts, len(of_group)) for (amounts, *_), of_group in zip(groups, chosen, strict=True)]
    wanted = _sum(placed, table.n_kinds)
    bounds = tuple(_bound(wanted[kind], free[:, kind], total[:, kind], is_open) for kind in range(table.n_kinds))
    report = PackingReport(sum(n for _, n in placed), packing.n_opened(), max(bounds), bounds)
    return [np.array(of_group, dtype=np.int32) for of_group in chosen], report


def _sum(groups: Sequence[tuple[list[int], int]], n_kinds: int) -> NDArray[np.float64]:
    """What some tasks need together, by kind."""
    return sum((np.array(amounts, dtype=np.float64) * n for amounts, n in groups), np.zeros(n_kinds))


def _order(seen: tuple[int, list[int], list[int], int, bool]) -> tuple[bool, float, int]:
    """Nodes in use first, the fullest of them before the others. Args: a row and what the table has of it."""
    row, free, total, n_tasks, _ = seen
    used = sum(1 - have / all_ for have, all_ in zip(free, total, strict=True) if all_ > 0)
    return n_tasks == 0, -used if n_tasks else 0.0, row


def _weights(wanted: NDArray[np.float64], free: NDArray[np.float64]) -> list[float]:
    """How scarce each kind is, the scarcest 1."""
    pressure = wanted / np.maximum(free.sum(axis=0), 1.0)
    return [float(one) for one in pressure / max(float(pressure.max()), 1e-12)]


def _bound(wanted: float, free: NDArray[np.float64], total: NDArray[np.float64], is_open: NDArray[np.bool_]) -> int:
    """How many empty nodes are needed at least for one kind: what has no room in open ones, in the largest."""
    left = wanted - float(np.maximum(free[is_open], 0).sum())
    if left <= 0:
        return 0
    sizes = np.cumsum(np.sort(total[~is_open])[::-1])
    return min(int(np.searchsorted(sizes, left)) + 1, len(sizes))


__all__ = ["STEPS_MAX", "TASKS_MIN", "Group", "PackingReport", "pack"]
