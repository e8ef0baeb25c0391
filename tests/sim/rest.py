"""When a simulated cluster has come to rest: what was asked for runs, what must hold holds, and what was removed is gone."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from tests.sim import checkers

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.workload import Workload

# Heartbeats, sessions that are given up, restart delays and TCP's longest pause, one after the other.
LIVENESS_S = 400.0
# As long as only a plugin is broken: pinned slots whose addresses strangers had wait longest, and no question to a plugin may
# be waited for, which has 300 s.
OTHERS_S = 200.0
# An address rests 30 s before it is free again.
COOL_DOWN_S = 40.0
# Whatever is under way while somebody looks is done by then: a stop may take 10 s of grace and some tries.
AT_REST_S = 60.0
_STILL_HAS_IT = re.compile(r"waits for address \S+: task \S+ \((\w+)\) on node \S+ still has it")


async def until_converged(cluster: Cluster, workload: Workload, *, without: str = "") -> None:
    """Every service has its replicas running; `tests/sim/sizes.py` sees to it that all fit.

    `without`: but for those on this network.
    """
    wanted_of = await workload.wanted_tasks(without)
    wanted = sum(wanted_of.values())
    limit_s = OTHERS_S if without else LIVENESS_S
    deadline = trio.current_time() + limit_s
    while True:
        tasks = [task for task in await cluster.tasks() if task["ServiceID"] in wanted_of]
        running = [task for task in tasks if task["Status"]["State"] == "running" and task["DesiredState"] == "running"]
        # Tasks that end by themselves are replaced after a second: nearly all, at one moment, is all there ever is.
        n_kept_out = sum(_waits_for_one_of(task, running) for task in tasks)
        if len(running) + n_kept_out >= wanted - wanted // 5:
            return
        assert trio.current_time() < deadline, (
            f"{len(running)} of {wanted} tasks{f' on other networks than {without}' if without else ''} run "
            f"{limit_s:g} s after everything {'else ' if without else ''}was healed: {_waiting(tasks)}"
        )
        await trio.sleep(1)


def _waits_for_one_of(task: dict[str, Any], running: list[dict[str, Any]]) -> bool:
    """Whether a slot's pinned address has a task that was there first and is to run on, which its task says."""
    found = _STILL_HAS_IT.fullmatch(task["Status"].get("Err", ""))
    return found is not None and found[1] in [other["ID"] for other in running]


async def until_empty(cluster: Cluster) -> None:
    """No task is left, and every address has rested."""
    deadline = trio.current_time() + LIVENESS_S
    while True:
        tasks = await cluster.tasks()
        if not tasks and not any(checkers.running_tasks(machine) for machine in cluster.world.machines.values()):
            break
        assert trio.current_time() < deadline, f"not gone after {LIVENESS_S:g} s: {_waiting(tasks)}"
        await trio.sleep(1)
    await trio.sleep(COOL_DOWN_S)


async def until_it_holds(check: Callable[[], Awaitable[None]], *, within_s: float = AT_REST_S) -> None:
    """A check passes, at the latest when everything that is under way has ended."""
    deadline = trio.current_time() + within_s
    while True:
        try:
            await check()
            return
        except AssertionError:
            if trio.current_time() >= deadline:
                raise
        await trio.sleep(1)


def _waiting(tasks: list[dict[str, Any]]) -> list[str]:
    """The first few tasks that do not run, with why."""
    return [
        f"{task['ID'][:8]} {task['Status']['State']} of {task['DesiredState']}: "
        f"{task['Status'].get('Err') or task['Status'].get('Message')}"
        for task in tasks
        if task["Status"]["State"] != task["DesiredState"]
    ][:5]
