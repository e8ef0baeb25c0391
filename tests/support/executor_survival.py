"""What an executor promises of tasks whose agent, shim or lease is gone. Part of `executor_conformance`."""

from __future__ import annotations

import trio

from beeyard.runtime.host import ExitStatus
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
