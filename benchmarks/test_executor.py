"""What a task of executor `process` costs before its program runs: time, processor and memory. Needs root.

`pytest benchmarks/test_executor.py -s` prints a table. Compared in the same run with a task's namespaces made by the simplest
means that Python has: a fork of this process, an unshare of network and PID namespace, and its end. What is asserted are
ratios; a busy machine changes them little. `processes_cpu_ms_per_task` is all that a task costs in zygote, shim and program,
from its order to the end of its shim.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from pathlib import Path

import pytest
import trio

from beeyard.agent.executors.process import kernel
from beeyard.agent.executors.process.controller import ProcessController
from tests.support.executor_machine import RUNS, a_task
from tests.support.process_machine import ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns

N_TASKS = 50


def cpu_ms(pid: int) -> float:
    """Processor time that a process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def family_cpu_ms(pid: int) -> float:
    """Processor time of a process and of all its children that have ended, by the clock tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1e3 / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int) -> tuple[int, int]:
    """(private, proportional) memory of a process."""
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    sizes = {row[0]: int(row[1]) for row in rows}
    return sizes["Private_Clean:"] + sizes["Private_Dirty:"], sizes["Pss:"]


def floor_ms() -> float:
    """Median of a bare fork with a network and a PID namespace."""
    times_ms = []
    gc.collect()
    for _ in range(20):
        reader, writer = os.pipe()
        started = time.perf_counter()
        child = os.fork()
        if child == 0:
            kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWPID)
            os.write(writer, b"x")
            os._exit(0)
        os.read(reader, 1)
        times_ms.append((time.perf_counter() - started) * 1e3)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    return statistics.median(times_ms)


async def measure(machine: ProcessMachine) -> dict[str, float]:
    """Prepare and start tasks one after another, then end them all at once."""
    controllers: list[ProcessController] = []
    prepare_ms: list[float] = []
    start_ms: list[float] = []
    warm = await machine.executor.create(a_task(machine, RUNS))
    await warm.prepare()
    await warm.remove()
    zygote_before_ms = cpu_ms(machine.executor.zygote_pid)
    family_before_ms = family_cpu_ms(machine.executor.zygote_pid)
    for n in range(N_TASKS):
        controller = await machine.executor.create(a_task(machine, RUNS, task_id=f"t{n:024}"))
        assert isinstance(controller, ProcessController)
        controllers.append(controller)
        begun = time.perf_counter()
        await controller.prepare()
        prepared = time.perf_counter()
        await controller.start()
        prepare_ms.append((prepared - begun) * 1e3)
        start_ms.append((time.perf_counter() - prepared) * 1e3)
    zygote_ms = cpu_ms(machine.executor.zygote_pid) - zygote_before_ms
    memory = [memory_kib(controller.shim_pid) for controller in controllers]
    shim_ms = [cpu_ms(controller.shim_pid) for controller in controllers]
    begun = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for controller in controllers:
            nursery.start_soon(controller.remove)
    remove_ms = (time.perf_counter() - begun) * 1e3
    await machine.until_zygote_is_childless()
    family_ms = family_cpu_ms(machine.executor.zygote_pid) - family_before_ms
    return {
        "processes_cpu_ms_per_task": family_ms / N_TASKS,
        "prepare_ms_median": statistics.median(prepare_ms),
        "prepare_ms_min": min(prepare_ms),
        "start_ms_median": statistics.median(start_ms),
        "start_ms_min": min(start_ms),
        "remove_ms_per_task": remove_ms / N_TASKS,
        "zygote_cpu_ms_per_task": zygote_ms / N_TASKS,
        "shim_cpu_ms_median": statistics.median(shim_ms),
        "private_kib_median": statistics.median(private for private, _ in memory),
        "proportional_kib_median": statistics.median(proportional for _, proportional in memory),
    }


def test_task_costs_little_more_than_its_namespaces(benchmark):
    """A prepared task costs a small multiple of a bare fork with namespaces, and half a MiB at most."""
    figures: dict[str, float] = {}

    async def main() -> None:
        async with a_process_machine() as machine:
            figures.update(await measure(machine))

    benchmark.pedantic(trio.run, args=(main,), rounds=1)
    figures["floor_ms_median"] = floor_ms()
    figures["floor_ratio"] = figures["prepare_ms_median"] / figures["floor_ms_median"]
    rounded = {name: round(value, 2) for name, value in figures.items()}
    benchmark.extra_info.update(rounded)
    print("\n", rounded)
    assert figures["private_kib_median"] < 512
    assert figures["floor_ratio"] < 5
