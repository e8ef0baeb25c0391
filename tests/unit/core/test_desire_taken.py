"""Tasks that were refused because a machine outside the cluster has their address. Pure tables, no clock."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.desire import TAKEN_MAX, reconcile
from beeyard.core.model import (
    AddressConflict,
    RestartCondition,
    RestartPolicy,
    Service,
    Task,
    UpdateConfig,
    UpdateState,
    UpdateStatus,
)
from beeyard.core.slots import Add, Raise, Situation, Steps, TaskTimes
from beeyard.core.states import TaskState
from tests.support.builders import a_node, a_service, a_task, a_task_spec

S = TaskState
NOW_S = 1000.0
NODES = {"n1": a_node("n1")}
CONFLICT = AddressConflict(address="10.77.0.64", mac="02:00:00:00:00:99")


def refused(task_id: str, **fields: object) -> Task:
    """A task whose address was found taken."""
    task = a_task(task_id, state=S.REJECTED, node_id="n1", spec=fields.pop("spec", None))  # type: ignore[arg-type]
    status = msgspec.structs.replace(task.status, conflicts=(CONFLICT,))
    return msgspec.structs.replace(task, status=status, **fields)


def look(service: Service, *tasks: Task, ages_s: dict[str, float] | None = None, n_taken: int = 1) -> Steps:
    """One look; a task is a millisecond old unless `ages_s` says more, and never ran."""
    aged = [msgspec.structs.replace(task, created_at_s=float(i)) for i, task in enumerate(tasks, start=1)]
    times = {t.id: TaskTimes(NOW_S - (ages_s or {}).get(t.id, 0.001), None, NOW_S) for t in aged}
    situation = Situation(now_s=NOW_S, wall_s=5e8, nodes=NODES, times=times, n_taken={1: n_taken})
    return reconcile(service, aged, situation)


@pytest.mark.parametrize(
    "restart",
    [
        RestartPolicy(condition=RestartCondition.NONE),
        RestartPolicy(condition=RestartCondition.ON_FAILURE, max_attempts=1),
        RestartPolicy(delay_s=3600.0),
    ],
)
def test_it_is_replaced_at_once_whatever_the_policy(restart: RestartPolicy) -> None:
    """Also the second and third of a row, and the replacement starts without a delay."""
    spec = a_task_spec(restart=restart)
    service = a_service(replicas=1, task=spec)
    dead = [refused(name, spec=spec, desired_state=S.SHUTDOWN) for name in "ab"]
    steps = look(service, *dead, refused("c", spec=spec))
    assert (steps.raises, steps.add) == ([Raise("c", S.SHUTDOWN)], [Add(1, S.READY)])
    waiting = a_task("d", state=S.READY, node_id="n1", spec=spec, desired_state=S.READY)
    assert look(service, *dead, waiting).raises == [Raise("d", S.RUNNING)]


def test_it_is_no_attempt() -> None:
    """One attempt is allowed, and two strangers do not use it up."""
    spec = a_task_spec(restart=RestartPolicy(max_attempts=1, delay_s=0.0))
    service = a_service(replicas=1, task=spec)
    strangers = [refused(name, spec=spec, desired_state=S.SHUTDOWN) for name in "ab"]
    failed = a_task("c", state=S.FAILED, node_id="n1", spec=spec)
    assert look(service, *strangers, failed, ages_s={"c": 60.0}).add == [Add(1, S.READY)]
    first = msgspec.structs.replace(failed, id="0", desired_state=S.SHUTDOWN)
    assert look(service, first, *strangers, failed, ages_s={"c": 60.0}).add == []


def test_it_does_not_shorten_the_delay_that_it_was_under() -> None:
    """Behind a task that failed its replacement waits, and so does whoever comes in that one's place."""
    spec = a_task_spec(restart=RestartPolicy(delay_s=5.0))
    service = a_service(replicas=1, task=spec)
    failed = a_task("a", state=S.FAILED, node_id="n1", spec=spec, desired_state=S.SHUTDOWN)
    stranger = refused("b", spec=spec, desired_state=S.SHUTDOWN)
    waiting = a_task("c", state=S.READY, node_id="n1", spec=spec, desired_state=S.READY)
    steps = look(service, failed, stranger, waiting)
    assert (steps.raises, steps.look_again_s) == ([], pytest.approx(NOW_S + 5.0, abs=0.01))


def test_a_long_row_of_them_waits_the_ordinary_delay() -> None:
    """Who answers for every address does not have the pool tried in seconds."""
    spec = a_task_spec(restart=RestartPolicy(delay_s=5.0))
    service = a_service(replicas=1, task=spec)
    row = (refused("a", spec=spec, desired_state=S.SHUTDOWN), refused("b", spec=spec))
    assert look(service, *row, n_taken=TAKEN_MAX).add == [Add(1, S.READY)]
    steps = look(service, *row, n_taken=TAKEN_MAX + 1)
    assert (steps.add, steps.look_again_s) == ([], pytest.approx(NOW_S + 5.0, abs=0.01))
    assert look(service, *row, ages_s={"b": 6.0}, n_taken=TAKEN_MAX + 1).add == [Add(1, S.READY)]


def test_an_update_is_not_paused_by_a_stranger() -> None:
    """A new task that never had its address says nothing of the new spec."""
    old, new = a_task_spec(args=("old",)), a_task_spec(args=("new",))
    service = msgspec.structs.replace(
        a_service(replicas=1, task=new, update=UpdateConfig()),
        spec_version=2,
        update_status=UpdateStatus(state=UpdateState.UPDATING),
    )
    before = a_task("a", state=S.SHUTDOWN, node_id="n1", spec=old, desired_state=S.SHUTDOWN)
    stranger = refused("b", spec=new, spec_version=2, desired_state=S.SHUTDOWN)
    on_its_way = a_task("c", state=S.PENDING, spec=new, spec_version=2)
    assert look(service, before, stranger, on_its_way).update_status is None
    failed = msgspec.structs.replace(stranger, status=msgspec.structs.replace(stranger.status, conflicts=()))
    paused = look(service, before, failed, on_its_way).update_status
    assert paused is not None
    assert paused.state is UpdateState.PAUSED
