"""Random clusters for the kernel's benchmarks, and the peers it is measured against: natural Python and natural numpy.

The tables are random and filled to a given share before anything is measured: an empty or regular cluster flatters every
scheduler, and lets the processor predict every branch.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
from typing import Any

import numpy as np

from beeyard.core.placement import Demand, PlacementIndex, PoolColumn
from tests.support.builders import CPU, GIB, a_node

RACKS = 20
ADDRESSES_BY_RACK = 100_000
DEMAND = Demand(
    "web",
    cpu_nano=CPU,
    memory_bytes=GIB,
    image="host",
    constraints=("node.labels.disk==ssd",),
    network_ids=("lan",),
)


class World:
    """`n_nodes` nodes of 4 to 64 cores, `fill` of their room in use on average, half of them with the label disk=ssd."""

    def __init__(self, n_nodes: int, fill: float) -> None:
        rng = np.random.default_rng(20_240_601 + n_nodes + int(100 * fill))
        self.n_nodes = n_nodes
        self.ids = [f"node{number:06d}" for number in range(n_nodes)]
        cpu = rng.integers(4, 65, n_nodes)
        self.ssd = rng.random(n_nodes) < 0.5
        self.rack = rng.integers(0, RACKS, n_nodes)
        self.ready = rng.random(n_nodes) < 0.97
        used = np.minimum(cpu, np.rint(cpu * np.clip(rng.normal(fill, 0.15, n_nodes), 0, 1))).astype(np.int64)
        self.tasks = rng.integers(0, 4, n_nodes).astype(np.int64)
        self.tasks[used > 0] += 1
        self.tasks[used == 0] = 0
        self.cpu_free = (cpu - used) * CPU
        self.memory_free = (2 * cpu - used) * GIB
        self.tie = [int.from_bytes(hashlib.blake2b(i.encode(), digest_size=8).digest(), "little") for i in self.ids]
        self.tie_column = np.array(self.tie, dtype=np.uint64)
        self.index = self._index(cpu, used)

    def _index(self, cpu: Any, used: Any) -> PlacementIndex:
        index = PlacementIndex()
        for row, node_id in enumerate(self.ids):
            labels = {"disk": "ssd" if self.ssd[row] else "hdd", "rack": f"r{self.rack[row]}"}
            cores = int(cpu[row])
            node = a_node(node_id, labels=labels, cpu_nano=cores * CPU, memory_bytes=2 * cores * GIB)
            index.set_node(node if self.ready[row] else a_node(node_id, labels=labels, images=()))
            for number in range(int(self.tasks[row])):
                amount = int(used[row]) if number == 0 else 0
                index.hold(f"old-{row}-{number}", Demand("old", amount * CPU, amount * GIB), node_id)
        pools = [
            PoolColumn(f"p{r}", f"lan-r{r}", "eth0", f"node.labels.rack==r{r}", ADDRESSES_BY_RACK) for r in range(RACKS)
        ]
        index.set_network("lan", "macvlan", pools)
        return index

    def peer_numpy(self, n_tasks: int) -> list[str]:
        """One task after another with numpy: masks, then the smallest key, then the smallest tie-break."""
        cpu_free, memory_free, tasks = self.cpu_free.copy(), self.memory_free.copy(), self.tasks.copy()
        service_tasks, pool_free = np.zeros_like(tasks), np.full(RACKS, ADDRESSES_BY_RACK)
        placed = []
        for _ in range(n_tasks):
            fits = self.ready & (cpu_free >= DEMAND.cpu_nano) & (memory_free >= DEMAND.memory_bytes)
            fits &= self.ssd & (pool_free[self.rack] > 0)
            key = np.where(fits, (service_tasks << 32) | tasks, np.iinfo(np.int64).max)
            best = np.flatnonzero(key == key.min())
            row = best[np.argmin(self.tie_column[best])]
            cpu_free[row] -= DEMAND.cpu_nano
            memory_free[row] -= DEMAND.memory_bytes
            tasks[row] += 1
            service_tasks[row] += 1
            pool_free[self.rack[row]] -= 1
            placed.append(self.ids[row])
        return placed

    @functools.cached_property
    def rows(self) -> list[list[Any]]:
        """The table as Python has it: ready, ssd, cpu, memory, tasks, tie, rack."""
        columns = (self.ready, self.ssd, self.cpu_free, self.memory_free, self.tasks, self.tie_column, self.rack)
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def peer_python(self, n_tasks: int) -> list[str]:
        """The whole group in Python: one loop that filters, then a heap."""
        pool_free = [ADDRESSES_BY_RACK] * RACKS
        heap = [
            (0, tasks, tie, row, cpu, memory, rack)
            for row, (ready, ssd, cpu, memory, tasks, tie, rack) in enumerate(self.rows)
            if ready and ssd and cpu >= DEMAND.cpu_nano and memory >= DEMAND.memory_bytes and pool_free[rack] > 0
        ]
        heapq.heapify(heap)
        placed: list[str] = []
        while heap and len(placed) < n_tasks:
            of_service, tasks, tie, row, cpu, memory, rack = heap[0]
            if cpu < DEMAND.cpu_nano or memory < DEMAND.memory_bytes or pool_free[rack] == 0:
                heapq.heappop(heap)
                continue
            placed.append(self.ids[row])
            pool_free[rack] -= 1
            rest = (cpu - DEMAND.cpu_nano, memory - DEMAND.memory_bytes, rack)
            heapq.heapreplace(heap, (of_service + 1, tasks + 1, tie, row, *rest))
        return placed


@functools.cache
def world(n_nodes: int, fill: float) -> World:
    """A world that stays as it was made: every benchmark drops what it placed."""
    return World(n_nodes, fill)
