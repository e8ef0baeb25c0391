"""Random clusters and workloads for comparing how well rules pack; the same seed gives the same.

- `churn`: tasks come, most stay a short time and some a long one, at a given share of what the cluster has. Sizes are those
  of virtual machines (whole cores with 2, 4 or 8 GiB each), or four kinds of which each task needs much of one.
- `gpu_trace`: nodes and tasks with shared GPUs like those of a production cluster. It has the public openb trace's share of
  tasks without GPU (13 %), with a part of one (38 %), with one (48 %) and several (1 %), the most common parts, about as many
  kinds of nodes and CPU per GPU; it has not its order in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CLUSTERS: dict[str, list[list[int]]] = {
    "equal": [[64, 256, 8, 20]],
    "sizes": [[32, 128, 4, 10], [64, 256, 8, 20], [96, 384, 8, 25]],
    "shapes": [[32, 128, 2, 10], [64, 256, 4, 25], [96, 384, 8, 25], [64, 512, 16, 10], [48, 96, 2, 40]],
}


class Churn(NamedTuple):
    total: NDArray[np.float64]  # (nodes, kinds)
    need: NDArray[np.float64]  # (tasks, kinds)
    arrival: NDArray[np.float64]
    end: NDArray[np.float64]


def churn(cluster: str, kinds: int, seed: int, n_nodes: int, n_tasks: int, load: float) -> Churn:
    """A cluster (see CLUSTERS) and tasks of two (virtual machines) or four kinds that offer `load` of its scarcest kind."""
    rng = np.random.default_rng(seed)
    shapes = np.array(CLUSTERS[cluster], dtype=np.float64)[:, :kinds]
    total = shapes[rng.integers(0, len(shapes), n_nodes)]
    if kinds == 2:
        cores = rng.choice([1, 2, 4, 8, 16, 32], n_tasks, p=[0.3, 0.27, 0.22, 0.13, 0.06, 0.02])
        need = np.stack([cores, cores * rng.choice([2, 4, 8], n_tasks, p=[0.3, 0.45, 0.25])], axis=1).astype(np.float64)
    else:
        parts = rng.dirichlet([0.4] * kinds, n_tasks)
        sizes = np.clip(rng.lognormal(-2.6, 0.7, n_tasks), 0.004, 0.24)
        need = 2.4 * parts * sizes[:, None] * np.array([61, 275, 6.4, 22])
    stay = np.where(rng.random(n_tasks) < 0.8, rng.exponential(1, n_tasks), rng.exponential(16, n_tasks))
    rate = load / ((need.mean(axis=0) / total.sum(axis=0)).max() * (0.8 + 0.2 * 16))
    arrival = np.cumsum(rng.exponential(1 / rate, n_tasks))
    return Churn(total, need, arrival, arrival + stay)


class GpuTask(NamedTuple):
    cpu_milli: int
    memory_mib: int
    n_gpus: int
    gpu_milli: int


class GpuNode(NamedTuple):
    cpu_milli: int
    memory_mib: int
    n_gpus: int


_GPU_NODES = [
    (0.45, GpuNode(96_000, 393_216, 8)),
    (0.32, GpuNode(104_000, 524_288, 2)),
    (0.11, GpuNode(16_000, 122_880, 2)),
    (0.03, GpuNode(128_000, 786_432, 8)),
    (0.05, GpuNode(32_000, 131_072, 4)),
    (0.04, GpuNode(64_000, 262_144, 2)),
]
_PARTS = [
    (0.35, 810),
    (0.25, 470),
    (0.11, 320),
    (0.08, 650),
    (0.05, 230),
    (0.04, 460),
    (0.04, 590),
    (0.04, 160),
    (0.04, 50),
]


def gpu_nodes(seed: int, n_nodes: int) -> list[GpuNode]:
    """Nodes of six kinds."""
    rng = np.random.default_rng(seed)
    shares = np.array([share for share, _ in _GPU_NODES])
    return [_GPU_NODES[number][1] for number in rng.choice(len(_GPU_NODES), n_nodes, p=shares / shares.sum())]


def gpu_trace(seed: int) -> Iterator[GpuTask]:
    """Tasks of about 150 shapes, without end."""
    rng = np.random.default_rng(seed)
    shapes = [(weight, _gpu_shape(rng, kind)) for kind, weight in _shape_weights(rng)]
    shares = np.array([weight for weight, _ in shapes])
    while True:
        for number in rng.choice(len(shapes), 4096, p=shares / shares.sum()):
            yield shapes[number][1]


def _shape_weights(rng: np.random.Generator) -> list[tuple[int, float]]:
    """(kind, weight) of 150 shapes. Kinds: 0 no GPU, 1 a part, 2 one, 3 several. A few shapes are much more common."""
    kinds = rng.choice(4, 150, p=[0.3, 0.35, 0.25, 0.1])
    common = rng.pareto(1.2, 150) + 0.05
    of_kind = [0.13, 0.38, 0.48, 0.01]
    return [(int(kind), of_kind[kind] * common[n] / common[kinds == kind].sum()) for n, kind in enumerate(kinds)]


def _gpu_shape(rng: np.random.Generator, kind: int) -> GpuTask:
    cores = int(rng.choice([1, 2, 4, 6, 8, 12, 16], p=[0.08, 0.1, 0.22, 0.15, 0.25, 0.15, 0.05]))
    memory = cores * int(rng.choice([1024, 2048, 4096, 6144]))
    if kind == 0:
        return GpuTask(1000 * cores, memory, 0, 0)
    if kind == 1:
        parts = [part for _, part in _PARTS]
        return GpuTask(1000 * cores, memory, 1, int(rng.choice(parts, p=[share for share, _ in _PARTS])))
    n_gpus = 1 if kind == 2 else int(rng.choice([2, 4, 8]))
    return GpuTask(1000 * cores * n_gpus, memory * n_gpus, n_gpus, 1000)
