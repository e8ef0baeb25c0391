"""Placing many groups at once: those that are to be packed bin by bin, the others one after another.

A group can be packed bin by bin when its tasks share nothing but room: host ports, addresses, volumes, limits of replicas and
nodes that failed it make where a task fits depend on where others went. What a packing wants is placed by `Ask.take` like
everything else, so it can only ask for what fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core.bin_packing import BinPacking
from beeyard.core.node_table import NodeTable

# Steps that improving may take at most, a third of a second: whoever packs does nothing else meanwhile. Not a time, because
# a decision has to come out the same when it is made again.
STEPS_MAX = 10_000_000

# Waiting tasks from which on packing bin by bin is worth its time: below, one after another finds nearly the same.
TASKS_MIN = 256

# Bins * classes that are looked at before: more costs as much as it spares.
_LOOKED_AT_MAX = 20_000_000

Floats = NDArray[np.float64]
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


def pack(table: NodeTable, groups: Sequence[Group], rounds: int) -> tuple[list[NDArray[np.int32]], PackingReport]:
    """The rows that the tasks of each group should go to, and how good that is. The table is not changed.

    Args:
        rounds: how often to try to improve, about 10,000 a second; `STEPS_MAX` ends it earlier.
    """
    rows, free, total, is_open = _in_order(table)
    most = total.max(axis=0, initial=0.0)
    # What no node could ever take must not make its kind look scarce.
    possible = [(amounts, n if np.all(np.array(amounts) <= most) else 0) for amounts, n, _ in groups]
    packing = BinPacking(
        table.n_kinds,
        [((tuple(amounts), 0, 1000), n) for amounts, n in possible],
        [*_weights(_sum(possible, table.n_kinds), free), 0.0],
    )
    barred = np.stack([codes[rows] for *_, codes in groups], axis=1) != 0
    used = np.flatnonzero(_useful(free, possible, barred))
    for at, room, all_ in zip(used.tolist(), free[used].tolist(), total[used].tolist(), strict=True):
        # Amounts are below 2**53, which floats hold exactly.
        packing.add_bin(list(map(int, room)), list(map(int, all_)), [], bool(is_open[at]), barred[at].tobytes())
    packing.fill()
    packing.improve(rounds, STEPS_MAX)
    chosen: list[list[int]] = [[] for _ in groups]
    for number, row in enumerate(rows[used].tolist()):
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


def _in_order(table: NodeTable) -> tuple[NDArray[np.intp], Floats, Floats, NDArray[np.bool_]]:
    """The rows that take tasks: those in use first, the fullest of them before the others.

    Returns:
        Rows; by row and kind what is free and all that there is; by row whether it has tasks.
    """
    *amounts, n_tasks, is_ready = table.columns()
    rows = np.flatnonzero(is_ready)
    free, total = (np.ascontiguousarray(column[:, rows].T, dtype=np.float64) for column in amounts)
    is_open = n_tasks[rows] > 0
    used = np.zeros(len(rows))
    for kind in range(table.n_kinds):
        has = total[:, kind] > 0
        used[has] += 1 - free[has, kind] / total[has, kind]
    order = np.lexsort((rows, np.where(is_open, -used, 0.0), ~is_open))
    return rows[order], free[order], total[order], is_open[order]


def _useful(free: Floats, groups: Sequence[tuple[list[int], int]], barred: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which bins may get a task at all when they are filled in their order: that keeps a small batch cheap.

    A bin takes a task whenever one fits, so by the time that as many bins as there are tasks had room for a class, none of it
    is left.
    """
    useful = np.zeros(len(free), dtype=bool)
    if len(free) * len(groups) > _LOOKED_AT_MAX:
        return ~useful
    n_tasks = sum(n for _, n in groups)
    for number, (amounts, n) in enumerate(groups):
        if n:
            wanted = np.array(amounts, dtype=np.float64)
            asked = wanted > 0  # what is not asked for is not compared: a node that shrank has less than nothing of it
            fits = np.all(free[:, asked] >= wanted[asked], axis=1) & ~barred[:, number]
            useful[np.flatnonzero(fits)[:n_tasks]] = True
    return useful


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
