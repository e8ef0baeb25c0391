"""A machine under test, as the executor's conformance suite sees it, and tasks for it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from beeyard.core.model import TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import Controller, Executor

EXITS_3 = "exits 3"
RUNS = "runs until SIGTERM"
IGNORES_TERM = "runs on after SIGTERM"
MISSING = "no such program"


class Machine(Protocol):
    """A machine under test."""

    @property
    def executor(self) -> Executor:
        """Of the agent's current life."""

    def command(self, kind: str) -> tuple[str, ...]:
        """A command of one of the kinds above."""

    async def until_ready(self, controller: Controller) -> None:
        """Wait until a started command has done what makes it of its kind."""

    async def restart_agent(self) -> None:
        """The agent dies without warning and a new one has an executor of its own."""

    async def kill_shim(self, task_id: str) -> None:
        """Whoever holds the task is killed the hard way."""

    async def add_link(self, controller: Controller) -> None:
        """Put a link that is up into the task's namespace."""

    async def links_up(self, controller: Controller) -> list[str]:
        """Names of the links that are up in the task's namespace, except loopback."""

    async def leftovers(self) -> list[str]:
        """All that exists on the machine because of tasks, settled: empty when none is left."""


def a_task(
    machine: Machine,
    kind: str = RUNS,
    *,
    task_id: str = "t" * 25,
    lease_s: float = 3600.0,
    fence: bool = False,
    stop_grace_s: float = 5.0,
    **spec: object,
) -> AssignedTask:
    """A task of the given kind, as the manager assigns it."""
    made = TaskSpec(image="host", command=machine.command(kind), stop_grace_s=stop_grace_s)
    return AssignedTask(
        id=task_id,
        service_id="s" * 25,
        service_name="web",
        slot=1,
        spec=msgspec.structs.replace(made, **spec),
        desired_state=TaskState.RUNNING,
        lease_s=lease_s,
        fence=fence,
    )


async def started(machine: Machine, task: AssignedTask) -> Controller:
    """A controller whose command runs."""
    controller = await machine.executor.create(task)
    await controller.prepare()
    await controller.start()
    await machine.until_ready(controller)
    return controller
