"""What goes wrong inside: it costs the tasks concerned some time, and nobody else anything."""

from __future__ import annotations

import dataclasses

import pytest
import trio
from structlog.testing import capture_logs

from beeyard.core.errors import ClusterError, DiskError, InvalidSpec, PoolExhausted
from beeyard.core.states import TaskState
from beeyard.manager.hooks import Stage, Window
from tests.support.builders import a_node, a_service
from tests.support.manager_world import manager_world
from tests.support.scripted_hook import Scripted

S = TaskState
BEFORE = Window(Stage.NEW, Stage.PENDING)
BESIDE = Window(Stage.NEW, Stage.ASSIGNED)
AFTER = Window(Stage.SCHEDULED, Stage.ASSIGNED)


@pytest.mark.parametrize("window", [BEFORE, BESIDE, AFTER])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PoolExhausted("lan", 4), "remote: no address left in pool lan"),
        (DiskError("write", "/x", "no space left"), "remote: cannot write /x: no space left"),
        (InvalidSpec("name", "too long"), "remote: invalid name: too long"),
        (KeyError("n1"), "remote: internal error: KeyError('n1')"),
        (AssertionError("never"), "remote: internal error: AssertionError('never')"),
    ],
)
async def test_hook_that_fails_keeps_its_own_tasks_waiting(
    autojump_clock: object, window: Window, error: Exception, sentence: str
) -> None:
    """Whatever it raises, its tasks wait and say why, others run, and they run too once it works."""
    hook = Scripted("remote", window)
    hook.fails_with = error
    for_s1 = dataclasses.replace(hook.hook, applies=lambda task: task.service_id == "s1")
    async with manager_world(hooks=[for_s1]) as world:
        with capture_logs() as logged:
            await world.add(a_node("n1"), a_service(), a_service("s2", name="other"))
            await trio.sleep(25)
        assert len(world.running("s2")) == 1
        (task,) = world.tasks()
        if window is AFTER and isinstance(error, ClusterError):
            sentence = "no suitable node (refused by an allocation hook on 1 node)"
        assert (task.status.state, task.status.err) == (S.NEW if window is BEFORE else S.PENDING, sentence)
        assert len([line for line in logged if line["event"] == "hook failed"]) == ("internal" in sentence)
        hook.fails_with = None
        await trio.sleep(70)
        assert len(world.running()) == 1
