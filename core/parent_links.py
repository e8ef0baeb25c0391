"""Which kinds of links sit on the nodes' parent interfaces, by what is placed and planned.

Kinds that exclude each other on one parent:

* macvlan and ipvlan: both want to receive everything that arrives on the parent;
* two ipvlan links of different mode or flag: both are kept per parent, so the later link would change the earlier one;
* a macvlan link in mode passthru and anything else, a second one of its kind too.

What the agents report (`Link.child_kind`) comes late and says nothing of modes; tasks placed in one batch must not collide
either. So the index counts the links of its holds. A parent is *contested* when more than one kind is known for it, or
passthru; the others cost nothing, neither here nor in the kernel. A contested parent stays so until the manager ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from beeyard.core.network_options import KIND_ALONE

LinkUse = tuple[str, str]  # (parent, kind in the words of `network_options.link_kind`)

# As the kernel numbers them: 0 nothing, 1 the kind that tolerates nothing beside it, from 2 on the others.
ALONE, FIRST, MIXED = 1, 2, -1


def describe_kind(kind: str, asked: str) -> str:
    """What keeps a link of kind `asked` away, in as few words as tell the two apart."""
    driver = kind.partition(" ")[0]
    return kind if driver == asked.partition(" ")[0] else driver


class ParentLinks:
    """Links by contested parent and row, in the arrays that the kernel reads and, while it places, adds to."""

    def __init__(self) -> None:
        self.kinds: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)  # (contested parents, rows)
        self.counts: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self.contested = False  # whether any parent is
        self._known: dict[str, dict[str, None]] = {}  # kinds by parent
        self._number: dict[str, int] = {KIND_ALONE: ALONE}
        self._words: dict[int, str] = {ALONE: KIND_ALONE}
        self._index: dict[str, int] = {}  # of contested parents
        self._held: list[dict[int, Counter[str]]] = []  # by contested parent, by row

    def copy(self) -> ParentLinks:
        """One of its own to try things on."""
        twin = ParentLinks()
        twin.kinds, twin.counts, twin.contested = self.kinds.copy(), self.counts.copy(), self.contested
        twin._known = {parent: dict(kinds) for parent, kinds in self._known.items()}
        twin._number, twin._words, twin._index = dict(self._number), dict(self._words), dict(self._index)
        twin._held = [{row: held.copy() for row, held in by_row.items()} for by_row in self._held]
        return twin

    def know(self, parent: str, kind: str) -> bool:
        """Note that there may be links of a kind on a parent; True when it has become contested and must be counted."""
        if kind not in self._number:
            self._number[kind] = FIRST + len(self._number)
            self._words[self._number[kind]] = kind
        known = self._known.setdefault(parent, {})
        known[kind] = None
        if parent in self._index or (len(known) < 2 and kind != KIND_ALONE):
            return False
        self.contested = True
        self._index[parent] = len(self._index)
        self._held.append({})
        self._resize(self.kinds.shape[1])
        return True

    def index(self, parent: str) -> int:
        """The row of the arrays that is a parent's; -1 when it is not contested."""
        return self._index.get(parent, -1)

    def number(self, kind: str) -> int:
        """A known kind as the kernel numbers it."""
        return self._number[kind]

    def arrays(self, capacity: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Kinds and counts, at least as long as the kernel's table."""
        if self.kinds.shape[1] < capacity:
            self._resize(capacity)
        return self.kinds, self.counts

    def add(self, parent: str, kind: str, row: int) -> None:
        """One link more. The kernel may have counted it already."""
        index = self._index.get(parent, -1)
        if index >= 0:
            self._held[index].setdefault(row, Counter())[kind] += 1
            self._show(index, row)

    def add_all(self, links: Iterable[LinkUse], row: int) -> None:
        """Several links more."""
        for parent, kind in links:
            self.add(parent, kind, row)

    def remove(self, parent: str, kind: str, row: int) -> None:
        """One link less."""
        index = self._index.get(parent, -1)
        if index >= 0:
            held = self._held[index][row]
            held[kind] -= 1
            if not held[kind]:
                del held[kind]
            if not held:
                del self._held[index][row]
            self._show(index, row)

    def remove_all(self, links: Iterable[LinkUse], row: int) -> None:
        """Several links less."""
        for parent, kind in links:
            self.remove(parent, kind, row)

    def on(self, parent: str, row: int) -> list[str]:
        """The kinds of links on a row's parent, in the order in which they came."""
        index = self._index.get(parent, -1)
        return list(self._held[index].get(row, ())) if index >= 0 else []

    def _show(self, index: int, row: int) -> None:
        """Write a row as the kernel reads it."""
        if row >= self.kinds.shape[1]:
            self._resize(max(2 * self.kinds.shape[1], row + 1))
        held = self._held[index].get(row) or Counter[str]()
        self.counts[index, row] = sum(held.values())
        self.kinds[index, row] = 0 if not held else self._number[next(iter(held))] if len(held) == 1 else MIXED

    def _resize(self, capacity: int) -> None:
        shape = (len(self._index), capacity)
        for name in ("kinds", "counts"):
            old = getattr(self, name)
            new = np.zeros(shape, dtype=np.int32)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, new)


__all__ = ["LinkUse", "ParentLinks", "describe_kind"]
