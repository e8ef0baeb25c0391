"""An agent that is told to stop may have its tasks run elsewhere first."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
import trio

from beeyard.agent import daemon
from beeyard.agent.running import RunningAgent
from beeyard.core.model import Node
from beeyard.core.states import TaskState
from beeyard.core.wire import DescriptionChanged
from beeyard.manager.store import Transaction
from tests.support.agent_machine import Machine
from tests.support.agent_tasks import an_assigned
from tests.support.builders import a_node, a_service
from tests.support.manager_world import manager_world


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


@contextlib.asynccontextmanager
async def agent(machine: Machine, **settings: object) -> AsyncIterator[tuple[trio.Nursery, RunningAgent]]:
    config = msgspec.structs.replace(machine.config(), **settings)
    async with trio.open_nursery() as nursery:
        running: RunningAgent = await nursery.start(
            lambda task_status: daemon.run(machine.host(), config, task_status=task_status)
        )
        yield nursery, running
        nursery.cancel_scope.cancel()


async def test_the_agent_says_so_and_waits_until_nothing_of_it_runs(machine, autojump_clock):
    """The manager hears of it within a second; the stop goes on once every end was confirmed, not sooner."""
    async with agent(machine, drain_on_stop=True) as (nursery, running):
        manager = await machine.net.accept()
        hello = await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        assert not hello.description.stopping
        assert running.summary() == "in session with 10.0.0.1:2377; 1 task"
        stopped = trio.Event()

        async def stop() -> None:
            await running.prepare_stop()
            stopped.set()

        nursery.start_soon(stop)
        await manager.until(lambda: any(m.description.stopping for m in manager.of(DescriptionChanged)), within_s=1)
        await trio.sleep(60)
        assert not stopped.is_set()
        await manager.assign(an_assigned(desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
        with trio.fail_after(2):
            await stopped.wait()


async def test_a_drain_that_does_not_end_is_given_up_in_time(machine, autojump_clock):
    """The tasks that are left run on, as without it."""
    async with agent(machine, drain_on_stop=True, drain_timeout_s=30.0) as (nursery, running):
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        began_s = trio.current_time()
        await running.prepare_stop()
        assert trio.current_time() - began_s == pytest.approx(30.0)
    assert machine.tasks.by_id["t1"].phase == "started"


async def test_without_it_a_stop_is_at_once_and_says_nothing(machine, autojump_clock):
    async with agent(machine) as (nursery, running):
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned()])
        await manager.until_state("t1", TaskState.RUNNING)
        began_s = trio.current_time()
        await running.prepare_stop()
        assert trio.current_time() == began_s
        assert manager.of(DescriptionChanged) == []


async def test_the_manager_replaces_its_tasks_until_the_next_start(autojump_clock: object) -> None:
    """A node that stops is drained, whatever its operator decided; its next life is not."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_service(replicas=4))
        await trio.sleep(10)
        assert {task.node_id for task in world.running()} == {"n1", "n2"}

        async def describe(*, stopping: bool) -> None:
            def build(tx: Transaction) -> None:
                node = tx.find(Node, "n1")
                description = msgspec.structs.replace(node.description, stopping=stopping)
                tx.update(msgspec.structs.replace(node, description=description))

            await world.store.commit(build)

        await describe(stopping=True)
        await trio.sleep(10)
        assert [task.node_id for task in world.running()] == ["n2"] * 4
        await describe(stopping=False)
        await world.scale(8)
        await trio.sleep(10)
        assert {task.node_id for task in world.running()} == {"n1", "n2"}
