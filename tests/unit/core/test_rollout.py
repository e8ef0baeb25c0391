"""Rolling updates, one look at a time. Pure tables, no clock."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.model import (
    FailureAction,
    RestartCondition,
    RestartPolicy,
    Service,
    Task,
    UpdateConfig,
    UpdateOrder,
    UpdateState,
    UpdateStatus,
)
from beeyard.core.preference import Preference
from beeyard.core.rollout import is_dirty, roll_out
from beeyard.core.slots import Add, Raise, Situation, Steps, TaskTimes, slots_of
from beeyard.core.states import NodeState, TaskState
from tests.support.builders import a_node, a_service, a_task, a_task_spec

S = TaskState
NOW_S = 1000.0
NODES = {
    node.id: node for node in (a_node("n1", labels={"rack": "r1"}), a_node("n2"), a_node("down", state=NodeState.DOWN))
}
STARTED_WALL_S = 4e8
NEW_SPEC = a_task_spec(args=["new"])
OLD_SPEC = a_task_spec(args=["old"])

Times = tuple[float | None, float | None]  # first seen running, ended: seconds before now


def updating(config: UpdateConfig | None = None, *, replicas: int = 3, state: UpdateState | None = None) -> Service:
    """A service at spec version 2 whose update is in some state; None: not begun."""
    service = a_service(replicas=replicas, task=NEW_SPEC, update=config or UpdateConfig())
    status = UpdateStatus(state=state, started_at_s=STARTED_WALL_S, message="update in progress") if state else None
    return msgspec.structs.replace(service, spec_version=2, update_status=status)


def old(slot: int, *, state: TaskState = S.RUNNING, desired: TaskState = S.RUNNING) -> Task:
    return a_task(
        f"old{slot}", slot=slot, spec=OLD_SPEC, spec_version=1, state=state, desired_state=desired, node_id="n1"
    )


def new(slot: int, *, state: TaskState = S.RUNNING, desired: TaskState = S.RUNNING, suffix: str = "") -> Task:
    return a_task(
        f"new{slot}{suffix}", slot=slot, spec=NEW_SPEC, spec_version=2, state=state, desired_state=desired, node_id="n1"
    )


def replaced(slot: int) -> Task:
    """An old task that the update has told to go, and that went."""
    return old(slot, state=S.SHUTDOWN, desired=S.SHUTDOWN)


def look(service: Service, *tasks: Task, times: dict[str, Times] | None = None) -> Steps:
    """One look. What runs has done so for 100 s, what ended did at once, unless `times` says more."""
    known: dict[str, TaskTimes] = {}
    for task in tasks:
        running_s, ended_s = (times or {}).get(task.id, _usual_times(task))
        known[task.id] = TaskTimes(NOW_S - 200, *(None if ago is None else NOW_S - ago for ago in (running_s, ended_s)))
    aged = [msgspec.structs.replace(task, created_at_s=float(i)) for i, task in enumerate(tasks, start=1)]
    situation = Situation(now_s=NOW_S, wall_s=5e8, nodes=NODES, times=known)
    return roll_out(service, slots_of(aged), situation)


def _usual_times(task: Task) -> Times:
    if task.status.state.is_terminal:
        return None, 100.0
    return (100.0 if task.status.state == S.RUNNING else None), None


# --- which tasks are of the old spec ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "spec", "node_id", "dirty"),
    [
        (2, OLD_SPEC, "n1", False),  # made of the present version, whatever it says
        (1, NEW_SPEC, "n1", False),  # the change was taken back
        (1, OLD_SPEC, "n1", True),
        (1, a_task_spec(args=["new"], constraints=["node.labels.rack==r9"]), "n1", False),  # only constraints differ
        (1, a_task_spec(args=["new"], constraints=["node.labels.rack==r9"]), "n2", True),
        (1, a_task_spec(args=["new"], preferences=[Preference(descriptor="node.labels.rack")]), "n1", False),
        (1, a_task_spec(args=["new"], constraints=["node.labels.rack==r9"]), "", True),
        (1, a_task_spec(args=["new"], constraints=["node.labels.rack==r9"]), "removed", True),
    ],
)
def test_what_makes_a_task_dirty(version: int, spec: object, node_id: str, dirty: bool) -> None:
    """Another task spec does, unless constraints and preferences alone differ and the task's node satisfies the new ones."""
    wanted = msgspec.structs.replace(NEW_SPEC, constraints=("node.labels.rack==r1",)) if spec != OLD_SPEC else NEW_SPEC
    wanted = NEW_SPEC if spec == NEW_SPEC else wanted
    service = msgspec.structs.replace(a_service(task=wanted), spec_version=2)
    task = msgspec.structs.replace(a_task("t", node_id=node_id), spec=spec, spec_version=version)
    assert is_dirty(task, service, NODES) is dirty


def test_no_node_satisfies_a_stored_constraint_that_is_none_any_more() -> None:
    """An earlier release took it; the update goes on all the same."""
    spec = a_task_spec(args=["new"], constraints=["node.labels.==r1"])
    service = msgspec.structs.replace(a_service(task=spec), spec_version=2)
    task = msgspec.structs.replace(a_task("t", node_id="n1"), spec=a_task_spec(args=["new"]), spec_version=1)
    assert is_dirty(task, service, NODES)


@pytest.mark.parametrize("fence", [False, True])
def test_a_change_of_fencing_makes_a_task_dirty(fence: bool) -> None:
    """A task keeps the lease that it began with: only a new one follows the service's label."""
    service = a_service(task=NEW_SPEC, labels={"beeyard.on-isolation": "fence"} if fence else {})
    service = msgspec.structs.replace(service, spec_version=3)
    task = msgspec.structs.replace(a_task("t", node_id="n1", spec=NEW_SPEC), fence=not fence)
    assert is_dirty(task, service, NODES)
    assert not is_dirty(msgspec.structs.replace(task, fence=fence), service, NODES)


# --- beginning and going on ------------------------------------------------------------------------------------------


def test_nothing_to_change() -> None:
    """Without an old task and without an update under way there is nothing to do."""
    steps = look(updating(), new(1), new(2))
    assert not steps
    assert steps.look_again_s is None


def test_first_look_begins() -> None:
    """An update starts with one slot and says so, with the time of the wall clock."""
    steps = look(updating(), old(1), old(2), old(3))
    assert steps.update_status == UpdateStatus(
        state=UpdateState.UPDATING, started_at_s=5e8, message="update in progress"
    )
    assert (steps.add, steps.raises) == ([Add(1, S.READY)], [Raise("old1", S.SHUTDOWN)])


def test_paused_update_rests() -> None:
    """A paused update does nothing at all."""
    steps = look(updating(state=UpdateState.PAUSED), new(1, state=S.FAILED), old(2))
    assert not steps
    assert steps.look_again_s is None


@pytest.mark.parametrize(
    ("parallelism", "tasks", "begun"),
    [
        (1, [old(1), old(2), old(3)], [1]),
        (2, [old(1), old(2), old(3)], [1, 2]),
        (0, [old(1), old(2), old(3)], [1, 2, 3]),  # 0: all at once
        (9, [old(1), old(2), old(3)], [1, 2, 3]),
        (1, [replaced(1), new(1, state=S.STARTING), old(2), old(3)], []),  # slot 1 is under way
        (2, [replaced(1), new(1, state=S.STARTING), old(2), old(3)], [2]),
        (1, [replaced(1), new(1), old(2), old(3)], [2]),  # slot 1 is handled
        (1, [replaced(1), new(1, state=S.FAILED, desired=S.SHUTDOWN), new(1, suffix="b"), old(2)], [2]),
        (1, [new(1), old(2)], [2]),  # slot 1 was made by scaling: none of the update's business
        (1, [old(1, state=S.COMPLETE, desired=S.SHUTDOWN), old(2)], [2]),  # it may restart, so it is no replica now
    ],
)
def test_which_slots_are_begun(parallelism: int, tasks: list[Task], begun: list[int]) -> None:
    """As many slots as the parallelism allows are under way, the lowest first."""
    config = UpdateConfig(parallelism=parallelism, delay_s=0.0, failure_action=FailureAction.CONTINUE)
    steps = look(updating(config, state=UpdateState.UPDATING), *tasks)
    assert [add.slot for add in steps.add] == begun
    assert [raised.task_id for raised in steps.raises] == [f"old{slot}" for slot in begun]


@pytest.mark.parametrize(("ran_for_s", "begun", "again_in_s"), [(4.0, [], 6.0), (10.0, [2], None)])
def test_delay_lies_between_slots(ran_for_s: float, begun: list[int], again_in_s: float | None) -> None:
    """A slot counts as under way for the delay after its new task ran; the look after that is asked for."""
    config = UpdateConfig(parallelism=1, delay_s=10.0)
    steps = look(
        updating(config, state=UpdateState.UPDATING), replaced(1), new(1), old(2), times={"new1": (ran_for_s, None)}
    )
    assert [add.slot for add in steps.add] == begun
    assert steps.look_again_s == (None if again_in_s is None else NOW_S + again_in_s)


def test_slot_that_is_done_for_good_gets_the_new_spec() -> None:
    """An ended task that its policy does not replace is a replica of the old spec: the update runs it anew, at once."""
    spec = msgspec.structs.replace(OLD_SPEC, restart=RestartPolicy(condition=RestartCondition.ON_FAILURE))
    done = msgspec.structs.replace(old(1, state=S.COMPLETE, desired=S.SHUTDOWN), spec=spec)
    steps = look(updating(), done)
    assert (steps.add, steps.raises) == ([Add(1, S.RUNNING)], [])


# --- start-first -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "raises"),
    [
        (S.PENDING, []),
        (S.READY, []),
        (S.STARTING, []),
        (S.RUNNING, [Raise("old1", S.SHUTDOWN)]),
        (S.FAILED, []),  # it waits for its own restart delay, and the old one goes on
        (S.COMPLETE, []),
        (S.REJECTED, []),
    ],
)
def test_start_first_stops_the_old_task_once_the_new_one_runs(state: TaskState, raises: list[Raise]) -> None:
    """The old task is told to stop when the new one runs; if that ended without running, it is kept."""
    config = UpdateConfig(order=UpdateOrder.START_FIRST, failure_action=FailureAction.CONTINUE)
    steps = look(updating(config, state=UpdateState.UPDATING), old(1), new(1, state=state))
    assert (steps.add, steps.raises) == ([], raises)


def test_start_first_begins_beside_the_old_task() -> None:
    """The new task may run at once and the old one is left alone."""
    steps = look(updating(UpdateConfig(order=UpdateOrder.START_FIRST)), old(1), old(2))
    assert (steps.add, steps.raises) == ([Add(1, S.RUNNING)], [])


def test_given_up_slot_keeps_its_old_task() -> None:
    """With start-first and a new task that failed for good, the old one stays and the slot is not begun again."""
    never = msgspec.structs.replace(NEW_SPEC, restart=RestartPolicy(condition=RestartCondition.NONE))
    failed = msgspec.structs.replace(new(1, state=S.FAILED, desired=S.SHUTDOWN), spec=never)
    config = UpdateConfig(order=UpdateOrder.START_FIRST, failure_action=FailureAction.CONTINUE, monitor_s=1.0)
    steps = look(updating(config, state=UpdateState.UPDATING), old(1), failed)
    assert (steps.add, steps.raises) == ([], [])


def test_one_of_several_new_tasks_is_kept() -> None:
    """Of two up-to-date tasks in a slot the one that may run is kept, and never one that has ended."""
    config = UpdateConfig(failure_action=FailureAction.CONTINUE)
    service = updating(config, state=UpdateState.UPDATING)
    steps = look(service, new(1, state=S.READY, desired=S.READY), new(1, suffix="b"))
    assert steps.raises == [Raise("new1", S.SHUTDOWN)]
    steps = look(service, new(1, state=S.READY, desired=S.READY), new(1, state=S.FAILED, suffix="b"))
    assert steps.raises == [Raise("new1b", S.SHUTDOWN)]


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "times", "action", "ratio", "paused"),
    [
        (S.REJECTED, (None, 1.0), FailureAction.PAUSE, 0.0, True),  # it never ran
        (S.COMPLETE, (None, 1.0), FailureAction.PAUSE, 0.0, True),
        (S.FAILED, (6.0, 2.0), FailureAction.PAUSE, 0.0, True),  # within the monitor period of 5 s
        (S.FAILED, (8.0, 2.0), FailureAction.PAUSE, 0.0, False),
        (S.SHUTDOWN, (6.0, 2.0), FailureAction.PAUSE, 0.0, False),  # told to
        (S.ORPHANED, (6.0, 2.0), FailureAction.PAUSE, 0.0, False),  # its node's fault
        (S.RUNNING, (6.0, None), FailureAction.PAUSE, 0.0, False),
        (S.FAILED, (6.0, 2.0), FailureAction.CONTINUE, 0.0, False),
        (S.FAILED, (6.0, 2.0), FailureAction.PAUSE, 0.5, False),  # 1 of 2 is not more than half
        (S.FAILED, (6.0, 2.0), FailureAction.PAUSE, 0.49, True),
    ],
)
def test_what_pauses_an_update(
    state: TaskState, times: Times, action: FailureAction, ratio: float, paused: bool
) -> None:
    """A new task that ends by itself before or soon after it ran is a failure; too many pause the update."""
    config = UpdateConfig(failure_action=action, max_failure_ratio=ratio, monitor_s=5.0)
    steps = look(
        updating(config, state=UpdateState.UPDATING),
        *(replaced(1), new(1, state=state), replaced(2), new(2)),
        times={"new1": times, "new2": (1.0, None)},
    )
    assert (steps.update_status is not None) is paused
    if steps.update_status is not None:
        assert steps.update_status == UpdateStatus(
            state=UpdateState.PAUSED,
            started_at_s=STARTED_WALL_S,
            message="update paused due to failure or early termination of task new1",
        )
        assert not steps.raises
        assert not steps.add


def test_failures_before_the_update_do_not_count() -> None:
    """Tasks of the old spec, and tasks in slots that the update did not change, pause nothing."""
    service = updating(UpdateConfig(failure_action=FailureAction.PAUSE), state=UpdateState.UPDATING)
    steps = look(
        service, old(1, state=S.FAILED, desired=S.SHUTDOWN), new(1), new(2, state=S.FAILED, desired=S.SHUTDOWN)
    )
    assert steps.update_status is None or steps.update_status.state is not UpdateState.PAUSED


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "ran_for_s", "done", "again_in_s"),
    [
        (S.STARTING, None, False, None),  # on its way: its next state wakes
        (S.RUNNING, 4.0, False, 1.0),
        (S.RUNNING, 5.0, True, None),
    ],
)
def test_when_an_update_is_completed(
    state: TaskState, ran_for_s: float | None, done: bool, again_in_s: float | None
) -> None:
    """One monitor period after the last new task ran."""
    service = updating(UpdateConfig(monitor_s=5.0), state=UpdateState.UPDATING)
    tasks = (replaced(1), new(1), replaced(2), new(2, state=state))
    steps = look(service, *tasks, times={"new2": (ran_for_s, None)})
    assert (steps.update_status is not None) is done
    assert steps.look_again_s == (None if again_in_s is None else NOW_S + again_in_s)
    if steps.update_status is not None:
        assert steps.update_status == UpdateStatus(
            state=UpdateState.COMPLETED, started_at_s=STARTED_WALL_S, completed_at_s=5e8, message="update completed"
        )


def test_update_without_work_is_completed_at_once() -> None:
    """When every old task is gone by other means, nothing has to be watched."""
    steps = look(updating(state=UpdateState.UPDATING), new(1), new(2))
    assert steps.update_status is not None
    assert steps.update_status.state is UpdateState.COMPLETED
