"""An agent that restarts knows its tasks again: none is forgotten, none runs twice."""

from __future__ import annotations

import pytest
import trio

from beeyard.core.states import TaskState
from beeyard.runtime.fake_executor import Behaviour
from tests.support.agent_machine import Machine
from tests.support.agent_tasks import an_assigned

ADDRESS = "10.77.0.64/24"


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


async def bring_up(machine: Machine, *tasks, crash: bool = True) -> None:
    """A life of the agent in which tasks come to run; then it is killed."""
    async with machine.agent(crash=crash) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, tasks)
        for task in tasks:
            await manager.until_state(task.id, TaskState.RUNNING)


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "stopped cleanly"])
async def test_running_tasks_are_adopted_and_nothing_of_them_moves(machine, autojump_clock, crash):
    task = an_assigned(address=ADDRESS)
    await bring_up(machine, task, crash=crash)
    pid = machine.tasks.by_id["t1"].pid
    await trio.sleep(10)
    assert machine.addresses_up() == ["10.77.0.64"]
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        running = await manager.until_state("t1", TaskState.RUNNING)
        assert running.pid == machine.tasks.by_id["t1"].pid == pid
        await manager.assign(an_assigned(address=ADDRESS, desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)


async def test_an_end_while_the_agent_was_away_is_reported_as_it_was(machine, autojump_clock):
    await bring_up(machine, an_assigned(address=ADDRESS))
    machine.tasks.by_id["t1"].finish(3)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.RUNNING)])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert (end.exit_code, end.err) == (3, "task: non-zero exit (3)")


async def test_an_end_is_noticed_while_no_manager_can_be_reached(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(run_s=20)
    await bring_up(machine, an_assigned(address=ADDRESS))
    machine.net.refusing["tcp://10.0.0.1:2377"] = "no route to host"
    async with machine.agent():
        await trio.sleep(60)
        assert machine.tasks.by_id == {}, "its remains are removed"
        assert machine.kernel.namespaces == ()


async def test_a_started_task_whose_shim_is_gone_fails_and_is_not_started_again(machine, autojump_clock):
    await bring_up(machine, an_assigned(address=ADDRESS))
    machine.tasks.by_id["t1"].drop()
    del machine.tasks.by_id["t1"]
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.RUNNING)])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.err == "task: its process is gone; the host restarted or its shim was killed"
        assert machine.tasks.by_id == {}


async def test_a_power_cut_ends_what_ran_and_says_so(machine, autojump_clock):
    await bring_up(machine, an_assigned(address=ADDRESS))
    machine.disk.power_cut()
    machine.tasks.power_cut()
    machine.kernel.reboot()
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.RUNNING)])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert "its shim is gone" in end.err
        await trio.sleep(60)
        assert machine.tasks.started == []


async def test_without_its_disk_the_agent_learns_from_the_manager_what_has_run(machine, autojump_clock):
    """The host was restarted with an empty disk: a task that the manager saw running is not started again."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(
            nursery, [an_assigned("ran", slot=1, state=TaskState.STARTING), an_assigned("new", slot=2)]
        )
        await manager.until_state("ran", TaskState.FAILED)
        await manager.until_state("new", TaskState.RUNNING)
        assert machine.tasks.started == ["new"]


async def test_what_the_manager_knows_to_be_over_is_not_touched(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(state=TaskState.COMPLETE)])
        await trio.sleep(60)
        assert manager.reports_of("t1") == []
        assert machine.tasks.by_id == {}


async def test_a_running_task_without_a_record_is_adopted_if_the_manager_names_it(machine, autojump_clock):
    task = an_assigned(address=ADDRESS)
    await bring_up(machine, task)
    await machine.lose_record("t1")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(60)
        assert machine.addresses_up() == ["10.77.0.64"]


@pytest.mark.parametrize("with_record", [True, False], ids=["with its record", "without a record"])
async def test_a_task_that_no_manager_names_is_stopped_links_first_and_removed(machine, autojump_clock, with_record):
    machine.behaviour["t1"] = Behaviour(stop_s=8)
    await bring_up(machine, an_assigned(address=ADDRESS))
    if not with_record:
        await machine.lose_record("t1")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await trio.sleep(1)
        assert machine.addresses_up() == ["10.77.0.64"], "nobody has said yet that it is unknown"
        await manager.welcome(nursery, [])
        await trio.sleep(1)
        assert machine.addresses_up() == []
        assert machine.tasks.started == ["t1"], "the process has its grace"
        await trio.sleep(10)
        assert machine.tasks.by_id == {}
        assert machine.kernel.namespaces == ()
        assert await machine.records() == []


async def test_nobody_gets_an_address_while_a_stranger_may_hold_it(machine, autojump_clock):
    machine.behaviour["old"] = Behaviour(stop_s=8, fail_at="links_down", n_failures=0)
    await bring_up(machine, an_assigned("old", address=ADDRESS))
    await machine.lose_record("old")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("new", slot=2, address=ADDRESS)])
        waiting = await manager.until_state("new", TaskState.ACCEPTED)
        assert waiting.message == "waiting for 1 unknown tasks to be cleaned up"
        await manager.until_state("new", TaskState.RUNNING)
        assert machine.addresses_up() == ["10.77.0.64"]
        assert machine.tasks.started == ["new"]


async def test_a_task_that_was_only_prepared_is_prepared_again_and_started_once(machine, autojump_clock):
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, desired=TaskState.READY)])
        await manager.until_state("t1", TaskState.READY)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await trio.sleep(5)
        assert machine.addresses_up() == [], "nobody has confirmed that it is still wanted"
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.READY)])
        await manager.until_state("t1", TaskState.RUNNING)
        assert [
            s.state for s in manager.reports_of("t1") if s.state < TaskState.READY and s.message != "accepted"
        ] == []
        assert machine.addresses_up() == ["10.77.0.64"]


async def test_a_prepared_task_whose_shim_was_killed_is_prepared_again(machine, autojump_clock):
    """It is found ended, but its command has never run: the record says so."""
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, desired=TaskState.READY)])
        await manager.until_state("t1", TaskState.READY)
    machine.tasks.by_id["t1"].shim_killed("its shim is gone")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.READY)])
        await manager.until_state("t1", TaskState.RUNNING)
        assert machine.addresses_up() == ["10.77.0.64"]


async def test_an_end_that_was_not_confirmed_is_reported_by_the_next_life(machine, autojump_clock):
    """Lost acknowledgements: the manager hears of the end as soon as it can hear at all."""
    machine.behaviour["t1"] = Behaviour(run_s=5, exit_code=4)
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        manager.acknowledges = False
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.FAILED)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(state=TaskState.RUNNING)])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.exit_code == 4
        assert machine.tasks.by_id == {}


@pytest.mark.parametrize("address", [ADDRESS, ""], ids=["with a link", "at once"])
@pytest.mark.parametrize("n", range(1, 25))
async def test_a_disk_that_fails_once_anywhere_costs_at_most_that_task(machine, autojump_clock, n, address):
    """Nth-call faults: whichever write fails, the task ends or runs, and nothing leaks."""
    machine.disk.fail_in(n)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=address)])
        await trio.sleep(5)
        await manager.assign(an_assigned(address=address, desired=TaskState.SHUTDOWN))
        await manager.until(lambda: manager.status("t1").state.is_terminal)
        await manager.assign(removed=("t1",))
        await trio.sleep(60)
        assert machine.tasks.by_id == {}
        assert machine.kernel.namespaces == ()
        assert await machine.records() == []


@pytest.mark.parametrize("after_s", [0.5, 1.5, 3.5], ids=["while preparing", "while starting", "while running"])
async def test_a_clean_stop_at_any_moment_loses_no_task_and_starts_none_twice(machine, autojump_clock, after_s):
    machine.behaviour["t1"] = Behaviour(prepare_s=1, start_s=2)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await trio.sleep(after_s)
    ran_before = bool(machine.tasks.started)
    await trio.sleep(60)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, state=TaskState.PREPARING)])
        await trio.sleep(60)
        # STARTING was on disk and its command had not run: whether it did cannot be known later, so it is not run again.
        expected = TaskState.FAILED if after_s == 1.5 else TaskState.RUNNING
        assert manager.status("t1").state is expected
        assert machine.addresses_up() == (["10.77.0.64"] if expected is TaskState.RUNNING else [])
        assert ran_before == (after_s == 3.5)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("after_s", [0.5, 1.5, 3.5, 5.5], ids=["while made", "while starting", "running", "ended"])
async def test_an_agent_that_ends_while_it_runs_a_task_at_once_starts_it_no_second_time(
    machine, autojump_clock, after_s, crash
):
    """STARTING is on disk before anything of the task exists: what has not come to run is over, and nothing of it stays."""
    machine.behaviour["t1"] = Behaviour(prepare_s=1, start_s=2, run_s=2, exit_code=4)
    async with machine.agent(crash=crash) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await trio.sleep(after_s)
        assert len(await machine.records()) == 1
    await trio.sleep(60)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.exit_code == (4 if after_s > 3 else None)
        if after_s < 3:
            assert {status.state for status in manager.reports_of("t1")} == {TaskState.FAILED}
        assert machine.tasks.by_id == {}


@pytest.mark.parametrize("removed", [False, True], ids=["stopped", "removed"])
@pytest.mark.parametrize("after_s", [0.5, 1.5, 3.5], ids=["while made", "while starting", "running"])
async def test_a_task_that_is_not_wanted_any_more_while_it_is_run_at_once(machine, autojump_clock, after_s, removed):
    """It ends wherever it is, and nothing of it stays."""
    machine.behaviour["t1"] = Behaviour(prepare_s=1, start_s=2)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await trio.sleep(after_s)
        if not removed:
            await manager.assign(an_assigned(desired=TaskState.SHUTDOWN))
            end = await manager.until_state("t1", TaskState.SHUTDOWN)
            assert end.err == ""
        await manager.assign(removed=("t1",))
        await trio.sleep(60)
        assert machine.tasks.by_id == {}
        assert await machine.records() == []
