"""One property of all nodes as numbers of its distinct values, so that a question is asked once for each value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeyard.core.model import Node

Codes = NDArray[np.uint8]
Read = Callable[[Node], Hashable]

# 256 shapes of 100,000 rows are 26 MB, far above what the services of a cluster differ in.
SHAPES_MAX = 256


class Column:
    """One property of all nodes, interned: `ids[row]` is the number of the row's value."""

    def __init__(self, read: Read, nodes: Sequence[Node | None]) -> None:
        self._read = read
        self._number: dict[Hashable, int] = {}
        self.values: list[Any] = []
        self._answers: dict[Hashable, Codes] = {}
        self.ids = np.zeros(max(len(nodes), 64), dtype=np.int32)
        for row, node in enumerate(nodes):
            if node is not None:
                self.set(row, node)

    def copy(self) -> Column:
        """One of its own to try things on."""
        twin = Column(self._read, ())
        twin.ids, twin.values = self.ids.copy(), list(self.values)
        twin._number, twin._answers = dict(self._number), dict(self._answers)
        return twin

    def set(self, row: int, node: Node) -> bool:
        """Store a node's value; whether answers given before no longer hold for the row."""
        value = self._read(node)
        number = self._number.get(value)
        is_new = number is None
        if number is None:
            number = self._number[value] = len(self.values)
            self.values.append(value)
        if row >= len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)])
        changed = is_new or bool(self.ids[row] != number)
        self.ids[row] = number
        return changed

    def answers(self, question: Hashable, answer: Callable[[Any], int], size: int) -> Codes:
        """`answer(value)` for each of the first `size` rows; values already asked this question are not asked again."""
        known = self._answers.get(question)
        n_known = 0 if known is None else len(known)
        if known is None or n_known < len(self.values):
            more = np.fromiter((answer(v) for v in self.values[n_known:]), dtype=np.uint8)
            known = more if known is None else np.concatenate([known, more])
            if len(self._answers) >= SHAPES_MAX:
                self._answers.pop(next(iter(self._answers)))
            self._answers[question] = known
        if not len(known):
            return np.zeros(size, dtype=np.uint8)
        return known[self.ids[:size]]


__all__ = ["SHAPES_MAX", "Codes", "Column", "Read"]
