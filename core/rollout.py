"""How a changed spec reaches the slots of a service: one after another, watched, and halted when it goes wrong. Pure.

Theory of operation
-------------------
A slot is *dirty* when a live task of it (or, without one, the ended task that occupies it) was made of another task spec.
An update takes `parallelism` slots at a time. With stop-first a new task is created READY and the old one told to stop;
with start-first the new one runs before the old one is told. A slot is *handled* once a task of the present spec version in
it has run or ended; for `delay_s` from then on it still counts against the parallelism.

A task of the update that ends before it ran, or within `monitor_s` after it started to, is a failure. When the failures
exceed `max_failure_ratio` of the slots that were to change, the update is paused until the spec changes again. After the
last slot the update is watched for one more `monitor_s`, then it is completed.

Source: SwarmKit `manager/orchestrator/update/updater.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from beeyard.core import constraint
from beeyard.core.errors import InvalidSpec
from beeyard.core.labels import is_fenced
from beeyard.core.model import (
    FailureAction,
    Node,
    Service,
    Task,
    TaskSpec,
    UpdateConfig,
    UpdateOrder,
    UpdateState,
    UpdateStatus,
)
from beeyard.core.pins import has_slot_macs, pins_of
from beeyard.core.slots import Add, Raise, Situation, Slot, Steps, may_restart
from beeyard.core.states import TaskState

_ENDED_BY_ITSELF = (TaskState.COMPLETE, TaskState.FAILED, TaskState.REJECTED)


def roll_out(service: Service, slots: Mapping[int, Slot], situation: Situation) -> Steps:
    """The next steps of an update; none when every slot is as the spec says."""
    steps = Steps()
    status = service.update_status
    if status is not None and status.state is UpdateState.PAUSED:
        return steps
    updating = status is not None and status.state is UpdateState.UPDATING
    config = service.spec.update or UpdateConfig()
    if _exchanges_addresses(service, slots):
        config = msgspec.structs.replace(config, parallelism=0)
    occupied = [slot for slot in slots.values() if slot.is_occupied(service, situation)]
    dirty = [slot for slot in occupied if _is_dirty(slot, service, situation)]
    if updating and (culprit := _failed_too_often(service, slots, situation, config)):
        steps.update_status = _paused(service, culprit)
    elif dirty:
        if not updating:
            steps.update_status = UpdateStatus(
                state=UpdateState.UPDATING, started_at_s=situation.wall_s, message="update in progress"
            )
        _advance(steps, service, dirty, occupied, situation, config)
    elif updating:
        _complete(steps, service, occupied, situation, config)
    return steps


def _exchanges_addresses(service: Service, slots: Mapping[int, Slot]) -> bool:
    """Whether a slot is to get an address that another slot's live task still has.

    One slot after the other would then wait for ever for the one behind it, so all of them change at once.
    """
    pins = pins_of(service.spec.labels)
    slot_of = {address: n for n in range(1, len(pins) + 1) for address in pins.of_slot(n)}
    tasks = [task for slot in slots.values() for task in slot.live] if slot_of else []
    return any(slot_of.get(address, task.slot) != task.slot for task in tasks for address in task.pins)


def is_dirty(task: Task, service: Service, nodes: Mapping[str, Node]) -> bool:
    """Whether a task must be replaced for the service's present spec to hold.

    A change of constraints and preferences alone keeps tasks whose nodes satisfy the new constraints. A task's lease is for
    life, so a service that is fenced from now on needs new tasks; so are its addresses.
    """
    new, labels = service.spec.task, service.spec.labels
    if task.spec_version == service.spec_version:
        return False
    own = (task.fence, task.pins, task.mac_per_slot)
    wanted = (is_fenced(labels), pins_of(labels).of_slot(task.slot), has_slot_macs(labels))
    if (task.spec, own) == (new, wanted):
        return False
    if own != wanted or not _differ_in_placement_only(task.spec, new):
        return True
    node = nodes.get(task.node_id)
    return node is None or not _satisfies(node, new.constraints, nodes)


def _satisfies(node: Node, expressions: Sequence[str], nodes: Mapping[str, Node]) -> bool:
    """Whether a node satisfies stored constraints; one that an earlier release took and this one does not, none does."""
    try:
        return constraint.matches(constraint.parse_all(expressions), node, nodes.values())
    except InvalidSpec:
        return False


def _differ_in_placement_only(old: TaskSpec, new: TaskSpec) -> bool:
    return msgspec.structs.replace(old, constraints=new.constraints, preferences=new.preferences) == new


def _is_dirty(slot: Slot, service: Service, situation: Situation) -> bool:
    if len(slot.live) > 1:
        return True
    occupant = slot.live[0] if slot.live else slot.newest
    assert occupant is not None
    if not is_dirty(occupant, service, situation.nodes):
        return False
    newest = slot.newest
    # With start-first the new task may have failed for good while the old one runs: that slot stays as it is.
    given_up = newest is not occupant and newest is not None and not may_restart(newest, slot, service, situation)
    return not (given_up and newest is not None and newest.spec_version == service.spec_version)


def _advance(
    steps: Steps, service: Service, dirty: list[Slot], occupied: list[Slot], situation: Situation, config: UpdateConfig
) -> None:
    """Finish slots whose new task runs, and begin as many others as the parallelism allows."""
    busy = 0
    fresh: list[Slot] = []
    for slot in occupied:
        handled_s = _handled_s(slot, service, situation)
        if handled_s is not None:
            if situation.now_s < handled_s + config.delay_s:
                busy += 1
                steps.look_again(handled_s + config.delay_s)
        elif _is_begun(slot, service):
            busy += 1
    for slot in dirty:
        clean = [t for t in slot.live if not is_dirty(t, service, situation.nodes)]
        if not clean:
            fresh.append(slot)
        elif config.order is UpdateOrder.STOP_FIRST or any(t.status.state == TaskState.RUNNING for t in clean):
            _shut_down_others(steps, slot, clean, situation)
    for slot in fresh[: max(0, (config.parallelism or len(occupied)) - busy)]:
        _begin(steps, slot, config)


def _begin(steps: Steps, slot: Slot, config: UpdateConfig) -> None:
    if config.order is UpdateOrder.START_FIRST or not slot.live:
        steps.add.append(Add(slot.number, TaskState.RUNNING))
    else:
        steps.add.append(Add(slot.number, TaskState.READY))
        steps.raises += [Raise(task.id, TaskState.SHUTDOWN) for task in slot.live]


def _shut_down_others(steps: Steps, slot: Slot, clean: list[Task], situation: Situation) -> None:
    """Keep one up-to-date task, preferably one that may run already."""

    def worth(task: Task) -> tuple[bool, bool, TaskState]:
        return not situation.has_ended(task), task.desired_state == TaskState.RUNNING, task.status.state

    keep = max(clean, key=worth)
    steps.raises += [Raise(task.id, TaskState.SHUTDOWN) for task in slot.live if task is not keep]


def _is_begun(slot: Slot, service: Service) -> bool:
    """Whether a new task was put beside or after an old one."""
    versions = [task.spec_version == service.spec_version for task in slot.tasks]
    return any(versions) and not all(versions)


def _handled_s(slot: Slot, service: Service, situation: Situation) -> float | None:
    """When the update was through with a slot; None when it is not, or had nothing to do there."""
    if not _is_begun(slot, service):
        return None
    # One whose address was found taken is neither handled nor failed: another comes at once.
    new = [t for t in slot.tasks if t.spec_version == service.spec_version and not t.status.conflicts]
    times = [situation.times[t.id] for t in new]
    seen = [t.ended_s if t.running_s is None else t.running_s for t in times]
    return min((at_s for at_s in seen if at_s is not None), default=None)


def _failed_too_often(
    service: Service, slots: Mapping[int, Slot], situation: Situation, config: UpdateConfig
) -> Task | None:
    """The last failed task of the update when failures exceed what is tolerated."""
    if config.failure_action is FailureAction.CONTINUE:
        return None
    changed = [slot for slot in slots.values() if any(t.spec_version != service.spec_version for t in slot.tasks)]
    failed = [t for slot in changed for t in slot.tasks if _is_failure(t, service, situation, config)]
    return failed[-1] if len(failed) > config.max_failure_ratio * len(changed) else None


def _is_failure(task: Task, service: Service, situation: Situation, config: UpdateConfig) -> bool:
    if task.spec_version != service.spec_version or task.status.state not in _ENDED_BY_ITSELF or task.status.conflicts:
        return False
    times = situation.times[task.id]
    if times.running_s is None or times.ended_s is None:
        return True
    return times.ended_s - times.running_s <= config.monitor_s


def _complete(steps: Steps, service: Service, occupied: list[Slot], situation: Situation, config: UpdateConfig) -> None:
    """Every slot is up to date: once all are handled, watch for one more monitor period, then the update is done."""
    handled = [_handled_s(slot, service, situation) for slot in occupied if _is_begun(slot, service)]
    if None in handled:
        return  # a new task is still on its way
    last_s = max((at_s for at_s in handled if at_s is not None), default=situation.now_s - config.monitor_s)
    if situation.now_s < last_s + config.monitor_s:
        steps.look_again(last_s + config.monitor_s)
        return
    status = service.update_status
    assert status is not None
    steps.update_status = msgspec.structs.replace(
        status, state=UpdateState.COMPLETED, completed_at_s=situation.wall_s, message="update completed"
    )


def _paused(service: Service, culprit: Task) -> UpdateStatus:
    status = service.update_status
    assert status is not None
    message = f"update paused due to failure or early termination of task {culprit.id}"
    return msgspec.structs.replace(status, state=UpdateState.PAUSED, message=message)
