"""The way of one task on a node, as its manager and its LAN see it."""

from __future__ import annotations

import errno

import msgspec
import pytest
import trio

from beeyard.core.states import TaskState
from beeyard.runtime.fake_executor import Behaviour, FakeTask
from tests.support.agent_machine import Machine
from tests.support.agent_tasks import a_grant, an_assigned

ADDRESS = "10.77.0.64/24"


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


async def test_a_task_comes_up_with_its_address_and_goes_down_when_told(machine, autojump_clock):
    """From an assignment to RUNNING, then SHUTDOWN; nothing of it is left."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        running = await manager.until_state("t1", TaskState.RUNNING)
        assert running.pid == machine.tasks.by_id["t1"].pid > 0
        assert machine.addresses_up() == ["10.77.0.64"]
        await manager.assign(an_assigned(address=ADDRESS, desired=TaskState.SHUTDOWN))
        end = await manager.until_state("t1", TaskState.SHUTDOWN)
        assert end.exit_code == 143
        await trio.sleep(1)
        assert machine.addresses_up() == []
        assert machine.tasks.by_id == {}
        await manager.assign(removed=("t1",))
        await trio.sleep(1)
        assert await machine.records() == []


@pytest.mark.parametrize(
    ("address", "states"),
    [("", ["STARTING", "RUNNING", "COMPLETE"]), (ADDRESS, ["PREPARING", "STARTING", "RUNNING", "COMPLETE"])],
    ids=["at once", "with a link between"],
)
async def test_every_status_is_later_than_the_one_before_and_states_only_rise(machine, autojump_clock, address, states):
    machine.behaviour["t1"] = Behaviour(prepare_s=1, start_s=1, run_s=5)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=address)])
        await manager.until_state("t1", TaskState.COMPLETE)
        statuses = manager.reports_of("t1")
        assert states == [status.state.name for status in statuses]
        times = [status.at_s for status in statuses]
        assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("exit_code", "state", "err"),
    [(0, TaskState.COMPLETE, ""), (1, TaskState.FAILED, "task: non-zero exit (1)")],
)
async def test_an_end_by_itself_is_reported_with_exit_code(machine, autojump_clock, exit_code, state, err):
    machine.behaviour["t1"] = Behaviour(run_s=5, exit_code=exit_code)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        end = await manager.until_state("t1", state)
        assert (end.exit_code, end.err) == (exit_code, err)
        assert machine.addresses_up() == []


async def test_the_reason_of_an_end_is_passed_on(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.tasks.by_id["t1"].finish(137, reason="killed: memory limit of 64 MiB reached")
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.err == "task: non-zero exit (137): killed: memory limit of 64 MiB reached"


@pytest.mark.parametrize(
    ("phase", "state"),
    [("prepare", TaskState.REJECTED), ("start", TaskState.FAILED)],
)
async def test_a_failing_phase_ends_the_task_with_its_sentence_and_undoes_all(machine, autojump_clock, phase, state):
    machine.behaviour["t1"] = Behaviour(fail_at=phase, fail_reason="no such user nobody2")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        end = await manager.until_state("t1", state)
        assert end.err == f"{phase}: no such user nobody2"
        await trio.sleep(1)
        assert machine.addresses_up() == []
        assert machine.tasks.by_id == {}
        assert machine.kernel.namespaces == ()


async def test_a_link_that_cannot_be_made_rejects_the_task(machine, autojump_clock):
    machine.kernel.remove_link("eth0")
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert "eth0" in end.err
        assert end.message == "preparing"
        await trio.sleep(1)
        assert machine.kernel.namespaces == ()


async def test_an_image_that_nobody_here_runs_is_rejected_by_name(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(image="nginx:latest")])
        end = await manager.until_state("t1", TaskState.REJECTED)
        assert end.err == (
            'image nginx:latest: this node runs only the image "host" (executor process); '
            "images are run by the docker or oci executor"
        )


async def test_no_end_is_reported_while_the_links_may_still_be_up(machine, autojump_clock):
    """Whatever the executor says, the address is down before anybody can be given it."""
    machine.behaviour["t1"] = Behaviour(fail_at="links_down", n_failures=3)
    machine.kernel.links_down = lambda netns: None  # the shim is of no help,
    machine.kernel.drop_netns = lambda netns: None  # and the kernel drops the namespace whenever it likes
    seen: list[list[str]] = []
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.tasks.by_id["t1"].finish(1)
        await manager.until(lambda: manager.status("t1").state.is_terminal and not seen.append(machine.addresses_up()))
        assert seen == [[]]


async def test_desired_ready_holds_before_the_command(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(desired=TaskState.READY)])
        await manager.until_state("t1", TaskState.READY)
        await trio.sleep(60)
        assert machine.tasks.started == []
        await manager.assign(an_assigned(desired=TaskState.RUNNING))
        await manager.until_state("t1", TaskState.RUNNING)
        assert machine.tasks.started == ["t1"]


async def test_a_wish_to_run_is_not_taken_back(machine, autojump_clock):
    machine.behaviour["t1"] = Behaviour(prepare_s=5)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(desired=TaskState.RUNNING)])
        await trio.sleep(1)
        await manager.assign(an_assigned(desired=TaskState.READY))
        await manager.until_state("t1", TaskState.RUNNING)


async def test_a_wish_to_stop_is_not_taken_back(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(desired=TaskState.SHUTDOWN)])
        await manager.until_state("t1", TaskState.SHUTDOWN)
        await manager.assign(an_assigned(desired=TaskState.RUNNING))
        await trio.sleep(60)
        assert manager.status("t1").state is TaskState.SHUTDOWN
        assert machine.tasks.by_id == {}


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5, 2.5, 30.0], ids=["at once", "prepare", "attach", "start", "run"])
async def test_a_stop_at_any_moment_ends_in_shutdown_and_leaves_nothing(machine, autojump_clock, after_s):
    machine.behaviour["t1"] = Behaviour(prepare_s=1, start_s=2, stop_s=3)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await trio.sleep(after_s)
        await manager.assign(an_assigned(address=ADDRESS, desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
        await trio.sleep(1)
        assert machine.tasks.by_id == {}
        assert machine.kernel.namespaces == ()


async def test_a_successor_waits_in_accepted_until_its_predecessor_has_stopped(machine, autojump_clock):
    machine.behaviour["old"] = Behaviour(stop_s=8)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("old", address=ADDRESS)])
        await manager.until_state("old", TaskState.RUNNING)
        await manager.assign(
            an_assigned("old", address=ADDRESS, desired=TaskState.SHUTDOWN), an_assigned("new", address=ADDRESS)
        )
        waiting = await manager.until_state("new", TaskState.ACCEPTED)
        assert waiting.message == "waiting for task old to stop"
        assert not manager.status("old").state.is_terminal
        await manager.until_state("new", TaskState.RUNNING)
        assert manager.status("old").state is TaskState.SHUTDOWN
        assert machine.addresses_up() == ["10.77.0.64"]


async def test_a_task_without_room_is_rejected_with_the_numbers(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("big", slot=1, cpu_nano=3 * 10**9)])
        await manager.until_state("big", TaskState.RUNNING)
        await manager.assign(an_assigned("more", slot=2, cpu_nano=2 * 10**9))
        end = await manager.until_state("more", TaskState.REJECTED)
        assert end.err == "insufficient CPU on this node: 2 asked, 1 of 4 free"
        assert manager.status("big").state is TaskState.RUNNING


async def test_a_full_disk_rejects_a_task_and_harms_no_other(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("first", slot=1)])
        await manager.until_state("first", TaskState.RUNNING)
        machine.disk.full = True
        await manager.assign(an_assigned("second", slot=2))
        end = await manager.until_state("second", TaskState.REJECTED)
        assert "/tasks.db" in end.err
        machine.tasks.by_id["first"].finish(0)
        await manager.until_state("first", TaskState.COMPLETE)


async def test_a_defect_met_at_one_task_ends_that_task_alone(machine, autojump_clock):
    def broken(*_: object) -> FakeTask:
        raise ZeroDivisionError("a defect")

    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("good", slot=1)])
        await manager.until_state("good", TaskState.RUNNING)
        machine.tasks.add = broken
        await manager.assign(an_assigned("bad", slot=2))
        end = await manager.until_state("bad", TaskState.FAILED)
        assert end.err == "agent: ZeroDivisionError: a defect"
        assert machine.tasks.started == ["good"]


async def test_two_networks_become_eth0_and_eth1_in_order_of_the_grants(machine, autojump_clock):
    task = an_assigned(address=ADDRESS)
    second = a_grant("10.78.0.7/24", network="other", gateway="10.78.0.1")
    task = msgspec.structs.replace(task, grants=(*task.grants, second))
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.RUNNING)
        links = [(live.interface, live.address) for live in machine.kernel.live_addresses() if live.netns]
        assert links == [("eth0", "10.77.0.64"), ("eth1", "10.78.0.7")]


@pytest.mark.parametrize("n", range(1, 16))
async def test_whichever_request_the_kernel_refuses_nothing_is_left_behind(machine, autojump_clock, n):
    """Nth-call faults of netlink while a link is made: the task is rejected whole, or runs whole."""
    request = machine.kernel.request
    calls = 0

    async def failing(message: bytes, netns: str = "") -> list[bytes]:
        nonlocal calls
        calls += 1
        if calls == n:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        return await request(message, netns)

    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [])
        machine.kernel.request = failing
        await manager.assign(an_assigned(address=ADDRESS))
        await manager.until(lambda: manager.status("t1").state >= TaskState.RUNNING)
        await trio.sleep(1)
        if manager.status("t1").state is TaskState.REJECTED:
            assert machine.addresses_up() == []
            assert machine.kernel.namespaces == ()
        else:
            assert manager.status("t1").state is TaskState.RUNNING
            assert machine.addresses_up() == ["10.77.0.64"]
