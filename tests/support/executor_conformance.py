"""What every executor promises, checked the same way on the fake one and on the real one.

`CHECKS` are the promises, one async function each, taking a `Machine`: parametrise a test over them. `check_executor` runs
them all. Waiting is real on a real machine, so all times here are short.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.runtime.host import ExitStatus
from tests.support import executor_survival as survival
from tests.support.executor_machine import EXITS_3, IGNORES_TERM, MISSING, RUNS, Machine, a_task, started


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
    with trio.fail_after(30):
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
    controller = await machine.executor.create(a_task(machine, IGNORES_TERM, stop_grace_s=3600.0))
    await controller.prepare()
    await machine.add_link(controller)
    await controller.start()
    await machine.until_ready(controller)
    with trio.move_on_after(0.3):
        await controller.stop(links_first=True)
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


async def check_run_prepares_and_starts(machine: Machine) -> None:
    """`run` is prepare and start in one, may be repeated, and starts what was prepared before."""
    at_once = await machine.executor.create(a_task(machine, task_id="a" * 25))
    await at_once.run()
    pid = at_once.pid
    await at_once.run()
    assert (at_once.phase, at_once.pid) == ("started", pid)
    assert pid > 0
    assert at_once.netns != ""
    prepared = await machine.executor.create(a_task(machine, task_id="b" * 25))
    await prepared.prepare()
    await prepared.run()
    assert prepared.phase == "started"
    for controller in (at_once, prepared):
        assert await controller.stop() is not None
        await controller.remove()
    assert await machine.leftovers() == []


async def check_the_end_of_a_short_run_is_told(machine: Machine) -> None:
    """However soon a program ends, its exit code is told, and asking again tells the same."""
    controller = await machine.executor.create(a_task(machine, EXITS_3))
    await controller.run()
    assert (await controller.wait()).code == (await controller.wait()).code == 3
    await controller.run()
    assert await controller.stop() == await controller.wait()
    await controller.remove()
    assert await machine.leftovers() == []


async def check_a_run_that_fails_says_at_what(machine: Machine) -> None:
    """What cannot be prepared stays new; what cannot be started is over."""
    unprepared = await machine.executor.create(a_task(machine, stop_signal="SIGNONSENSE"))
    with pytest.raises(ExecutorError, match="SIGNONSENSE"):
        await unprepared.run()
    assert unprepared.phase == "new"
    missing = await machine.executor.create(a_task(machine, MISSING))
    with pytest.raises(ExecutorError) as caught:
        await missing.run()
    assert caught.value.phase == "start"
    assert missing.phase != "new"
    assert await missing.stop() is None
    await missing.remove()
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


async def check_remove_ends_a_running_task(machine: Machine) -> None:
    """Removing needs no stop before it."""
    controller = await started(machine, a_task(machine, IGNORES_TERM, stop_grace_s=math.inf))
    await controller.remove()
    assert controller.phase == "exited"
    assert await machine.leftovers() == []


async def cancelled_after(n_checkpoints: int, act: Callable[[], Awaitable[None]]) -> None:
    """Call it, and cancel it after so many checkpoints of another task, if it has not ended by then."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_soon() -> None:
                for _ in range(n_checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel_soon)
            await act()


async def check_a_cancelled_prepare_leaves_nothing(machine: Machine) -> None:
    """Cancelled anywhere, prepare is all or nothing, and can be tried again."""
    for n_checkpoints in range(1, 12):
        controller = await machine.executor.create(a_task(machine))
        await cancelled_after(n_checkpoints, controller.prepare)
        if controller.phase == "new":
            assert await machine.leftovers() == [], n_checkpoints
        await controller.prepare()
        assert controller.phase == "prepared"
        await controller.remove()
        assert await machine.leftovers() == [], n_checkpoints


async def check_a_cancelled_run_can_be_stopped(machine: Machine) -> None:
    """Cancelled anywhere, what there is of the task is stopped and removed as ever."""
    for n_checkpoints in range(1, 12):
        controller = await machine.executor.create(a_task(machine))
        await cancelled_after(n_checkpoints, controller.run)
        await controller.stop()
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
    check_run_prepares_and_starts,
    check_the_end_of_a_short_run_is_told,
    check_a_run_that_fails_says_at_what,
    check_an_unknown_stop_signal_is_refused,
    check_the_host_network_is_left_alone,
    survival.check_tasks_outlive_the_agent,
    survival.check_an_exit_while_the_agent_is_away_is_kept,
    survival.check_a_killed_shim_ends_its_task,
    survival.check_a_shim_killed_while_the_agent_is_away,
    survival.check_a_lapsed_lease_takes_the_links_down,
    survival.check_a_renewed_lease_keeps_the_links,
    survival.check_a_fenced_task_stops_with_its_lease,
    survival.check_a_task_whose_lease_lapsed_does_not_start,
    check_remove_ends_a_running_task,
    check_a_cancelled_prepare_leaves_nothing,
    check_a_cancelled_run_can_be_stopped,
    check_a_cancelled_wait_changes_nothing,
)


async def check_executor(make: Callable[[], AbstractAsyncContextManager[Machine]]) -> None:
    """Run every check, each on a machine of its own."""
    for check in CHECKS:
        async with make() as machine:
            await check(machine)
