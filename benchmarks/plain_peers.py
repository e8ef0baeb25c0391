"""The rules in plain Python and in numpy, each one task after another: what the kernel is compared with, in time and result.

All of them choose rows alone: like the kernel's batch call they make no objects for what they placed.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.filled_table import FilledTable

Rows = list[int]


def python_spread(table: FilledTable, passes: NDArray[np.uint8], needs: NDArray[np.int64], n: int) -> Rows:
    """A loop over all nodes for each task."""
    free, tasks, ties = table.free.tolist(), table.tasks.tolist(), table.tie.tolist()
    passing = passes.tolist()
    placed = []
    for need in needs[:n].tolist():
        best, best_key = -1, (1 << 62, 0)
        for row in range(len(free)):
            if not all(passing[row]):
                continue
            if any(have < wanted for have, wanted in zip(free[row], need, strict=True)):
                continue
            key = (tasks[row], ties[row])
            if key < best_key:
                best, best_key = row, key
        placed.append(best)
        tasks[best] += 1
        free[best] = [have - wanted for have, wanted in zip(free[best], need, strict=True)]
    return placed


def numpy_spread(table: FilledTable, passes: NDArray[np.uint8], needs: NDArray[np.int64], n: int) -> Rows:
    """Masks, then the fewest tasks, then the smallest tie."""
    free, tasks, columns = table.free.copy(), table.tasks.copy(), passes.astype(bool)
    placed = []
    for need in needs[:n]:
        fits = columns.all(axis=1) & (free >= need).all(axis=1)
        key = np.where(fits, tasks, np.iinfo(np.int32).max)
        best = np.flatnonzero(key == key.min())
        row = int(best[np.argmin(table.tie[best])])
        free[row] -= need
        tasks[row] += 1
        placed.append(row)
    return placed


def python_group(table: FilledTable, need: list[int], n: int) -> Rows:
    """One loop that filters, then a heap."""
    free, tasks, ties, ready = table.free.tolist(), table.tasks.tolist(), table.tie.tolist(), table.ready.tolist()
    heap: list[Any] = [
        (0, tasks[row], ties[row], row)
        for row in range(len(free))
        if ready[row] and all(have >= wanted for have, wanted in zip(free[row], need, strict=True))
    ]
    heapq.heapify(heap)
    placed: Rows = []
    while heap and len(placed) < n:
        of_service, on_node, tie, row = heap[0]
        if any(have < wanted for have, wanted in zip(free[row], need, strict=True)):
            heapq.heappop(heap)
            continue
        placed.append(row)
        free[row] = [have - wanted for have, wanted in zip(free[row], need, strict=True)]
        heapq.heapreplace(heap, (of_service + 1, on_node + 1, tie, row))
    return placed


def numpy_group(table: FilledTable, need: list[int], n: int) -> Rows:
    """Masks and the smallest key for each task."""
    free, tasks, of_service = table.free.copy(), table.tasks.astype(np.int64), np.zeros(table.n_nodes, dtype=np.int64)
    wanted = np.array(need)
    placed = []
    for _ in range(n):
        fits = table.ready & (free >= wanted).all(axis=1)
        key = np.where(fits, (of_service << 32) | tasks, np.iinfo(np.int64).max)
        best = np.flatnonzero(key == key.min())
        row = int(best[np.argmin(table.tie[best])])
        free[row] -= wanted
        tasks[row] += 1
        of_service[row] += 1
        placed.append(row)
    return placed


def python_best_fit(table: FilledTable, needs: NDArray[np.int64], n: int) -> Rows:
    """Squares of what is left plus half of its spread, for each node."""
    free, total, ready = table.free.tolist(), table.total.tolist(), table.ready.tolist()
    placed = []
    for need in needs[:n].tolist():
        best, best_score = -1, 1e300
        for row in range(len(free)):
            if not ready[row]:
                continue
            have = free[row]
            if any(h < w for h, w in zip(have, need, strict=True)):
                continue
            left = [(h - w) / t for h, w, t in zip(have, need, total[row], strict=True)]
            score = sum(one * one for one in left) + 0.5 * (max(left) - min(left))
            if score < best_score:
                best, best_score = row, score
        placed.append(best)
        free[best] = [have - wanted for have, wanted in zip(free[best], need, strict=True)]
    return placed


def numpy_best_fit(table: FilledTable, needs: NDArray[np.int64], n: int) -> Rows:
    """The same on whole columns."""
    free, inverse = table.free.copy(), 1.0 / table.total
    placed = []
    for need in needs[:n]:
        rest = free - need
        left = rest * inverse
        score = (left * left).sum(axis=1) + 0.5 * (left.max(axis=1) - left.min(axis=1))
        row = int(np.argmin(np.where(table.ready & (rest >= 0).all(axis=1), score, np.inf)))
        free[row] -= need
        placed.append(row)
    return placed
