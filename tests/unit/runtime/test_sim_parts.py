"""A simulated machine's kernel and tasks outlive its agent, and not its power."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.errors import ExecutorError
from beeyard.core.model import TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import Controller, Host
from beeyard.runtime.sim import SimHost, SimWorld
from beeyard.runtime.sim_parts import FakeParts

TASK = AssignedTask(
    id="t1",
    service_id="s1",
    service_name="web",
    slot=1,
    spec=TaskSpec(image="host", command=("sleep", "1000")),
    desired_state=TaskState.RUNNING,
)


class Agents:
    """A daemon that runs TASK unless it finds it, and keeps what it found."""

    def __init__(self) -> None:
        self.found: list[list[str]] = []
        self.held: Controller | None = None

    async def run(self, host: Host) -> None:
        """One life."""
        executor = host.executors[0]
        assert executor.runs("host")
        recovered = await executor.recover()
        self.found.append([controller.phase for controller in recovered])
        self.held = recovered[0] if recovered else await executor.create(TASK)
        if not recovered:
            await self.held.prepare()
            await self.held.start()
        await trio.sleep_forever()


async def test_tasks_outlive_a_crash_and_not_a_power_cut(autojump_clock: MockClock) -> None:
    """After a crash the task is found running with its namespace, after a power cut ended without one."""
    async with SimWorld(1, parts=FakeParts) as world:
        agents = Agents()
        world.start("a1", agents.run)
        parts = world.machine("a1").parts
        assert isinstance(parts, FakeParts)
        await trio.sleep(1)
        assert len(parts.kernel.namespaces) == 1
        old = agents.held
        assert old is not None
        world.crash("a1")
        with pytest.raises(ExecutorError, match="crashed"):
            await old.stop()
        assert parts.tasks.started == ["t1"]
        world.restart("a1")
        await trio.sleep(1)
        world.power_cut("a1")
        assert parts.tasks.started == []
        assert parts.kernel.namespaces == ()
        world.power_on("a1")
        await trio.sleep(1)
        assert agents.found == [[], ["started"], ["exited"]]


async def test_paused_machine_holds_its_executor_and_kernel(autojump_clock: MockClock) -> None:
    """Nothing is prepared, and nothing asked of the kernel, while the CPU stands still."""
    async with SimWorld(1, parts=FakeParts) as world:
        host: SimHost = world.host("a1")
        controller = await host.executors[0].create(TASK)
        world.pause("a1")
        for call in (controller.prepare, lambda: enter_namespace(host)):
            with trio.move_on_after(60) as scope:
                await call()
            assert scope.cancelled_caught
        assert controller.phase == "new"
        world.resume("a1")
        await controller.prepare()
        assert controller.phase == "prepared"
        await enter_namespace(host)
        host.life.end()
        with pytest.raises(OSError, match="crashed"):
            await enter_namespace(host)


async def enter_namespace(host: SimHost) -> None:
    """A call to the kernel that any state of the machine allows."""
    async with host.netlink.netns_fd(""):
        pass
