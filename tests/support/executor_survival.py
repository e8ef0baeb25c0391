"""What an executor promises of tasks whose agent, shim or lease is gone. Part of `executor_conformance`."""

from __future__ import annotations

import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.runtime.host import Controller, ExitStatus
from tests.support.executor_machine import EXITS_3, Machine, a_task, started


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


async def until_links_are_down(machine: Machine, controller: Controller) -> None:
    """Wait for them."""
    with trio.fail_after(30):
        while await machine.links_up(controller):  # noqa: ASYNC110 - a kernel sends no event
            await trio.sleep(0.05)


async def check_a_lapsed_lease_takes_the_links_down(machine: Machine) -> None:
    """Without renewal the links go down, the process runs on; a later renewal does not bring them back."""
    controller = await machine.executor.create(a_task(machine))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    assert len(await machine.links_up(controller)) == 1
    await controller.renew_lease(0.3)
    await until_links_are_down(machine, controller)
    assert controller.phase == "started"
    await controller.renew_lease(3600)
    assert controller.lapsed, "the answer to a renewal that came too late says so"
    assert await machine.links_up(controller) == []
    await controller.stop()
    await controller.remove()


async def check_a_renewed_lease_keeps_the_links(machine: Machine) -> None:
    """A renewal counts from now, also without an agent, and may shorten the lease."""
    controller = await machine.executor.create(a_task(machine, lease_s=2.0))
    await controller.prepare()
    await controller.renew_lease(3600)
    await machine.add_link(controller)
    await controller.start()
    await trio.sleep(2.3)
    assert len(await machine.links_up(controller)) == 1
    await controller.renew_lease(0.3)
    assert not controller.lapsed
    await machine.restart_agent()
    await until_links_are_down(machine, controller)
    (controller,) = await machine.executor.recover()
    assert controller.lapsed, "the next agent must know, it never gave this lease"
    await controller.stop()
    await controller.remove()


async def check_a_fenced_task_stops_with_its_lease(machine: Machine) -> None:
    """`fence`: when the lease lapses the task stops too, and says why."""
    controller = await started(machine, a_task(machine, lease_s=3600.0, fence=True))
    await controller.renew_lease(0.2)
    with trio.fail_after(30):
        status = await controller.wait()
    assert status.signal == 15
    assert "no word from a manager" in status.reason
    await controller.remove()
    assert await machine.leftovers() == []


async def check_a_task_whose_lease_lapsed_does_not_start(machine: Machine) -> None:
    """The lease counts from prepare; a task that lost it before its start is refused, and its links are down."""
    controller = await machine.executor.create(a_task(machine, lease_s=0.1))
    await controller.prepare()
    await trio.sleep(0.3)
    await machine.add_link(controller)
    with pytest.raises(ExecutorError, match="lease"):
        await controller.start()
    assert await machine.links_up(controller) == []
    await controller.remove()
