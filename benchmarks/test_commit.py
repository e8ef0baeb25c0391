"""What a durable write costs: one caller alone, 100 callers who share their fsyncs, and tasks in batches.

    ./yard bench commit --json FILE

The store is the manager's own: SQLite with synchronous=FULL, below `/var/tmp` (BEEYARD_BENCH_DIR changes that; a file system
in memory has no fsync to share). What is asserted is a ratio of CPU times of one run: a busy machine changes it little.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from beeyard.core.model import Resources, Task, TaskSpec, TaskStatus
from beeyard.core.states import TaskState
from beeyard.manager.store import Store, Transaction
from beeyard.runtime import real

N_ALONE = 300
N_CALLERS, N_EACH = 100, 30
N_TASKS = 10_000
# Of CPU times: a third of what was measured. Wall times have a ratio too, which depends on the disk and its other users.
GROUP_OVER_ALONE_MIN = 4.0

SPEC = TaskSpec(image="host", args=("sleep", "infinity"), reservations=Resources(cpu_nano=10**8, memory_bytes=64 << 20))


@pytest.fixture
def directory() -> Iterator[str]:
    """A directory on a real disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BEEYARD_BENCH_DIR", "/var/tmp")) as path:
        yield path


def a_task(number: int) -> Task:
    return Task(
        id=f"t{number:024}",
        service_id="web",
        service_name="web",
        slot=number + 1,
        spec=SPEC,
        spec_version=1,
        desired_state=TaskState.RUNNING,
        status=TaskStatus(state=TaskState.NEW, message="created"),
    )


def create(numbers: range, tx: Transaction) -> None:
    for number in numbers:
        tx.create(a_task(number))


def move_on(numbers: range, state: TaskState, tx: Transaction) -> None:
    """As `Lifecycle` does it."""
    for number in numbers:
        task = tx.find(Task, f"t{number:024}")
        tx.update(msgspec.structs.replace(task, status=TaskStatus(state=state, message="moved on", at_s=tx.now_s)))


async def with_store(path: str, work: Callable[[Store], Awaitable[None]]) -> tuple[float, float]:
    """Wall and CPU seconds of `work` on an empty store."""
    store = await Store.open(real.host(), path)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await work(store)
        took = time.perf_counter() - began_s, time.process_time() - cpu_s
        nursery.cancel_scope.cancel()
    return took


async def alone(store: Store) -> None:
    for number in range(N_ALONE):
        await store.commit(partial(create, range(number, number + 1)))


async def together(store: Store) -> None:
    async def caller(first: int) -> None:
        for number in range(first, first + N_EACH):
            await store.commit(partial(create, range(number, number + 1)))

    async with trio.open_nursery() as nursery:
        for n in range(N_CALLERS):
            nursery.start_soon(caller, n * N_EACH)


async def whole_life(store: Store, batch: int) -> None:
    """Every task is created and moved on three times, as on its way to RUNNING."""
    lots = [range(first, first + batch) for first in range(0, N_TASKS, batch)]
    for lot in lots:
        await store.commit(partial(create, lot))
    for state in (TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING):
        for lot in lots:
            await store.commit(partial(move_on, lot, state))


def test_group_commit(benchmark: Any, directory: str) -> None:
    """One write a commit: 100 callers against one."""
    wall_s, cpu_s = trio.run(with_store, f"{directory}/alone.db", alone)
    group: list[tuple[float, float]] = []

    def run() -> None:
        group.append(trio.run(with_store, f"{directory}/together{len(group)}.db", together))

    benchmark.pedantic(run, rounds=3)
    group_wall_s, group_cpu_s = min(group)
    n_group = N_CALLERS * N_EACH
    cpu_ratio = (cpu_s / N_ALONE) / (group_cpu_s / n_group)
    benchmark.extra_info.update(
        alone_commits_per_s=round(N_ALONE / wall_s),
        alone_cpu_us=round(cpu_s / N_ALONE * 1e6),
        together_commits_per_s=round(n_group / group_wall_s),
        together_cpu_us=round(group_cpu_s / n_group * 1e6),
        rate_ratio=round((n_group / group_wall_s) / (N_ALONE / wall_s), 1),
        cpu_ratio=round(cpu_ratio, 1),
    )
    print(benchmark.extra_info)
    assert cpu_ratio > GROUP_OVER_ALONE_MIN


@pytest.mark.parametrize("batch", [100, 1000])
def test_tasks_in_batches(benchmark: Any, directory: str, batch: int) -> None:
    """10,000 tasks through the four writes of their way to RUNNING, so many in a commit."""
    took: list[tuple[float, float]] = []

    def run() -> None:
        took.append(trio.run(with_store, f"{directory}/{len(took)}.db", partial(whole_life, batch=batch)))

    benchmark.pedantic(run, rounds=3)
    wall_s, cpu_s = min(took)
    benchmark.extra_info.update(
        writes_per_s=round(4 * N_TASKS / wall_s), cpu_us_per_write=round(cpu_s / (4 * N_TASKS) * 1e6, 1)
    )
    print(benchmark.extra_info)
