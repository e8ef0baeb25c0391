"""Rules by which other schedulers choose a node, each as a score over all nodes at once; the smallest wins.

`free` and `total` are (nodes, kinds), `need` (kinds,), `tasks` (nodes,). What is left of a node is `(free - need) / total`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Rule = Callable[[Column, Column, Column, Column], Column]


def first_fit(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    return np.arange(len(free), dtype=np.float64)


def swarmkit(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Fewest tasks."""
    return tasks


def least_allocated(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Kubernetes' NodeResourcesLeastAllocated."""
    return -((free - need) / total).mean(axis=1)


def most_allocated(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Kubernetes' NodeResourcesMostAllocated."""
    return ((free - need) / total).mean(axis=1)


def kubernetes(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Its default: least allocated plus balanced allocation."""
    left = (free - need) / total
    return -(left.mean(axis=1) + 1 - left.std(axis=1))


def nomad(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """ScoreFitBinPack."""
    return (10 ** ((free - need) / total)).sum(axis=1)


def dot_product(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Tetris' alignment."""
    return -((need / total) * (free / total)).sum(axis=1)


def euclidean(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """Best fit by the sum of squares."""
    return (((free - need) / total) ** 2).sum(axis=1)


def imbalance(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """The largest less the smallest share that is left, plus 0.3 of their sum."""
    left = (free - need) / total
    return left.max(axis=1) - left.min(axis=1) + 0.3 * left.sum(axis=1)


def cosine(free: Column, total: Column, need: Column, tasks: Column) -> Column:
    """The angle between what is asked for and what is free."""
    asked, room = need / total, free / total
    lengths = np.sqrt((asked**2).sum(axis=1) * (room**2).sum(axis=1))
    return -(asked * room).sum(axis=1) / np.maximum(lengths, 1e-30)


def fragmentation(usual: Column) -> Rule:
    """FGD over all kinds: the growth of what none of the usual tasks, (classes, kinds), can use."""

    def lost(free: Column, total: Column) -> Column:
        fits = (free[:, None, :] >= usual[None, :, :]).all(axis=2)
        return (~fits).mean(axis=1) * (free / total).sum(axis=1)

    def rule(free: Column, total: Column, need: Column, tasks: Column) -> Column:
        return lost(free - need, total) - lost(free, total)

    return rule


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        first_fit,
        swarmkit,
        least_allocated,
        most_allocated,
        kubernetes,
        nomad,
        dot_product,
        euclidean,
        imbalance,
        cosine,
    )
}


def choose(rule: Rule, free: Column, total: Column, need: Column, tasks: Column) -> int:
    """The node for a task; -1: none fits."""
    fits = (free >= need).all(axis=1)
    if not fits.any():
        return -1
    return int(np.where(fits, rule(free, total, need, tasks), np.inf).argmin())
