"""What every executor promises, checked the same way on the fake one and on the real one.

`CHECKS` are the promises, one async function each, taking a `Machine`: parametrise a test over them. `check_executor` runs
them all. Waiting is real on a real machine, so all times here are short.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID, TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import Controller, Executor, ExitStatus

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


async def check_phases_come_in_order(machine: Machine) -> None:
    """new → prepared → started → exited; create touches nothing, and remove leaves nothing."""
    controller = await machine.executor.create(a_task(machine))
    assert (controller.phase, controller.netns, controller.pid) == ("new", "", 0)
    assert await machine.leftovers() == []
    await controller.prepare()
    assert controller.phase == "prepared"
    assert controller.netns != ""
    await controller.start()
    assert controller.phase == "started"
    assert controller.pid > 0
    await controller.stop()
    assert controller.phase == "exited"
    await controller.remove()
    assert await machine.leftovers() == []


async def check_every_call_may_be_repeated(machine: Machine) -> None:
    """Each call is idempotent: the second has no effect and no error."""
    controller = await machine.executor.create(a_task(machine))
    await controller.prepare()
    netns = controller.netns
    await controller.prepare()
    await controller.start()
    pid = controller.pid
    await controller.start()
    assert (netns, pid) == (controller.netns, controller.pid)
    await controller.links_down()
    await controller.links_down()
    first = await controller.stop()
    assert first == await controller.stop() == await controller.wait() == await controller.wait()
    await controller.remove()
    await controller.remove()
    assert await machine.leftovers() == []


async def check_the_exit_code_is_told(machine: Machine) -> None:
    """A process that ends by itself leaves its exit code to everyone who waits, before and after."""
    controller = await started(machine, a_task(machine, EXITS_3))
    assert ExitStatus(code=3) == await controller.wait()
    assert controller.phase == "exited"
    assert ExitStatus(code=3) == await controller.stop()
    await controller.remove()


async def check_links_go_down_when_the_process_ends(machine: Machine) -> None:
    """Nobody has to ask: a task that ended answers for no address."""
    controller = await machine.executor.create(a_task(machine, EXITS_3))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    await controller.wait()
    assert await machine.links_up(controller) == []
    await controller.remove()


async def check_stop_sends_the_signal(machine: Machine) -> None:
    """A process without a handler dies of the stop signal, long before the grace is over."""
    controller = await started(machine, a_task(machine, RUNS, stop_grace_s=60.0))
    with trio.fail_after(5):
        status = await controller.stop()
    assert ExitStatus(code=128 + 15, signal=15) == status
    await controller.remove()


async def check_stop_kills_after_the_grace(machine: Machine) -> None:
    """A process that ignores the stop signal is killed when the grace is over, and the status says so."""
    controller = await started(machine, a_task(machine, IGNORES_TERM, stop_grace_s=0.3))
    status = await controller.stop()
    assert status is not None
    assert (status.code, status.signal) == (128 + 9, 9)
    assert "0.3 s" in status.reason
    await controller.remove()
    assert await machine.leftovers() == []


async def check_stop_before_start(machine: Machine) -> None:
    """A task that never started has no status; its links are down and it can not start any more."""
    controller = await machine.executor.create(a_task(machine))
    assert await controller.stop() is None
    await controller.prepare()
    await machine.add_link(controller)
    assert await controller.stop() is None
    assert await machine.links_up(controller) == []
    with pytest.raises(ExecutorError):
        await controller.start()
    with pytest.raises(ExecutorError):
        await controller.wait()
    await controller.remove()
    assert await machine.leftovers() == []


async def check_links_first(machine: Machine) -> None:
    """With links_first the links are down while the process still has its grace."""
    controller = await machine.executor.create(a_task(machine, IGNORES_TERM, stop_grace_s=1.0))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    await machine.until_ready(controller)
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await controller.stop(links_first=True)

        nursery.start_soon(stop)
        await trio.sleep(0.4)
        assert controller.phase == "started"
        assert await machine.links_up(controller) == []
    await controller.remove()


async def check_a_missing_command_is_named(machine: Machine) -> None:
    """A command that does not exist fails the start by its name, and what was prepared can be removed."""
    task = a_task(machine, MISSING)
    controller = await machine.executor.create(task)
    await controller.prepare()
    with pytest.raises(ExecutorError) as caught:
        await controller.start()
    assert caught.value.phase == "start"
    assert task.spec.command[0] in str(caught.value)
    assert await controller.stop() is None
    await controller.remove()
    assert await machine.leftovers() == []


async def check_an_unknown_stop_signal_is_refused(machine: Machine) -> None:
    """A stop signal that does not exist is told before anything runs."""
    controller = await machine.executor.create(a_task(machine, stop_signal="SIGNONSENSE"))
    with pytest.raises(ExecutorError, match="SIGNONSENSE"):
        await controller.prepare()
    assert await machine.leftovers() == []


async def check_the_host_network_is_left_alone(machine: Machine) -> None:
    """A task on the host's network has no namespace of its own, and taking its links down touches no link."""
    controller = await started(machine, a_task(machine, network_ids=(HOST_NETWORK_ID,)))
    assert controller.netns == ""
    before = await machine.links_up(controller)
    await controller.links_down()
    assert before == await machine.links_up(controller)
    await controller.stop(links_first=True)
    assert before == await machine.links_up(controller)
    await controller.remove()


async def check_tasks_outlive_the_agent(machine: Machine) -> None:
    """After a crash of the agent its tasks run on, and the next agent finds them in their phases."""
    running = await started(machine, a_task(machine, task_id="a" * 25))
    ended = await started(machine, a_task(machine, EXITS_3, task_id="b" * 25))
    await ended.wait()
    prepared = await machine.executor.create(a_task(machine, task_id="c" * 25))
    await prepared.prepare()
    pid, netns = running.pid, running.netns
    await machine.restart_agent()
    found = {c.task_id: c for c in await machine.executor.recover()}
    assert {i: c.phase for i, c in found.items()} == {"a" * 25: "started", "b" * 25: "exited", "c" * 25: "prepared"}
    assert (pid, netns) == (found["a" * 25].pid, found["a" * 25].netns)
    assert ExitStatus(code=3) == await found["b" * 25].wait()
    await found["c" * 25].start()
    for controller in found.values():
        await controller.stop()
        await controller.remove()
    assert await machine.leftovers() == []
    assert await machine.executor.recover() == []


async def check_an_exit_while_the_agent_is_away_is_kept(machine: Machine) -> None:
    """An agent that was away learns how its task ended."""
    await started(machine, a_task(machine, EXITS_3))
    await machine.restart_agent()
    await trio.sleep(0.3)
    (controller,) = await machine.executor.recover()
    assert ExitStatus(code=3) == await controller.wait()
    await controller.remove()
    assert await machine.leftovers() == []


async def check_a_killed_shim_ends_its_task(machine: Machine) -> None:
    """Without its shim a task does not run on, its links go, and the status says why."""
    controller = await machine.executor.create(a_task(machine))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    await machine.kill_shim(controller.task_id)
    status = await controller.wait()
    assert status.code == 128 + 9
    assert "shim" in status.reason
    assert await machine.links_up(controller) == []
    assert status == await controller.stop()
    await controller.remove()
    assert await machine.leftovers() == []


async def check_a_shim_killed_while_the_agent_is_away(machine: Machine) -> None:
    """The next agent finds a task whose shim is gone as ended, with the reason, and can clean up."""
    await started(machine, a_task(machine))
    await machine.kill_shim("t" * 25)
    await machine.restart_agent()
    (controller,) = await machine.executor.recover()
    assert controller.phase == "exited"
    status = await controller.wait()
    assert "shim" in status.reason
    await controller.remove()
    assert await machine.leftovers() == []


async def check_a_lapsed_lease_takes_the_links_down(machine: Machine) -> None:
    """Without renewal the links go down, the process runs on; a later renewal does not bring them back."""
    controller = await machine.executor.create(a_task(machine, lease_s=0.4))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    assert len(await machine.links_up(controller)) == 1
    await trio.sleep(0.8)
    assert await machine.links_up(controller) == []
    assert controller.phase == "started"
    await controller.renew_lease(3600)
    assert await machine.links_up(controller) == []
    await controller.stop()
    await controller.remove()


async def check_a_renewed_lease_keeps_the_links(machine: Machine) -> None:
    """A renewal counts from now, also without an agent, and may shorten the lease."""
    controller = await machine.executor.create(a_task(machine, lease_s=0.6))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.renew_lease(3600)
    await controller.start()
    await trio.sleep(0.9)
    assert len(await machine.links_up(controller)) == 1
    await controller.renew_lease(0.3)
    await machine.restart_agent()
    await trio.sleep(0.7)
    (controller,) = await machine.executor.recover()
    assert await machine.links_up(controller) == []
    await controller.stop()
    await controller.remove()


async def check_a_fenced_task_stops_with_its_lease(machine: Machine) -> None:
    """`fence`: when the lease lapses the task stops too, and says why."""
    controller = await started(machine, a_task(machine, lease_s=0.3, fence=True))
    with trio.fail_after(5):
        status = await controller.wait()
    assert status.signal == 15
    assert "no word from a manager" in status.reason
    await controller.remove()
    assert await machine.leftovers() == []


async def check_remove_ends_a_running_task(machine: Machine) -> None:
    """Removing needs no stop before it."""
    controller = await started(machine, a_task(machine, IGNORES_TERM, stop_grace_s=math.inf))
    await controller.remove()
    assert controller.phase == "exited"
    assert await machine.leftovers() == []


async def check_a_cancelled_prepare_leaves_nothing(machine: Machine) -> None:
    """Cancelled anywhere, prepare is all or nothing, and can be tried again."""
    for n_checkpoints in range(1, 12):
        controller = await machine.executor.create(a_task(machine))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel_soon(scope: trio.CancelScope = scope, n: int = n_checkpoints) -> None:
                    for _ in range(n):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel_soon)
                await controller.prepare()
        if controller.phase == "new":
            assert await machine.leftovers() == [], n_checkpoints
        await controller.prepare()
        assert controller.phase == "prepared"
        await controller.remove()
        assert await machine.leftovers() == [], n_checkpoints


async def check_a_cancelled_wait_changes_nothing(machine: Machine) -> None:
    """Waiting and stopping may be given up and asked again."""
    controller = await started(machine, a_task(machine, IGNORES_TERM, stop_grace_s=0.5))
    with trio.move_on_after(0.1):
        await controller.wait()
    assert controller.phase == "started"
    with trio.move_on_after(0.1):
        await controller.stop()
    status = await controller.stop()
    assert status is not None
    assert status.signal == 9
    await controller.remove()


Check = Callable[[Machine], Awaitable[None]]
CHECKS: tuple[Check, ...] = (
    check_phases_come_in_order,
    check_every_call_may_be_repeated,
    check_the_exit_code_is_told,
    check_links_go_down_when_the_process_ends,
    check_stop_sends_the_signal,
    check_stop_kills_after_the_grace,
    check_stop_before_start,
    check_links_first,
    check_a_missing_command_is_named,
    check_an_unknown_stop_signal_is_refused,
    check_the_host_network_is_left_alone,
    check_tasks_outlive_the_agent,
    check_an_exit_while_the_agent_is_away_is_kept,
    check_a_killed_shim_ends_its_task,
    check_a_shim_killed_while_the_agent_is_away,
    check_a_lapsed_lease_takes_the_links_down,
    check_a_renewed_lease_keeps_the_links,
    check_a_fenced_task_stops_with_its_lease,
    check_remove_ends_a_running_task,
    check_a_cancelled_prepare_leaves_nothing,
    check_a_cancelled_wait_changes_nothing,
)


async def check_executor(make: Callable[[], AbstractAsyncContextManager[Machine]]) -> None:
    """Run every check, each on a machine of its own."""
    for check in CHECKS:
        async with make() as machine:
            await check(machine)
