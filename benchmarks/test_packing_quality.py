"""How well the strategies pack the public openb trace: nodes with shared GPUs, and equal bins of 96 cores.

The trace is not in this repository: the variable BEEYARD_TRACES names a directory with `openb/` as published at
github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; without it these skip. CPU time of the kernel's calls and the
Python around them.

Source: F. Weng et al., ATC'23 and the repository of its simulator, for the offered load of 130 % and what it reached
(95.4 % of the GPUs by FGD, 93.1 % by best fit, 90.9 % by dot product, at about 6 placements a CPU second).
"""

from __future__ import annotations

import csv
import math
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beeyard.core.bin_packing import BinPacking
from beeyard.core.fragments import Fragments

Needs = tuple[tuple[int, ...], int, int]  # CPU in 1e-3 cores and memory in MiB, GPUs, 1e-3 of each

WHOLE = 1000  # milli-GPUs
SEEDS = 10
CLASSES = 64
BIN = ((96_000, 768 * 1024), 8)  # CPU in 1e-3 cores, memory in MiB, GPUs

# Measured: 95.6 %, 14,000 a CPU second. Bins after 2 s of improving: 889 (0.6 % above the bound). Bins online: see below.
PUBLISHED_PERCENT = 95.4
PLACEMENTS_MIN = 6_000
BATCH_GAP_MAX = 0.01  # a busy machine takes no fewer steps in two seconds of its own time

# GPUs as an amount of a kind, as the node table counts them and as the figures that this is measured by do (first fit
# 908, column generation 887 for all at once), or as single devices, of which a task needs whole ones or a part of one.
ONLINE_BINS_MAX = {"amounts": 907, "devices": 913}
FIRST_FIT_BINS = {"amounts": 908, "devices": 911}


@pytest.fixture(scope="module")
def trace() -> tuple[list[tuple[int, int, int]], list[Needs]]:
    """Nodes with GPUs, as (CPU, memory, GPUs), and what each task needs."""
    folder = Path(os.environ.get("BEEYARD_TRACES", "../shared/data")) / "openb"
    if not folder.is_dir():
        pytest.skip(f"no openb trace in {folder}: BEEYARD_TRACES names the directory that has it")
    with open(folder / "openb_node_list_all_node.csv") as file:
        nodes = [(int(n["cpu_milli"]), int(n["memory_mib"]), int(n["gpu"])) for n in csv.DictReader(file)]
    with open(folder / "openb_pod_list_default.csv") as file:
        tasks: list[Needs] = [
            ((int(t["cpu_milli"]), int(t["memory_mib"])), int(t["num_gpu"]), int(t["gpu_milli"]) or WHOLE)
            for t in csv.DictReader(file)
        ]
    return [node for node in nodes if node[2]], tasks


def gpus(needs: Needs) -> int:
    return needs[1] * needs[2]


class Learner:
    """Tells fragments which classes of tasks are usual, from those asked for so far, whenever there are twice as many."""

    def __init__(self, fragments: Fragments) -> None:
        self.fragments, self.asked, self.next = fragments, Counter[Needs](), 32

    def note(self, needs: Needs) -> None:
        self.asked[needs] += 1
        if self.asked.total() == self.next:
            self.next *= 2
            self.fragments.set_mix(self.asked.most_common(CLASSES))


def offered(tasks: list[Needs], everything: int, seed: int) -> list[Needs]:
    """The tasks in random order, and random ones of them again up to 130 % of all GPUs."""
    rng = random.Random(seed)
    order = rng.sample(tasks, len(tasks))
    total = sum(map(gpus, order))
    while total < 1.3 * everything:
        order.append(rng.choice(tasks))
        total += gpus(order[-1])
    return order


def test_fgd_gives_shared_gpus_away(benchmark: Any, trace: Any) -> None:
    """Online, nothing known beforehand: each task is placed before the next one is seen, and stays."""
    nodes, tasks = trace
    everything = WHOLE * sum(node[2] for node in nodes)
    shares, rates = [], []
    for seed in range(SEEDS):
        fragments, order, given = Fragments(2), offered(tasks, everything, seed), 0
        for row, (cpu, memory, n_gpus) in enumerate(nodes):
            fragments.set_row(row, [cpu, memory], [cpu, memory], [WHOLE] * n_gpus)
        learner, begin = Learner(fragments), time.process_time()
        for needs in order:
            learner.note(needs)
            row, device = fragments.best(needs)
            if row >= 0:
                fragments.take(row, device, needs)
                given += gpus(needs)
        rates.append(len(order) / (time.process_time() - begin))
        shares.append(100 * given / everything)
    benchmark.extra_info["gpus_given_percent"] = [round(share, 2) for share in shares]
    benchmark.extra_info["mean_percent"] = round(sum(shares) / SEEDS, 2)
    benchmark.extra_info["placements_per_cpu_s"] = round(sum(rates) / SEEDS)
    benchmark.pedantic(lambda: fragments.best(tasks[0]), rounds=5)
    assert sum(shares) / SEEDS >= PUBLISHED_PERCENT
    assert max(rates) >= PLACEMENTS_MIN


def in_bins(tasks: list[Needs]) -> tuple[list[Needs], int]:
    """Tasks that a bin can hold, and the least number of bins for the kind that needs most."""
    fitting = [needs for needs in tasks if needs[0][0] <= BIN[0][0] and needs[0][1] <= BIN[0][1]]
    volumes = [sum(needs[0][kind] for needs in fitting) / BIN[0][kind] for kind in range(2)]
    return fitting, math.ceil(max(*volumes, sum(map(gpus, fitting)) / (WHOLE * BIN[1])))


def as_amounts(needs: Needs) -> Needs:
    """The same task, its GPUs one more kind."""
    return (*needs[0], gpus(needs)), 0, WHOLE


def open_bin(fragments: Fragments) -> None:
    """An empty bin, its GPUs a kind if there is one for them."""
    amounts = [*BIN[0], WHOLE * BIN[1]][: fragments.n_kinds]
    fragments.set_row(fragments.n_rows, amounts, amounts, [WHOLE] * BIN[1] if fragments.n_kinds == 2 else [])


def online(fragments: Fragments, tasks: list[Needs], learner: Learner | None) -> int:
    """Bins that are opened when each task stays where it is put before the next is seen; no learner: first fit."""
    for needs in tasks:
        if learner is not None:
            learner.note(needs)
        # Without usual tasks nothing is lost, and the first row that fits is the best.
        row, device = fragments.best(needs)
        if row < 0:
            open_bin(fragments)
            row, device = fragments.best(needs)
        fragments.take(row, device, needs)
    return fragments.n_rows


@pytest.mark.parametrize("gpus_as", ["amounts", "devices"])
def test_equal_bins_online(benchmark: Any, trace: Any, gpus_as: str) -> None:
    """Each task in the order of the trace; a bin is opened when none that is open has room."""
    tasks, bound = in_bins(trace[1])
    if gpus_as == "amounts":
        tasks = list(map(as_amounts, tasks))
    n_kinds = len(tasks[0][0])
    first_fit = online(Fragments(n_kinds), tasks, None)
    fragments, begin = Fragments(n_kinds), time.process_time()
    bins = online(fragments, tasks, Learner(fragments))
    seconds = round(time.process_time() - begin, 2)
    benchmark.extra_info.update(bins=bins, first_fit=first_fit, bound=bound, cpu_s=seconds)
    benchmark.pedantic(lambda: fragments.best(tasks[0]), rounds=5)
    assert bound <= bins <= ONLINE_BINS_MAX[gpus_as]
    assert first_fit == FIRST_FIT_BINS[gpus_as]


def test_equal_bins_in_a_batch(benchmark: Any, trace: Any) -> None:
    """All tasks at once: bin by bin, then two seconds of improving."""
    tasks, bound = in_bins(trace[1])
    classes = sorted(Counter(tasks).items())
    pressure = [sum(needs[0][kind] for needs in tasks) / BIN[0][kind] for kind in range(2)]
    pressure.append(sum(map(gpus, tasks)) / (WHOLE * BIN[1]))
    begin = time.process_time()
    packing = BinPacking(2, classes, [one / max(pressure) for one in pressure])
    for _ in range(2 * bound):
        packing.add_bin(list(BIN[0]), list(BIN[0]), [WHOLE] * BIN[1], False)
    assert packing.fill() == 0
    at_once, at_once_s = packing.n_opened(), time.process_time() - begin
    rounds = 0
    while time.process_time() - begin < 2.0:
        packing.improve(2000)
        rounds += 2000
    benchmark.extra_info.update(
        bins=packing.n_opened(), bins_at_once=at_once, at_once_s=round(at_once_s, 3), rounds=rounds, bound=bound
    )
    benchmark.pedantic(lambda: packing.improve(1), rounds=5)
    assert bound <= packing.n_opened() <= (1 + BATCH_GAP_MAX) * bound
