"""The kernel's figures, case by case: the call of the Python face that is measured, its peers, and a check that they agree.

Times are of the processor (`time.process_time`), the least of some runs. What is placed is given back outside the clock, so
that each run meets the same table.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeyard.core import packing
from beeyard.core.best_fit import FORM_PACK, BestFit
from beeyard.core.placement import Demand
from beeyard.core.preference import Preference
from benchmarks import plain_peers as peers
from benchmarks.filled_table import FilledTable
from tests.support.builders import CPU, GIB

SIZES = (1_000, 10_000, 100_000)
# Tasks that a peer is timed with, by nodes: each costs it the same.
PEER_TASKS = {1_000: 40, 10_000: 8, 100_000: 2}


@dataclasses.dataclass(kw_only=True)
class Figure:
    """One line of the table. Times are in microseconds of the processor a task."""

    case: str
    nodes: int
    tasks: int
    us: float
    oracle_us: float = 0.0  # plain Python
    numpy_us: float = 0.0
    natural_us: float = 0.0  # the loop that one writes first, compiled
    wanted_us: float
    bytes: float | None = None  # of memory, instead of a time

    def row(self) -> dict[str, Any]:
        """The line for whoever reads it with a program."""
        if self.bytes is not None:
            return {"case": self.case, "nodes": self.nodes, "tasks": self.tasks, "bytes": round(self.bytes, 1)}
        ratio = round(self.oracle_us / self.us, 1) if self.oracle_us else None
        return {
            "case": self.case,
            "nodes": self.nodes,
            "tasks": self.tasks,
            "cpu_us_per_task": round(self.us, 4),
            "ratio_to_oracle": ratio,
        }


def cpu_us(call: Callable[[], Any], rounds: int, undo: Callable[[], Any] = lambda: None) -> float:
    """The least time of some runs, in microseconds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
        undo()
    return min(times) * 1e6


def one_off(table: FilledTable, natural: Any, case: str) -> Figure:
    """Tasks of different sizes, each of a service of its own, as one batch."""
    demand, filters, wanted = {
        "one-off plain": (Demand(""), [], {}),
        "one-off filtered": (
            Demand("", constraints=("node.labels.disk==ssd",), volume_drivers=("nfs",)),
            [table.ssd, table.nfs],
            {1_000: 5.0, 10_000: 5.0, 100_000: 20.0},
        ),
        "one-off spread": (
            Demand(
                "",
                preferences=(Preference(descriptor="node.labels.zone"), Preference(descriptor="node.labels.rack")),
            ),
            [],
            {1_000: 20.0, 10_000: 20.0, 100_000: 20.0},
        ),
    }[case]
    n_tasks = 500 if table.n_nodes == 1_000 else 2_000
    needs, kinds, rows = table.amounts(n_tasks), np.zeros(n_tasks, dtype=np.int32), np.empty(n_tasks, dtype=np.int32)
    batches: list[Any] = []

    def place() -> None:
        batches[:] = [table.index.batch([demand])]
        assert batches[0].place(kinds, rows, needs) == n_tasks

    us = cpu_us(place, 7, lambda: batches[0].give_back(kinds, rows, needs)) / n_tasks
    passes, n = table.passing(*filters), PEER_TASKS[table.n_nodes]
    assert (
        rows[:n].tolist() == peers.python_spread(table, passes, needs, n) == peers.numpy_spread(table, passes, needs, n)
    )

    def loop() -> NDArray[np.int32]:
        out = np.empty(n, dtype=np.int32)
        natural.spread(table.free.copy(), table.tasks.copy(), table.tie, passes, needs[:n], out)
        return out

    assert rows[:n].tolist() == loop().tolist()
    return Figure(
        case=case,
        nodes=table.n_nodes,
        tasks=n_tasks,
        us=us,
        oracle_us=cpu_us(lambda: peers.python_spread(table, passes, needs, n), 2) / n,
        numpy_us=cpu_us(lambda: peers.numpy_spread(table, passes, needs, n), 3) / n,
        natural_us=cpu_us(loop, 3) / n,
        wanted_us=wanted.get(table.n_nodes, 1.0),
    )


def group(table: FilledTable, n_tasks: int) -> Figure:
    """Equal tasks of one service, as one group."""
    need = [CPU // 100, 16 << 20]
    demand = Demand("web", cpu_nano=need[0], memory_bytes=need[1])
    rows, pools = np.empty(n_tasks, dtype=np.int32), np.empty((n_tasks, 0), dtype=np.int32)
    index, kinds = table.index, np.zeros(n_tasks, dtype=np.int32)
    asks: list[Any] = []

    def place() -> None:
        asks[:] = [index._asking.ask(demand)]
        assert packing.spread(index._table, asks[0], rows, pools) == n_tasks

    us = cpu_us(place, 7, lambda: packing.give_back_each(index._table, asks, kinds, None, rows, pools)) / n_tasks
    few = PEER_TASKS[table.n_nodes]
    assert rows.tolist() == peers.python_group(table, need, n_tasks)
    assert rows[:few].tolist() == peers.numpy_group(table, need, few)
    return Figure(
        case="group",
        nodes=table.n_nodes,
        tasks=n_tasks,
        us=us,
        oracle_us=cpu_us(lambda: peers.python_group(table, need, n_tasks), 2) / n_tasks,
        numpy_us=cpu_us(lambda: peers.numpy_group(table, need, few), 2) / few,
        wanted_us=0.05 + 0.005 * table.n_nodes / n_tasks,
    )


def best_fit(table: FilledTable, natural: Any) -> Figure:
    """Tasks of different sizes of four kinds of resources, each where it fits best."""
    n_tasks = {1_000: 500, 10_000: 500, 100_000: 200}[table.n_nodes]
    needs, rows, index, search = table.amounts(n_tasks), np.empty(n_tasks, dtype=np.int32), table.index, BestFit()
    kinds, pools = np.zeros(n_tasks, dtype=np.int32), np.empty((n_tasks, 0), dtype=np.int32)
    asks: list[Any] = []

    def place() -> None:
        asks[:] = [index._asking.ask(Demand(""), alone=True)]
        assert search.place_each(index._table, asks[0], FORM_PACK, needs, rows) == n_tasks

    us = cpu_us(place, 7, lambda: packing.give_back_each(index._table, asks, kinds, needs, rows, pools)) / n_tasks
    n, free = PEER_TASKS[table.n_nodes], np.where(table.ready[:, None], table.free, -1)
    looped = np.empty(n_tasks, dtype=np.int32)

    def loop() -> None:
        natural.best_fit(free.copy(), table.total, needs, looped)

    _check_best(table, needs, rows)
    return Figure(
        case="best fit",
        nodes=table.n_nodes,
        tasks=n_tasks,
        us=us,
        oracle_us=cpu_us(lambda: peers.python_best_fit(table, needs, n), 2) / n,
        numpy_us=cpu_us(lambda: peers.numpy_best_fit(table, needs, n), 2) / n,
        natural_us=cpu_us(loop, 3) / n_tasks,
        wanted_us={1_000: 0.8, 10_000: 4.0, 100_000: 45.0}[table.n_nodes],
    )


def _check_best(table: FilledTable, needs: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
    """Each row is as good as the best by the rule in double precision, but for what single precision can tell apart."""
    free = table.free.copy()
    for need, row in zip(needs, rows.tolist(), strict=True):
        rest = free - need
        left = rest / table.total
        score = (left * left).sum(axis=1) + 0.5 * (left.max(axis=1) - left.min(axis=1))
        score[~(table.ready & (rest >= 0).all(axis=1))] = np.inf
        assert score[row] <= score.min() * (1 + 1e-4) + 1e-6, (row, score[row], score.min())
        free[row] -= need


def what_if(n_nodes: int = 10_000, n_tasks: int = 120_000) -> Figure:
    """What becomes of the tasks of one lost node; a question counts as one task."""
    table = FilledTable(n_nodes)
    rng = np.random.default_rng(5)
    demands = [Demand(f"s{number}", cpu_nano=CPU // 100, memory_bytes=GIB // 64) for number in range(100)]
    for number, row in enumerate(rng.integers(0, n_nodes, n_tasks).tolist()):
        table.index.hold(f"t{number}", demands[number % 100], table.ids[row])
    asked = [table.ids[row] for row in rng.choice(np.flatnonzero(table.ready), 100, replace=False).tolist()]

    def ask() -> None:
        for node_id in asked:
            assert table.index.what_if().lost([node_id]).moves

    lost = sum(len(list(table.index._holds.tasks_on(node_id))) for node_id in asked) / len(asked)
    needs = np.tile(np.array([[CPU // 100, GIB // 64]]), (4, 1))
    python = cpu_us(lambda: peers.python_spread(table, table.passing(), needs, 4), 2) / 4
    us = cpu_us(ask, 5) / len(asked)
    return Figure(
        case="what-if node lost",
        nodes=n_nodes,
        tasks=n_tasks,
        us=us,
        oracle_us=python * lost,
        wanted_us=1_000.0,
    )


def memory_of_nodes(n_nodes: int = 100_000) -> Figure:
    """Bytes of the kernel's table and index a node, with rooms watched as tasks of many sizes are placed, and of best fit."""
    table, fit = FilledTable(n_nodes, 4), BestFit()
    needs, rows, index = table.amounts(500), np.empty(500, dtype=np.int32), table.index
    index.batch([Demand("")]).place(np.zeros(500, dtype=np.int32), rows, needs)
    assert fit.place_each(index._table, index._asking.ask(Demand("")), FORM_PACK, needs, rows) > 0
    size = index._table.nbytes + fit.nbytes
    return Figure(case="memory node", nodes=n_nodes, tasks=500, us=0, wanted_us=256, bytes=size / n_nodes)


def memory_of_tasks(n_nodes: int = 5_000, n_tasks: int = 100_000, n_services: int = 100) -> Figure:
    """Bytes a task by which table, index and columns of services grow, and of the arrays that say where the tasks are."""
    table = FilledTable(n_nodes, 4)
    index, rows, size = table.index, [], 0
    for number in range(n_services):
        demand = Demand(f"s{number}", cpu_nano=CPU // 1000)
        ask = index._asking.ask(demand)
        size = size or index._table.nbytes
        rows.append(np.empty(n_tasks // n_services, dtype=np.int32))
        placed = packing.spread(index._table, ask, rows[-1], np.empty((len(rows[-1]), 0), dtype=np.int32))
        assert placed == len(rows[-1])
    columns = sum(column.nbytes for column in index._holds.services._columns.values())
    grown = index._table.nbytes - size + columns + sum(one.nbytes for one in rows)
    return Figure(case="memory task", nodes=n_nodes, tasks=n_tasks, us=0, wanted_us=64, bytes=grown / n_tasks)


def of_tables(natural: Any) -> Iterator[Figure]:
    """All cases that choose nodes."""
    for n_nodes in SIZES:
        table = FilledTable(n_nodes)
        for case in ("one-off plain", "one-off filtered", "one-off spread"):
            yield one_off(table, natural, case)
        if n_nodes != 10_000:
            yield group(table, 10_000 if n_nodes == 1_000 else 100_000)
        yield best_fit(FilledTable(n_nodes, 4), natural)
