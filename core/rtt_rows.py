"""Where nodes are in the network, row by row, for constraints such as `node.rtt.db1<=5ms`.

Nothing is kept until such a constraint is met for the first time. The sums are made term by term and not by one call of
numpy, whose order of additions depends on the processor: a log of decisions must replay alike everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beeyard.core.constraint import coordinate_of
from beeyard.core.membership import DIMENSIONS
from beeyard.core.model import Node

_HEIGHT, _ADJUSTMENT, _COLUMNS = DIMENSIONS, DIMENSIONS + 1, DIMENSIONS + 2


class RttRows:
    """Coordinates and names of all nodes, from the first question on."""

    def __init__(self) -> None:
        self._places: NDArray[np.float64] | None = None  # (rows, columns); NaN where none is known. None: nobody asked
        self._names: list[tuple[str, ...]] = []  # by row: id and hostname, without regard to case
        self._rows: dict[str, dict[int, None]] = {}  # the rows by name, dicts for their order

    def copy(self) -> RttRows:
        """One of its own to try things on."""
        twin = RttRows()
        twin._places = None if self._places is None else self._places.copy()
        twin._names = list(self._names)
        twin._rows = {name: dict(rows) for name, rows in self._rows.items()}
        return twin

    def set(self, row: int, node: Node | None) -> bool:
        """Store a node, or None where there is none any more; whether answers given before may not hold."""
        if self._places is None:
            return False
        place = _place(node)
        names = _names(node)
        if row >= len(self._names):
            self._names += [()] * (row + 1 - len(self._names))
            while row >= len(self._places):
                self._places = np.concatenate([self._places, np.full_like(self._places, np.nan)])
        if names == self._names[row] and np.array_equal(place, self._places[row], equal_nan=True):
            return False
        for name in self._names[row]:
            self._rows[name].pop(row, None)
            if not self._rows[name]:
                del self._rows[name]
        for name in names:
            self._rows.setdefault(name, {})[row] = None
        self._names[row], self._places[row] = names, place
        return True

    def compare(self, nodes: Sequence[Node | None], target: str, limit_s: float, *, near: bool) -> NDArray[np.bool_]:
        """Rows whose estimated round-trip time to a node is known, and at most (`near`) or at least `limit_s`.

        Args:
            nodes: all of them by row, to begin with.
            target: the node's id or hostname. There is nothing to compare with when none or several are called so.
        """
        if self._places is None:
            self._places = np.full((max(len(nodes), 64), _COLUMNS), np.nan)
            for row, node in enumerate(nodes):
                self.set(row, node)
        size = len(nodes)
        rows = list(self._rows.get(target.casefold(), ()))
        if len(rows) != 1:
            return np.zeros(size, dtype=bool)
        rtts = _rtts(self._places[:size], self._places[rows[0]])
        rtts[rows[0]] = 0.0 if rtts[rows[0]] == rtts[rows[0]] else np.nan  # to itself, if it is known where that is
        with np.errstate(invalid="ignore"):  # what is not known compares as False
            found: NDArray[np.bool_] = rtts <= limit_s if near else rtts >= limit_s
        return found


def _names(node: Node | None) -> tuple[str, ...]:
    names = () if node is None else (node.id, node.description.hostname)
    return tuple(dict.fromkeys(name.casefold() for name in names if name))


def _place(node: Node | None) -> NDArray[np.float64]:
    coordinate = coordinate_of(node)
    if coordinate is None:
        return np.full(_COLUMNS, np.nan)
    return np.array([*coordinate.vec, coordinate.height, coordinate.adjustment])


def _rtts(places: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """`core.membership.rtt_s` of each row and one place."""
    squares = np.zeros(len(places))
    for column in range(DIMENSIONS):
        difference = places[:, column] - target[column]
        squares = squares + difference * difference
    raw = np.sqrt(squares) + places[:, _HEIGHT] + target[_HEIGHT]
    adjusted = raw + places[:, _ADJUSTMENT] + target[_ADJUSTMENT]
    with np.errstate(invalid="ignore"):
        rtts: NDArray[np.float64] = np.where(adjusted > 0.0, adjusted, raw)
    return rtts


__all__ = ["RttRows"]
