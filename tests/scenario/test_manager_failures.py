"""What goes wrong inside: it costs the tasks concerned some time, and nobody else anything."""

from __future__ import annotations

import dataclasses

import pytest
import trio
from structlog.testing import capture_logs

from beeyard.core.demand import Findings
from beeyard.core.errors import ClusterError, DiskError, InvalidSpec, PoolExhausted
from beeyard.core.grant import AnyGrant
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.states import TaskState
from beeyard.manager.hooks import Stage, Window
from beeyard.manager.store import Transaction
from beeyard.manager.store.view import Tables
from beeyard.manager.transition import admit
from tests.support.builders import a_node, a_service, a_task
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
            sentence = f"no suitable node (refused by an allocation hook on 1 node): {sentence}"
        assert (task.status.state, task.status.err) == (S.NEW if window is BEFORE else S.PENDING, sentence)
        assert len([line for line in logged if line["event"] == "hook failed"]) == ("internal" in sentence)
        hook.fails_with = None
        await trio.sleep(70)
        assert len(world.running()) == 1


class Defective(PlacementIndex):
    """An index that cannot check one service's plans again."""

    broken = True

    def feasible(self, demand: Demand, node_id: str, *, task_id: str = "", findings: Findings | None = None) -> str:
        if self.broken and demand.service_id == "s1":
            raise OverflowError("value too large")
        return super().feasible(demand, node_id, task_id=task_id, findings=findings)


async def test_defect_met_while_assigning_is_one_tasks_alone(autojump_clock: object) -> None:
    """Its task waits and says so, others of its lot run; it is tried again every 30 s, and runs once it can."""
    index = Defective()
    async with manager_world(index=index) as world:
        with capture_logs() as logged:
            await world.add(a_service(), a_service("s2", name="other", replicas=3), a_node("n1"))
            await trio.sleep(25)
            assert len(world.running("s2")) == 3
            await world.scale(5, "s2")
            await trio.sleep(60)
        assert len(world.running("s2")) == 5
        (task,) = world.tasks()
        assert (task.status.state, task.status.err) == (S.PENDING, "internal error while scheduling")
        failures = [line for line in logged if line["event"] == "task not assigned"]
        assert [line["task"] for line in failures] == [task.id] * 3
        assert failures[0]["exc_info"]
        index.broken = False
        await trio.sleep(30)
        assert len(world.running()) == 1


async def test_defect_met_while_admitting_is_one_tasks_alone() -> None:
    """Its lot is stored without it."""
    tables = Tables()
    for task_id in ("a", "broken", "c"):
        tables.put(a_task(task_id, state=S.NEW))

    def grants_of(task_id: str) -> tuple[AnyGrant, ...]:
        if task_id == "broken":
            raise KeyError(task_id)
        return ()

    tx = Transaction(tables, 0, 1000.0)
    results = admit([tx.tasks[task_id] for task_id in ("a", "broken", "c")], grants_of, tx)
    assert [str(result) for result in results] == ["()", "'broken'", "()"]
    assert [change.id for change in tx.changes] == ["a", "c"]
