"""Desired tasks: replicas, restarts, waiting replacements, scaling order. Pure tables, no clock."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.desire import NEVER_RAN_S_MIN, STOP_TIMEOUT_S, reconcile, remove_all
from beeyard.core.model import Node, RestartCondition, RestartPolicy, Service, Task
from beeyard.core.slots import Add, Raise, Situation, Steps, TaskTimes
from beeyard.core.states import Availability, NodeState, TaskState
from tests.support.builders import a_node, a_service, a_task, a_task_spec

S = TaskState
NODES = {
    node.id: node
    for node in (
        a_node("ready"),
        a_node("down", state=NodeState.DOWN),
        a_node("drain", availability=Availability.DRAIN),
        a_node("unknown", state=NodeState.UNKNOWN),
        a_node("gone-silent", state=NodeState.DISCONNECTED),
        a_node("n1"),
        a_node("n2"),
        a_node("n3"),
    )
}
NOW_S = 1000.0


def look(
    service: Service,
    *tasks: Task,
    times: dict[str, TaskTimes] | None = None,
    trust_down: bool = True,
    nodes: dict[str, Node] | None = None,
) -> Steps:
    """One look; tasks are as old as their order says unless `times` says more."""
    aged = [msgspec.structs.replace(task, created_at_s=float(i)) for i, task in enumerate(tasks, start=1)]
    known = {task.id: TaskTimes(created_s=NOW_S - 500 + task.created_at_s) for task in aged}
    situation = Situation(
        now_s=NOW_S, wall_s=5e8, nodes=nodes or NODES, times={**known, **(times or {})}, trust_down=trust_down
    )
    return reconcile(service, aged, situation)


def running(task_id: str, slot: int, node_id: str = "ready", state: TaskState = S.RUNNING, **fields: object) -> Task:
    return msgspec.structs.replace(a_task(task_id, slot=slot, state=state, node_id=node_id), **fields)


def test_missing_slots_are_filled_from_the_lowest() -> None:
    """Three of five replicas are missing: the free slot numbers 1, 3 and 5 are taken, to run at once."""
    steps = look(a_service(replicas=5), running("a", 2), running("b", 4))
    assert steps.add == [Add(1), Add(3), Add(5)]
    assert steps.raises == []


def test_enough_is_enough() -> None:
    """With as many live tasks as replicas there is nothing to do, and nothing to come back for."""
    steps = look(a_service(replicas=2), running("a", 1), a_task("b", slot=2, state=S.PENDING))
    assert not steps
    assert steps.look_again_s is None


def test_slot_that_still_stops_is_taken_with_a_waiting_task() -> None:
    """A slot given up whose task still runs is taken again by one that waits for it."""
    stopping = running("a", 1, desired_state=S.REMOVE)
    assert look(a_service(replicas=1), stopping).add == [Add(1, S.READY)]
    ended = running("a", 1, desired_state=S.REMOVE, state=S.SHUTDOWN)
    assert look(a_service(replicas=1), ended).add == [Add(1, S.RUNNING)]


@pytest.mark.parametrize(
    ("state", "node_id", "trust_down", "ends"),
    [
        (S.RUNNING, "ready", True, False),
        (S.FAILED, "ready", True, True),
        (S.COMPLETE, "ready", True, True),
        (S.REJECTED, "ready", True, True),
        (S.ORPHANED, "ready", True, True),
        (S.RUNNING, "down", True, True),
        (S.RUNNING, "down", False, False),
        (S.RUNNING, "drain", False, True),
        (S.RUNNING, "removed", False, True),
        (S.RUNNING, "unknown", True, False),
        (S.RUNNING, "gone-silent", True, False),
        (S.ASSIGNED, "down", True, True),
    ],
)
def test_what_ends_a_task(state: TaskState, node_id: str, trust_down: bool, ends: bool) -> None:
    """A terminal state, or a node that is down (unless the manager distrusts itself), drained or removed, ends a task."""
    steps = look(a_service(), running("a", 1, node_id, state), trust_down=trust_down)
    assert steps.raises == ([Raise("a", S.SHUTDOWN)] if ends else [])
    assert steps.add == ([Add(1, S.READY)] if ends else [])


@pytest.mark.parametrize(
    ("condition", "state", "restarts"),
    [
        (RestartCondition.NONE, S.FAILED, False),
        (RestartCondition.NONE, S.COMPLETE, False),
        (RestartCondition.ON_FAILURE, S.FAILED, True),
        (RestartCondition.ON_FAILURE, S.REJECTED, True),
        (RestartCondition.ON_FAILURE, S.COMPLETE, False),
        (RestartCondition.ANY, S.COMPLETE, True),
        (RestartCondition.ANY, S.FAILED, True),
    ],
)
def test_restart_conditions(condition: RestartCondition, state: TaskState, restarts: bool) -> None:
    """Which ends are followed by a new task; a slot that is done for good still counts as one of the replicas."""
    spec = a_task_spec(restart=RestartPolicy(condition=condition))
    service = a_service(task=spec)
    steps = look(service, running("a", 1, state=state, spec=spec))
    assert [add.slot for add in steps.add] == ([1] if restarts else [])
    told = running("a", 1, state=state, spec=spec, desired_state=S.SHUTDOWN)
    if not restarts:
        assert not look(service, told)


@pytest.mark.parametrize(
    ("n_tasks", "window_s", "restarts"), [(1, 0, True), (2, 0, True), (3, 0, False), (9, 50, True)]
)
def test_attempts(n_tasks: int, window_s: float, restarts: bool) -> None:
    """Two attempts: the first task and two more, unless the others were before the window."""
    spec = a_task_spec(restart=RestartPolicy(max_attempts=2, window_s=window_s))
    tasks = [running(f"t{i}", 1, state=S.FAILED, spec=spec, desired_state=S.SHUTDOWN) for i in range(n_tasks - 1)]
    last = running("last", 1, state=S.FAILED, spec=spec)
    times = {"last": TaskTimes(NOW_S - 200, NOW_S - 199, NOW_S - 1)}
    steps = look(a_service(task=spec), *tasks, last, times=times)
    assert bool(steps.add) is restarts
    assert steps.raises == [Raise("last", S.SHUTDOWN)]


def test_new_spec_version_has_attempts_of_its_own() -> None:
    """Failures of an older version do not count against the present one."""
    spec = a_task_spec(restart=RestartPolicy(max_attempts=1))
    old = [running(f"t{i}", 1, state=S.FAILED, spec=spec, desired_state=S.SHUTDOWN) for i in range(2)]
    new = running("new", 1, state=S.FAILED, spec=spec, spec_version=2)
    service = msgspec.structs.replace(a_service(task=spec), spec_version=2)
    assert look(service, *old, new).add == [Add(1, S.READY)]


@pytest.mark.parametrize(
    ("age_s", "before", "started"),
    [
        (4.9, {"state": S.FAILED}, False),
        (5.0, {"state": S.FAILED}, True),
        (0.0, {"state": S.SHUTDOWN, "spec_version": 0}, True),  # replaced by an update: no delay
        (0.0, {"state": S.SHUTDOWN, "node_id": "drain"}, True),
        (59.0, {"state": S.RUNNING}, False),  # it has not stopped yet
        (STOP_TIMEOUT_S, {"state": S.RUNNING}, True),
        (5.0, {"state": S.RUNNING, "node_id": "down"}, True),  # nobody can tell whether it has stopped
        (4.0, {"state": S.RUNNING, "node_id": "down"}, False),
        (0.0, {"state": S.SHUTDOWN, "desired_state": S.REMOVE}, True),
    ],
)
def test_when_a_replacement_starts(age_s: float, before: dict[str, object], started: bool) -> None:
    """A READY task starts after the delay and once its predecessor has stopped; else it says when to look again."""
    old = running("old", 1, **{"desired_state": S.SHUTDOWN, **before})  # type: ignore[arg-type]
    new = running("new", 1, state=S.READY, desired_state=S.READY)
    steps = look(a_service(), old, new, times={"new": TaskTimes(NOW_S - age_s)})
    if started:
        assert steps.raises == [Raise("new", S.RUNNING)]
    else:
        assert not steps
        assert steps.look_again_s is not None
        assert NOW_S < steps.look_again_s <= NOW_S + STOP_TIMEOUT_S


def test_unassigned_goes_first_when_scaling_down() -> None:
    """Seven tasks for six replicas: the one without a node is removed."""
    tasks = [running(f"t{i}", i, f"n{i % 3 + 1}") for i in (1, 2, 3, 4, 5, 6)]
    waiting = a_task("waiting", slot=0, state=S.PENDING)
    assert look(a_service(replicas=6), waiting, *tasks).raises == [Raise("waiting", S.REMOVE)]


def test_fullest_node_loses_first() -> None:
    """On nodes with 1 (starting), 2 and 3 tasks, 6 → 4 takes two from the third, and its lowest slot survives."""
    nodes = ["n1", "n2", "n2", "n3", "n3", "n3"]
    tasks = [
        running(f"t{slot}", slot, node_id, S.STARTING if node_id == "n1" else S.RUNNING)
        for slot, node_id in enumerate(nodes, start=1)
    ]
    steps = look(a_service(replicas=4), *tasks)
    assert sorted(r.task_id for r in steps.raises) == ["t5", "t6"]
    assert {r.to for r in steps.raises} == {S.REMOVE}


def test_running_is_kept_before_starting() -> None:
    """Of two tasks on one node the running one stays, whatever its slot."""
    starting, runs = running("starting", 1, "n1", S.STARTING), running("runs", 2, "n1")
    assert look(a_service(replicas=1), starting, runs).raises == [Raise("starting", S.REMOVE)]


def test_slot_is_given_up_with_its_history() -> None:
    """Scaling to zero asks the whole slot to go, ended tasks too; what was asked already is not asked again."""
    ended = running("ended", 1, state=S.FAILED, desired_state=S.SHUTDOWN)
    gone = running("gone", 2, desired_state=S.REMOVE)
    steps = look(a_service(replicas=0), ended, running("now", 1), gone)
    assert steps.raises == [Raise("ended", S.REMOVE), Raise("now", S.REMOVE)]


def test_tasks_of_a_removed_service() -> None:
    """Every task of a service that is gone is asked to go, once."""
    tasks = [running("a", 1), running("b", 2, state=S.FAILED), running("c", 3, desired_state=S.REMOVE)]
    assert remove_all(tasks).raises == [Raise("a", S.REMOVE), Raise("b", S.REMOVE)]


def test_newer_live_task_makes_a_replacement_superfluous() -> None:
    """When a slot's old task ends while its new one is live (start-first), the old one is just shut down."""
    steps = look(a_service(), running("old", 1, state=S.FAILED), running("new", 1))
    assert (steps.raises, steps.add) == ([Raise("old", S.SHUTDOWN)], [])


OLD = running("old", 1, state=S.FAILED, desired_state=S.SHUTDOWN)
OLD_SPEC = running("old", 1, state=S.SHUTDOWN, desired_state=S.SHUTDOWN, spec_version=0)


@pytest.mark.parametrize(
    ("before", "delay_s", "task", "times", "due_in_s"),
    [
        # (created, first seen running, ended) before now
        ([], 5.0, {"state": S.REJECTED}, (0.1, None, 0.0), 0.0),  # the first of its slot: at once
        ([OLD], 5.0, {"state": S.REJECTED}, (0.5, None, 0.0), 4.5),
        ([OLD], 5.0, {"state": S.FAILED}, (4.9, None, 0.0), 0.1),
        ([OLD], 5.0, {"state": S.FAILED}, (5.0, None, 4.0), 0.0),
        ([OLD], 5.0, {"state": S.FAILED, "desired_state": S.RUNNING}, (5.1, 0.1, 0.0), 0.0),
        ([OLD], 0.0, {"state": S.REJECTED}, (0.2, None, 0.0), NEVER_RAN_S_MIN - 0.2),
        ([OLD], 0.1, {"state": S.REJECTED}, (0.2, None, 0.0), NEVER_RAN_S_MIN - 0.2),
        ([OLD], 0.0, {"state": S.FAILED, "desired_state": S.RUNNING}, (0.2, 0.1, 0.0), 0.0),  # it ran: as was asked
        ([OLD_SPEC], 5.0, {"state": S.REJECTED}, (0.2, None, 0.0), NEVER_RAN_S_MIN - 0.2),  # made by an update
        ([OLD], 5.0, {"state": S.READY, "node_id": "drain"}, (0.2, None, None), 0.0),
        ([OLD], 5.0, {"state": S.READY, "node_id": "down"}, (0.2, None, None), 0.0),
        ([OLD], 5.0, {"state": S.READY, "node_id": "removed"}, (0.2, None, None), 0.0),
    ],
)
def test_when_a_replacement_is_replaced(
    before: list[Task],
    delay_s: float,
    task: dict[str, object],
    times: tuple[float, float | None, float | None],
    due_in_s: float,
) -> None:
    """One that ended inside its own delay stays until that is over, and until then nothing else is done about it."""
    spec = a_task_spec(restart=RestartPolicy(delay_s=delay_s))
    ended = running("ended", 1, spec=spec, **{"desired_state": S.READY, **task})  # type: ignore[arg-type]
    created_s, running_s, ended_s = (None if ago_s is None else NOW_S - ago_s for ago_s in times)
    assert created_s is not None
    steps = look(a_service(task=spec), *before, ended, times={"ended": TaskTimes(created_s, running_s, ended_s)})
    if due_in_s == 0.0:
        assert (steps.raises, steps.add) == ([Raise("ended", S.SHUTDOWN)], [Add(1, S.READY)])
    else:
        assert not steps
        assert steps.look_again_s == pytest.approx(NOW_S + due_in_s)


def test_ended_replacement_is_not_let_run() -> None:
    """With no delay a waiting task is due at once, but not one that has ended already."""
    spec = a_task_spec(restart=RestartPolicy(delay_s=0.0))
    ended = running("ended", 1, state=S.REJECTED, desired_state=S.READY, spec=spec)
    assert look(a_service(task=spec), OLD, ended, times={"ended": TaskTimes(NOW_S - 0.5)}).raises == []


def test_slot_with_an_ended_replacement_can_be_given_up() -> None:
    """Scaling down does not wait for the delay of a task that has ended."""
    ended = running("ended", 1, state=S.REJECTED, desired_state=S.READY)
    steps = look(a_service(replicas=0), OLD, ended, times={"ended": TaskTimes(NOW_S - 0.5)})
    assert steps.raises == [Raise("old", S.REMOVE), Raise("ended", S.REMOVE)]
