"""Hooks that finish at awkward moments: while the store is writing, in the instant a task is stored, after nobody waits."""

from __future__ import annotations

import pytest
import trio

from beeyard.core.states import NodeState, TaskState
from beeyard.manager.hooks import Stage, Window
from tests.support.builders import a_node, a_service
from tests.support.manager_world import manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.scripted_hook import Scripted

S = TaskState
BESIDE = Window(Stage.NEW, Stage.ASSIGNED)
FROM_PENDING = Window(Stage.PENDING, Stage.ASSIGNED)


@pytest.mark.parametrize("window", [BESIDE, FROM_PENDING])
@pytest.mark.parametrize("commit_s", [0.0, 0.3])
@pytest.mark.parametrize("hook_s", [0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.6, 0.7, 2.0])
async def test_grant_is_stored_whenever_its_hook_finishes(
    autojump_clock: object, window: Window, commit_s: float, hook_s: float
) -> None:
    """Before, during or after the commit that makes the task PENDING: it runs with the grant, and gives it back."""
    database = MemoryDatabase()
    hook = Scripted("volume", window, takes_s=hook_s)
    async with manager_world(database, hooks=[hook.hook]) as world:
        await world.add(a_node("n1"))
        await trio.sleep(1)
        database.takes_s = commit_s
        await world.add(a_service(replicas=2))
        await trio.sleep(20)
        assert sorted(g.id for task in world.running() for g in task.grants) == ["volume-1", "volume-2"]
        assert sorted(hook.held) == ["volume-1", "volume-2"]
        await world.scale(0)
        await trio.sleep(20)
        assert hook.held == []


@pytest.mark.parametrize("hook_s", [0.1, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("window", [BESIDE, FROM_PENDING])
async def test_grant_of_a_task_that_is_unwanted_meanwhile_is_given_back(
    autojump_clock: object, window: Window, hook_s: float
) -> None:
    """The service goes while the store is writing its tasks and hooks are under way: in the end nothing is held."""
    database = MemoryDatabase()
    hook = Scripted("volume", window, takes_s=hook_s)
    async with manager_world(database, hooks=[hook.hook]) as world:
        database.takes_s = 0.3
        await world.add(a_node("n1"), a_service(replicas=2))
        await trio.sleep(0.35)
        await world.remove_service()
        await trio.sleep(20)
        assert (world.tasks(), hook.held) == ([], [])


async def test_task_stops_waiting_for_a_hook_that_was_given_up(autojump_clock: object) -> None:
    """It said that it waits on a node for a hook; when that node is lost and no other is there, it says so no more."""
    slow = Scripted("remote", Window(Stage.SCHEDULED, Stage.ASSIGNED), takes_s=50)
    async with manager_world(hooks=[slow.hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(5)
        (task,) = world.tasks()
        assert task.status.message == "planned on node n1, waiting for hook remote"
        await world.set_node("n1", state=NodeState.DOWN)
        await trio.sleep(1)
        (task,) = world.tasks()
        assert task.status.message == "pending task scheduling"
        assert task.status.err == "no suitable node (1 node not available for new tasks)"


async def test_task_planned_anew_stops_waiting_for_the_hook_of_before(autojump_clock: object) -> None:
    """Its hook was slow on the node that is lost and is quick on the next: while the store is slow it names neither."""
    database = MemoryDatabase()
    slow = Scripted("remote", Window(Stage.SCHEDULED, Stage.ASSIGNED), takes_s=50)
    async with manager_world(database, hooks=[slow.hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(5)
        await world.add(a_node("n2"))
        slow.takes_s = 0.9
        await world.set_node("n1", state=NodeState.DOWN)
        await trio.sleep(0.5)
        (task,) = world.tasks()
        assert (task.status.state, task.status.message) == (S.PENDING, "pending task scheduling")
        await trio.sleep(1)
        assert len(world.running()) == 1
