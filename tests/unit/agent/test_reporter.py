"""The newest status of each task reaches the manager, in order, until it is confirmed."""

from __future__ import annotations

import pytest
import trio

from beeyard.agent.reporter import IN_FLIGHT_MAX, PASSING_S, REPORTS_PER_MESSAGE, Reporter
from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import StatusReport


def said(message: StatusReport) -> dict[str, TaskState]:
    return {report.task_id: report.status.state for report in message.reports}


def status(state: TaskState) -> TaskStatus:
    return TaskStatus(state=state)


async def test_statuses_of_one_window_become_one_message_with_the_newest(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)

    async def start_task() -> None:
        for state in (TaskState.ACCEPTED, TaskState.PREPARING, TaskState.READY):
            reporter.report("t1", status(state))
            await trio.sleep(0.003)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_task)
        message = await reporter.next()
    assert said(message) == {"t1": TaskState.READY}


async def test_messages_are_numbered_from_one_and_rise(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    reporter.report("t1", status(TaskState.ACCEPTED))
    first = await reporter.next()
    reporter.report("t2", status(TaskState.ACCEPTED))
    second = await reporter.next()
    assert (first.number, second.number) == (1, 2)
    assert said(second) == {"t2": TaskState.ACCEPTED}


async def test_a_new_session_hears_every_current_status_confirmed_or_not(autojump_clock):
    """Lost acknowledgements cost a repetition and never a status."""
    reporter = Reporter(coalesce_s=0.010)
    reporter.report("confirmed", status(TaskState.RUNNING))
    reporter.acknowledge((await reporter.next()).number)
    reporter.report("unconfirmed", status(TaskState.FAILED))
    await reporter.next()
    reporter.report("unsent", status(TaskState.ACCEPTED))
    reporter.restart()
    assert said(await reporter.next()) == {
        "confirmed": TaskState.RUNNING,
        "unconfirmed": TaskState.FAILED,
        "unsent": TaskState.ACCEPTED,
    }


async def test_a_forgotten_task_is_kept_until_its_end_is_confirmed(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    reporter.report("t1", status(TaskState.SHUTDOWN))
    reporter.forget("t1")
    lost = await reporter.next()
    reporter.restart()
    repeated = await reporter.next()
    assert said(lost) == said(repeated) == {"t1": TaskState.SHUTDOWN}
    reporter.acknowledge(repeated.number)
    assert reporter.status("t1") is None
    reporter.restart()
    with trio.move_on_after(60) as silent:
        await reporter.next()
    assert silent.cancelled_caught


async def test_too_many_unconfirmed_messages_are_waited_for(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    numbers = []
    for n in range(IN_FLIGHT_MAX):
        reporter.report(f"t{n}", status(TaskState.ACCEPTED))
        numbers.append((await reporter.next()).number)
    reporter.report("late", status(TaskState.ACCEPTED))
    with trio.move_on_after(60) as stuck:
        await reporter.next()
    assert stuck.cancelled_caught
    reporter.acknowledge(numbers[0])
    assert said(await reporter.next()) == {"late": TaskState.ACCEPTED}


async def test_a_large_node_reports_in_several_messages(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    for n in range(REPORTS_PER_MESSAGE + 1):
        reporter.report(f"t{n}", status(TaskState.RUNNING))
    sizes = [len((await reporter.next()).reports) for _ in range(2)]
    assert sizes == [REPORTS_PER_MESSAGE, 1]


async def test_asking_sends_an_empty_message_once(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    reporter.ask()
    message = await reporter.next()
    assert message.reports == ()
    with trio.move_on_after(60) as silent:
        await reporter.next()
    assert silent.cancelled_caught


async def test_a_lower_status_is_a_defect():
    reporter = Reporter(coalesce_s=0.010)
    reporter.report("t1", status(TaskState.RUNNING))
    with pytest.raises(AssertionError):
        reporter.report("t1", status(TaskState.READY))


async def test_a_status_in_passing_waits_for_one_that_matters(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    began_s = trio.current_time()

    async def start_task() -> None:
        reporter.report("t1", status(TaskState.PREPARING), passing=True)
        await trio.sleep(0.050)
        reporter.report("t1", status(TaskState.RUNNING))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_task)
        message = await reporter.next()
    assert said(message) == {"t1": TaskState.RUNNING}
    assert trio.current_time() - began_s == pytest.approx(0.060)


async def test_a_status_in_passing_that_lasts_is_told(autojump_clock):
    reporter = Reporter(coalesce_s=0.010)
    began_s = trio.current_time()
    reporter.report("t1", status(TaskState.PREPARING), passing=True)
    assert said(await reporter.next()) == {"t1": TaskState.PREPARING}
    assert trio.current_time() - began_s == pytest.approx(PASSING_S)
