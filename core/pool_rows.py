"""The kernel's column of pools: how many addresses each can still promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class PoolRows:
    """One row a pool, shared by the networks that draw from it. Rows of pools that no network uses are used again.

    Plans are counted by the pool's id, so they survive the removal of their network and count again if the pool returns.
    """

    def __init__(self) -> None:
        self.available: NDArray[np.int64] = np.zeros(16, dtype=np.int64)  # by row: free and not planned
        self.ids: list[str] = []  # by row
        self.names: list[str] = []  # by row
        self._row: dict[str, int] = {}
        self._users: dict[str, set[str]] = {}
        self._planned: Counter[str] = Counter()
        self._holes: list[int] = []

    def copy(self) -> PoolRows:
        """One of its own to try things on."""
        twin = PoolRows()
        twin.available, twin.ids, twin.names = self.available.copy(), list(self.ids), list(self.names)
        twin._row, twin._planned, twin._holes = dict(self._row), self._planned.copy(), list(self._holes)
        twin._users = {pool_id: set(users) for pool_id, users in self._users.items()}
        return twin

    def add(self, pool_id: str, name: str, network_id: str, free: int) -> int:
        """Add a pool or another network that uses it; returns its row."""
        row = self._row.get(pool_id)
        if row is None:
            row = self._row[pool_id] = self._new_row()
        self._users.setdefault(pool_id, set()).add(network_id)
        self.ids[row], self.names[row] = pool_id, name
        self.set_free(pool_id, free)
        return row

    def row(self, pool_id: str) -> int:
        """The row of a pool that some network uses."""
        return self._row[pool_id]

    def remove(self, row: int, network_id: str) -> None:
        """A network no longer uses the pool."""
        pool_id = self.ids[row]
        self._users[pool_id].discard(network_id)
        if not self._users[pool_id]:
            del self._users[pool_id], self._row[pool_id]
            self._holes.append(row)

    def set_free(self, pool_id: str, free: int) -> None:
        """How many addresses may be handed out now; a pool that no network uses is ignored."""
        row = self._row.get(pool_id)
        if row is not None:
            # An IPv6 pool has more addresses than an int64 counts; nobody plans so many.
            self.available[row] = min(free, 1 << 62) - self._planned[pool_id]

    def give(self, pool_ids: Iterable[str], n: int) -> None:
        """Try what would be if each had `n` addresses more; until the next `set_free`. Unknown pools are ignored."""
        for pool_id in pool_ids:
            if pool_id in self._row:
                self.available[self._row[pool_id]] += n

    def plan(self, pool_ids: Iterable[str]) -> None:
        """Promise one address of each."""
        for pool_id in pool_ids:
            self._planned[pool_id] += 1
            if pool_id in self._row:
                self.available[self._row[pool_id]] -= 1

    def note_plans(self, pool_ids: Iterable[str]) -> None:
        """The kernel has promised one address of each and lowered the column."""
        self._planned.update(pool_ids)

    def settle(self, pool_ids: Iterable[str]) -> None:
        """End such promises."""
        for pool_id in pool_ids:
            self._planned[pool_id] -= 1
            if not self._planned[pool_id]:
                del self._planned[pool_id]
            if pool_id in self._row:
                self.available[self._row[pool_id]] += 1

    def _new_row(self) -> int:
        if self._holes:
            return self._holes.pop()
        if len(self.ids) == len(self.available):
            self.available = np.concatenate([self.available, np.zeros_like(self.available)])
        self.ids.append("")
        self.names.append("")
        return len(self.ids) - 1


__all__ = ["PoolRows"]
