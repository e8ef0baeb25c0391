"""Random tables of nodes, each filled to between 50 and 95 %, in the form of the kernel and of its peers.

Nothing is regular: an empty or uniform cluster flatters every scheduler, and lets the processor predict every branch.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeyard.core.node_table import Needs
from beeyard.core.placement import PlacementIndex
from tests.support.builders import CPU, GIB, a_node

GENERIC = ("disk", "net")  # kinds 2 and 3
UNITS = np.array([CPU, GIB, 1, 1])


class FilledTable:
    """`n_nodes` nodes of 16 to 128 cores, of which 97 % are ready, with up to 20 tasks each."""

    def __init__(self, n_nodes: int, n_kinds: int = 2, seed: int = 1) -> None:
        rng = np.random.default_rng([seed, n_nodes, n_kinds])
        self.n_nodes, self.n_kinds = n_nodes, n_kinds
        cores = rng.integers(16, 129, n_nodes)
        sizes = np.stack([cores, cores * rng.integers(2, 9, n_nodes), rng.integers(200, 2000, n_nodes)])
        self.total = (np.vstack([sizes, rng.integers(100, 1000, n_nodes)])[:n_kinds].T * UNITS[:n_kinds]).copy()
        fill = rng.uniform(0.5, 0.95, n_nodes)[:, None] * rng.uniform(0.9, 1.05, self.total.shape)
        self.free = self.total - (self.total * fill).astype(np.int64)
        self.tasks: NDArray[np.int32] = rng.integers(1, 21, n_nodes).astype(np.int32)
        self.ready = rng.random(n_nodes) < 0.97
        self.ssd, self.nfs = rng.random(n_nodes) < 0.5, rng.random(n_nodes) < 0.6
        self.zone, self.rack = rng.integers(0, 5, n_nodes), rng.integers(0, 20, n_nodes)
        self.ids = [f"node{number:06d}" for number in range(n_nodes)]
        digests = (hashlib.blake2b(id_.encode(), digest_size=8).digest() for id_ in self.ids)
        self.tie = np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)
        self.rng = rng
        self.index = self._index()

    def _index(self) -> PlacementIndex:
        index = PlacementIndex()
        for row, node_id in enumerate(self.ids):
            labels = {
                "disk": "ssd" if self.ssd[row] else "hdd",
                "zone": f"z{self.zone[row]}",
                "rack": f"r{self.rack[row]}",
            }
            generic = dict(zip(GENERIC, self.total[row, 2:].tolist(), strict=False))
            node: Any = a_node(
                node_id,
                labels=labels,
                cpu_nano=int(self.total[row, 0]),
                memory_bytes=int(self.total[row, 1]),
                generic=generic,
                images=("host",) if self.ready[row] else (),
                volume_drivers=("nfs",) if self.nfs[row] else (),
            )
            index.set_node(node)
        nothing = Needs(())
        for row, node_id in enumerate(self.ids):
            at = index._holds.rows[node_id]
            assert at == row
            used = (self.total[row] - self.free[row]).tolist()
            index._table.hold(row, Needs(enumerate(used)))
            for _ in range(int(self.tasks[row]) - 1):
                index._table.hold(row, nothing)
        for row in np.flatnonzero(~self.ready).tolist():
            index._table.set_ready(row, False)
        return index

    def amounts(self, n_tasks: int) -> NDArray[np.int64]:
        """What tasks need, no two the same: 0.05 to 1 core and the like."""
        rng = np.random.default_rng([7, n_tasks, self.n_kinds])
        needs = np.stack(
            [
                rng.integers(CPU // 20, CPU, n_tasks),
                rng.integers(GIB // 20, 2 * GIB, n_tasks),
                rng.integers(1, 12, n_tasks),
                rng.integers(1, 9, n_tasks),
            ],
            axis=1,
        )
        return np.ascontiguousarray(needs[:, : self.n_kinds])

    def passing(self, *filters: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """By row and filter, being ready first."""
        return np.ascontiguousarray(np.stack([self.ready, *filters], axis=1).astype(np.uint8))
