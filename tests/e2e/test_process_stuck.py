"""A shim that hangs (stopped, or waiting for a disk that is gone) costs its own task, and holds nobody else up."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest
import structlog
import trio

from beeyard.agent.executors.process import controller as controllers
from beeyard.agent.executors.process import remains
from beeyard.agent.insist import insist
from beeyard.core.errors import ExecutorError
from tests.support.executor_machine import a_task, started
from tests.support.open_files import room_for
from tests.support.process_machine import SETTLE_S, ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns

log = structlog.get_logger(__name__)

STUCK, WELL = "a" * 25, "b" * 25


@pytest.fixture
async def machine() -> AsyncIterator[ProcessMachine]:
    async with a_process_machine() as made:
        yield made
        assert await made.leftovers() == []


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim that answers at all does so within this on a busy machine."""
    monkeypatch.setattr(controllers, "ANSWER_S", 5.0)


async def with_a_stuck_one(machine: ProcessMachine) -> list[controllers.ProcessController]:
    """Two tasks, of which the first one's shim was stopped."""
    both = [await started(machine, a_task(machine, task_id=task_id, stop_grace_s=0.1)) for task_id in (STUCK, WELL)]
    os.kill(machine.processes(STUCK)[0], signal.SIGSTOP)
    assert all(isinstance(one, controllers.ProcessController) for one in both)
    return both  # type: ignore[return-value]


async def test_a_stuck_shim_is_told_of_and_killed_by_a_stop(machine: ProcessMachine) -> None:
    """What takes a moment fails with a sentence; a stop kills it when the grace is over, and its namespace is emptied."""
    stuck, well = await with_a_stuck_one(machine)
    await machine.add_link(stuck)
    with pytest.raises(ExecutorError, match=r"links_down: its shim \(pid \d+\) has not answered for 5 s"):
        await stuck.links_down()
    status = await stuck.stop()
    assert status is not None
    assert status.signal == signal.SIGKILL
    assert await machine.links_up(stuck) == []
    await stuck.remove()
    await well.remove()


async def test_a_stuck_shim_does_not_keep_an_agent_from_starting(machine: ProcessMachine) -> None:
    """The others are found, it is too, and when it goes on nothing was lost."""
    await with_a_stuck_one(machine)
    await machine.restart_agent()
    found = {one.task_id: one for one in await machine.executor.recover()}
    assert {task_id: one.phase for task_id, one in found.items()} == {STUCK: "started", WELL: "started"}
    assert found[STUCK].netns, "an agent could not take its links down"
    os.kill(machine.processes(STUCK)[0], signal.SIGCONT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found[STUCK].wait)
        status = await found[STUCK].stop()
    assert status is not None
    assert status.signal == signal.SIGTERM
    for one in found.values():
        await one.remove()


async def test_a_full_shim_that_hangs_holds_no_search_up(machine: ProcessMachine) -> None:
    """With as many connections waiting as a socket may have, it still counts as there, at once."""
    stuck, well = await with_a_stuck_one(machine)
    directory = machine.executor.places.shim_dir(STUCK)
    with contextlib.ExitStack() as crowd:
        for _ in range(80):
            client = remains.connect(directory)
            assert client is not None
            crowd.enter_context(client)
    os.kill(machine.processes(STUCK)[0], signal.SIGCONT)
    await insist("remove it before the others have hung up", stuck.remove, log)
    await well.remove()


async def test_no_room_for_a_connection_is_not_taken_for_the_end_of_a_shim(machine: ProcessMachine) -> None:
    """Whoever finds no room is told so, and the task runs on."""
    controller = await started(machine, a_task(machine))
    assert isinstance(controller, controllers.ProcessController)
    controller.close()
    with contextlib.ExitStack() as crowd:
        for _ in range(70):
            client = remains.connect(machine.executor.places.shim_dir(controller.task_id))
            assert client is not None
            crowd.enter_context(client)
            client.settimeout(SETTLE_S)
            with contextlib.suppress(BrokenPipeError):  # whoever finds no room may be told so before asking
                client.sendall(b'{"op": "status"}\n')
            last = client.recv(4096)
        assert b"no room" in last
        with pytest.raises(ExecutorError, match="its shim has no room for one more connection"):
            await controller.links_down()
    assert controller.phase == "started"
    status = await controller.stop()
    assert status is not None
    assert status.signal == signal.SIGTERM
    await controller.remove()


async def test_a_stop_without_a_free_descriptor_says_so_and_works_once_there_is_one(machine: ProcessMachine) -> None:
    """Whatever the agent has open: the limit and how to raise it are in the error that is logged."""
    task = await started(machine, a_task(machine, task_id=WELL, stop_grace_s=0.1))
    assert isinstance(task, controllers.ProcessController)
    task.close()  # the connections of its start, one of which may be taken for the next request
    with pytest.raises(ExecutorError, match=r"its shim: this process has all \d+ files open .* raise LimitNOFILE"):
        with room_for(0):
            await task.stop()
    status = await task.stop()
    assert status is not None
    await task.remove()
