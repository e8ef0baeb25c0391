"""Placement preferences as the tree that the kernel spreads tasks over."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core.branches import Branches
from beeyard.core.node_columns import NodeColumns
from beeyard.core.preference import Preference

# As many as services of a cluster differ in; a tree of 100,000 rows is 400 kB.
_TREES_MAX = 64


class _Tree(msgspec.Struct):
    """Which rows are in which leaf, and the branches that each leaf is in."""

    epoch: int
    leaf_of: NDArray[np.int32]  # by row
    path: NDArray[np.int32]  # by leaf and level: the number of a branch
    weight: NDArray[np.int32]  # by branch
    last: NDArray[np.uint8]  # by branch


class PreferenceTrees:
    """Trees by their preferences, made again when a node's labels change."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._trees: dict[tuple[Preference, ...], _Tree] = {}

    def copy(self, columns: NodeColumns) -> PreferenceTrees:
        """The same trees over a copy of the columns."""
        twin = PreferenceTrees(columns)
        twin._trees = dict(self._trees)
        return twin

    def branches(self, preferences: tuple[Preference, ...], counts: Counter[int]) -> Branches:
        """The tree for some preferences in the kernel's form.

        Args:
            counts: tasks of the service by row.
        """
        tree = self._trees.pop(preferences, None)
        if tree is None or tree.epoch != self._columns.epoch:
            tree = self._grow(preferences)
            while len(self._trees) >= _TREES_MAX:
                self._trees.pop(next(iter(self._trees)))
        self._trees[preferences] = tree  # last in the dict: used most recently
        tasks = np.zeros(len(tree.weight), dtype=np.int64)
        if counts:
            rows = np.fromiter(counts.keys(), np.int64, len(counts))
            of_row = np.fromiter(counts.values(), np.int64, len(counts))
            np.add.at(tasks, tree.path[tree.leaf_of[rows]], of_row[:, None])
        return Branches(len(tree.leaf_of), tree.leaf_of, tree.path, tree.weight, tree.last, tasks)

    def _grow(self, preferences: tuple[Preference, ...]) -> _Tree:
        """A branch is what its parent branch has of one value of the level's label."""
        size = len(self._columns.nodes)
        branch_of = np.zeros(size, dtype=np.int64)  # by row: its branch at the level before
        paths, weights, last = [], [], []
        n_branches = 0
        for preference in preferences:
            ids, values = self._columns.values(preference.descriptor)
            values = values or [""]  # all nodes that there were are gone: their rows are left, with number 0
            weight_of, given = [1] * len(values), dict(preference.weights)
            for number, value in enumerate(values):
                weight_of[number] = given.get(value, 1)
            pairs, branch_of = np.unique(branch_of * len(values) + ids, return_inverse=True)
            of_branch = pairs % len(values)
            weights += [weight_of[number] for number in of_branch.tolist()]
            last += [preference.unlabelled_last and values[number] == "" for number in of_branch.tolist()]
            paths.append(branch_of + n_branches)
            n_branches += len(pairs)
        # Branches of the last level are the leaves: each path is that of any of its rows.
        _, first = np.unique(branch_of, return_index=True)
        path = np.ascontiguousarray(np.stack(paths, axis=1)[first].astype(np.int32))
        return _Tree(
            self._columns.epoch,
            branch_of.astype(np.int32),
            path.reshape(len(first), len(preferences)),
            np.array(weights, dtype=np.int32),
            np.array(last, dtype=np.uint8),
        )


__all__ = ["PreferenceTrees"]
