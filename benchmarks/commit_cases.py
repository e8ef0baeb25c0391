"""What deciding and storing costs together: tasks that wait get their nodes, and the store has it, 1,000 in a transaction.

In memory it is the manager's store on a database that keeps what it is given; durable is SQLite with synchronous=FULL below
/var/tmp (BEEYARD_BENCH_DIR changes that). The peer decides with plain Python loops and stores one task in a transaction.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import trio

from beeyard.core.model import Resources, Task, TaskSpec, TaskStatus
from beeyard.core.placement import Demand
from beeyard.core.states import TaskState
from beeyard.manager.store import Store, Transaction
from beeyard.runtime import real
from beeyard.runtime.host import Host
from benchmarks import plain_peers as peers
from benchmarks.filled_table import FilledTable
from benchmarks.kernel_cases import Figure, cpu_us
from tests.support.builders import CPU
from tests.support.manager_world import MemoryHost
from tests.support.memory_database import MemoryDatabase

N_NODES, N_TASKS, N_SERVICES, LOT = 5_000, 100_000, 100, 1_000
N_ALONE = 200
SPEC = TaskSpec(image="host", args=("true",), reservations=Resources(cpu_nano=CPU // 100, memory_bytes=16 << 20))


def a_task(number: int) -> Task:
    """Waits for a node."""
    return Task(
        id=f"t{number:024}",
        service_id=f"s{number // (N_TASKS // N_SERVICES)}",
        service_name="web",
        slot=number + 1,
        spec=SPEC,
        spec_version=1,
        desired_state=TaskState.RUNNING,
        status=TaskStatus(state=TaskState.PENDING, message="pending task scheduling"),
    )


def create(first: int, tx: Transaction) -> None:
    for number in range(first, first + LOT):
        tx.create(a_task(number))


def assign(placed: list[tuple[str, str]], tx: Transaction) -> None:
    """As the lifecycle does it, without hooks."""
    status = TaskStatus(state=TaskState.ASSIGNED, message="scheduler assigned task to node", at_s=tx.now_s)
    for task_id, node_id in placed:
        tx.change(tx.tasks[task_id], node_id=node_id, status=status)


async def decide_and_store(store: Store, table: FilledTable) -> float:
    """Seconds of the processor for all tasks."""
    for first in range(0, N_TASKS, LOT):
        await store.commit(partial(create, first))
    groups: dict[Demand, list[str]] = {}
    for task in store.tasks.values():
        groups.setdefault(Demand.of(task), []).append(task.id)
    begin = time.process_time()
    for demand, task_ids in groups.items():
        placed = table.index.place(demand, task_ids).placed
        assert len(placed) == len(task_ids)
        pairs = [(task_id, where.node_id) for task_id, where in zip(task_ids, placed, strict=True)]
        for at in range(0, len(pairs), LOT):
            await store.commit(partial(assign, pairs[at : at + LOT]))
    took_s = time.process_time() - begin
    for task_id in (task_id for task_ids in groups.values() for task_id in task_ids):
        table.index.drop(task_id)
    return took_s


async def store_alone(store: Store) -> float:
    """Seconds of the processor for one task in a transaction of its own."""
    await store.commit(partial(create, 0))
    begin = time.process_time()
    for number in range(N_ALONE):
        await store.commit(partial(assign, [(f"t{number:024}", "node")]))
    return (time.process_time() - begin) / N_ALONE


async def seconds(host_of: Callable[[str], Host], path: str, table: FilledTable) -> tuple[float, float]:
    """Of all tasks in groups, and of one alone, each with an empty store."""
    took = []
    for name, work in (("lots", partial(decide_and_store, table=table)), ("alone", store_alone)):
        store = await Store.open(host_of(name), f"{path}/{name}.db")
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            took.append(await work(store))
            nursery.cancel_scope.cancel()
    return took[0], took[1]


def in_memory(name: str) -> Host:
    """A host with a database of its own in memory."""
    return cast("Host", MemoryHost(MemoryDatabase()))


def all_cases() -> Iterator[Figure]:
    """In memory, then durably."""
    table = FilledTable(N_NODES)
    python_us = cpu_us(lambda: peers.python_spread(table, table.passing(), table.amounts(4), 4), 2) / 4
    durable = real.host()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BEEYARD_BENCH_DIR", "/var/tmp")) as path:
        for case, host_of, wanted_us in (
            ("commit memory", in_memory, 10.0),
            ("commit durable", lambda name: durable, 1e6 / 30_000),
        ):
            lots_s, alone_s = trio.run(seconds, host_of, path, table)
            yield Figure(
                case=case,
                nodes=N_NODES,
                tasks=N_TASKS,
                us=lots_s / N_TASKS * 1e6,
                oracle_us=python_us + alone_s * 1e6,
                wanted_us=wanted_us,
            )
