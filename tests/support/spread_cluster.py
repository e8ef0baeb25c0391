"""A random table of the kernel, and the same in plain Python: one task after another, written from the rule."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

from beeyard.core.branches import Branches
from beeyard.core.filters import Ask
from beeyard.core.node_table import Needs, NodeTable

N_POOLS = 3
MANY_TASKS = 400  # more than the index tells apart


N_ZONES, N_RACKS = 3, 4


class SpreadCluster:
    """Rows with everything that decides about spreading."""

    def __init__(self, seed: int, n_rows: int, *, occupied: float, crowded: float) -> None:
        """Args: shares of rows that have tasks of the service, and that have very many tasks."""
        self.random = random.Random(seed)
        draw = self.random.random
        self.table = NodeTable()
        self.generic = self.table.add_kind()
        self.rows: list[dict[str, Any]] = []
        for number in range(n_rows):
            # Some tie-breaks are equal: then the row decides.
            row = {"tie": self.random.randrange(1 << 63) if draw() < 0.9 else 7, "row": number, "tasks": 0}
            assert self.table.add_row(row["tie"]) == number
            row["free"] = [self.random.randrange(0, 40), self.random.randrange(0, 40), self.random.randrange(0, 3)]
            row["ready"] = draw() < 0.9
            for kind, amount in enumerate(row["free"]):
                self.table.set_total(number, kind, amount)
            self.table.set_ready(number, row["ready"])
            row["service"] = self.random.randrange(1, 4) if draw() < occupied else 0
            for _ in range(row["service"] + self.random.randrange(0, 5) + MANY_TASKS * (draw() < crowded)):
                self.table.hold(number, Needs(()))
                row["tasks"] += 1
            row["code"] = int(draw() < 0.1)
            row["port"] = int(draw() < 0.05)
            row["penalty"] = self.random.randrange(5, 7) if draw() < 0.05 else 0
            row["path"] = (self.random.randrange(N_ZONES), self.random.randrange(N_RACKS))
            row["pools"] = [self.random.randrange(N_POOLS) for _ in range(2)]
            self.rows.append(row)
        self.pool_free = np.array([self.random.randrange(0, n_rows) for _ in range(N_POOLS)], dtype=np.int64)
        self.peer_pools = self.pool_free.tolist()
        # Branches: the zones, then the racks of each. The last zone takes only what finds no room elsewhere.
        n_branches = N_ZONES + N_ZONES * N_RACKS
        self.weights = [self.random.choice([1, 1, 2, 5]) for _ in range(n_branches)]
        self.last = [branch == N_ZONES - 1 for branch in range(n_branches)]

    def ask(self, needs: Needs, *, limit: int, one_per_node: bool, pools: bool, faulty: bool, tree: bool) -> Ask:
        def column(name: str, dtype: Any) -> Any:
            return np.array([row[name] for row in self.rows], dtype=dtype)

        codes, service = column("code", np.uint8), column("service", np.int32)
        self.service = service
        return Ask(
            self.table,
            needs,
            limit,
            one_per_node,
            codes,
            column("port", np.uint8) if one_per_node else np.zeros_like(codes),
            np.zeros_like(codes),
            service,
            column("pools", np.int32).reshape(-1, 2),
            np.array([0, 2] if pools else [0], dtype=np.int32),
            self.pool_free,
            np.empty(1, dtype=np.int32),
            passing=self.table.index.pack(codes),
            penalty=column("penalty", np.int32) if faulty else None,
            n_occupied=int(np.count_nonzero(service)),
            branches=self._branches() if tree else None,
        )

    def _branches(self) -> Branches:
        leaf_of = np.array([zone * N_RACKS + rack for zone, rack in (row["path"] for row in self.rows)], dtype=np.int32)
        path = np.array([[leaf // N_RACKS, N_ZONES + leaf] for leaf in range(N_ZONES * N_RACKS)], dtype=np.int32)
        weight, last = np.array(self.weights, dtype=np.int32), np.array(self.last, dtype=np.uint8)
        loads = self._loads()
        tasks = np.array([loads[branch] for branch in range(len(self.weights))], dtype=np.int64)
        return Branches(len(self.rows), leaf_of, path, weight, last, tasks)

    def _loads(self) -> Counter[int]:
        loads: Counter[int] = Counter()
        for row in self.rows:
            for branch in self._of(row):
                loads[branch] += row["service"]
        return loads

    def _of(self, row: dict[str, Any]) -> tuple[int, int]:
        zone, rack = row["path"]
        return zone, N_ZONES + zone * N_RACKS + rack

    def peer(
        self, needs: list[int], n_tasks: int, *, limit: int, one_per_node: bool, pools: bool, faulty: bool, tree: bool
    ) -> list[tuple[int, int]]:
        """One task after another: (row, pool)."""
        placed = []
        for _ in range(n_tasks):
            fitting = [row for row in self.rows if self._fits(row, needs, limit, one_per_node, pools)]
            if not fitting:
                break
            loads = self._loads() if tree else Counter()
            best = min(fitting, key=lambda row: self._rank(row, loads, faulty=faulty, tree=tree))
            best["free"] = [free - need for free, need in zip(best["free"], needs, strict=True)]
            best["service"] += 1
            best["tasks"] += 1
            best["port"] |= one_per_node
            pool = next((p for p in best["pools"] if self.peer_pools[p] > 0), -1) if pools else -1
            if pools:
                self.peer_pools[pool] -= 1
            placed.append((best["row"], pool))
        return placed

    def _rank(self, row: dict[str, Any], loads: Counter[int], *, faulty: bool, tree: bool) -> tuple[Any, ...]:
        levels = [
            (self.last[branch], Fraction(loads[branch] + 1, self.weights[branch])) for branch in self._of(row) if tree
        ]
        return *levels, row["penalty"] * faulty, row["service"], row["tasks"], row["tie"], row["row"]

    def _fits(self, row: dict[str, Any], needs: list[int], limit: int, one_per_node: bool, pools: bool) -> bool:
        return (
            row["ready"]
            and not row["code"]
            and all(need == 0 or free >= need for free, need in zip(row["free"], needs, strict=True))
            and not (one_per_node and row["port"])
            and not (limit and row["service"] >= limit)
            and not (pools and all(self.peer_pools[pool] <= 0 for pool in row["pools"]))
        )

    def change_a_little(self) -> None:
        """Some nodes come and go, and some tasks end: what the index has to follow."""
        for row in self.random.sample(self.rows, len(self.rows) // 8):
            number = row["row"]
            if self.random.random() < 0.5:
                row["ready"] = not row["ready"]
                self.table.set_ready(number, row["ready"])
            elif row["tasks"] > row["service"]:
                row["tasks"] -= 1
                self.table.give_back(number, Needs(()))
            kind = self.random.randrange(3)
            change = self.random.randrange(-8, 9)
            row["free"][kind] += change
            self.table.change_free(number, kind, change)


__all__ = ["SpreadCluster"]
