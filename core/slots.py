"""The tasks of a service by slot, and what surrounds them: the ground that `core.desire` and `core.rollout` decide on. Pure.

A task is *live* while its desired state is at most RUNNING. A slot is *occupied* by a live task, or by an ended one that its
restart policy does not replace. A live task has *ended* when its observed state is terminal or its node cannot have it any
more: down, drained or removed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from beeyard.core.model import Node, RestartCondition, Service, Task, UpdateStatus
from beeyard.core.states import DRAIN, NODE_DOWN, RUNNING, TaskState


class NodeFault(enum.Enum):
    """Why a node cannot have a task any more."""

    DOWN = enum.auto()
    DRAINED = enum.auto()
    REMOVED = enum.auto()


class TaskTimes(msgspec.Struct, frozen=True, gc=False):
    """When things were first seen of a task, in seconds of the caller's monotonic clock; None: not seen."""

    created_s: float
    running_s: float | None = None
    ended_s: float | None = None


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a service when it is looked at."""

    now_s: float  # monotonic, as the times are
    wall_s: float
    nodes: Mapping[str, Node]
    times: Mapping[str, TaskTimes]  # of every task of the service
    # While more than half of the nodes seem to be down the manager is probably the one cut off: nothing moves then.
    trust_down: bool = True
    # Ids of cluster volumes that are drained: whoever has one is to leave it, as if its node were drained.
    drained_volumes: frozenset[str] = frozenset()
    # By slot: how many of its tasks were refused within the last minute because a stranger has their address.
    n_taken: Mapping[int, int] = {}

    def fault(self, task: Task) -> NodeFault | None:
        """Why the task's node cannot have it any more; None for a task without a node."""
        if not task.node_id:
            return None
        node = self.nodes.get(task.node_id)
        if node is None:
            return NodeFault.REMOVED
        if node.availability is DRAIN:
            return NodeFault.DRAINED
        if self.drained_volumes and any(use.volume_id in self.drained_volumes for use in task.volumes):
            return NodeFault.DRAINED
        if node.status.state is NODE_DOWN and self.trust_down:
            return NodeFault.DOWN
        return None

    def has_ended(self, task: Task) -> bool:
        """Whether the task does not run and never will again where it is."""
        return task.status.state > RUNNING or (task.node_id != "" and self.fault(task) is not None)


class Add(msgspec.Struct, frozen=True, gc=False):
    """Create a task of the service's present spec in a slot."""

    slot: int
    desired_state: TaskState = TaskState.RUNNING


class Raise(msgspec.Struct, frozen=True, gc=False):
    """Ask more of a task: to run, to shut down, to be removed."""

    task_id: str
    to: TaskState


class Steps(msgspec.Struct):
    """What to do now. `look_again_s`: when it is worth looking again though nothing changed."""

    add: list[Add] = []
    raises: list[Raise] = []
    update_status: UpdateStatus | None = None  # None: as it is
    look_again_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.add or self.raises or self.update_status)

    def look_again(self, at_s: float) -> None:
        """Note a time at which something is due; the earliest counts."""
        self.look_again_s = at_s if self.look_again_s is None else min(self.look_again_s, at_s)


class Slot:
    """The tasks of one slot, oldest first."""

    __slots__ = ("live", "number", "tasks")

    def __init__(self, number: int, tasks: Sequence[Task]) -> None:
        self.number = number
        self.tasks = tasks
        # Most slots have one task, and most of those are live.
        is_plain = len(tasks) == 1 and tasks[0].desired_state <= RUNNING
        self.live = tasks if is_plain else [task for task in tasks if task.desired_state <= RUNNING]

    @property
    def newest(self) -> Task | None:
        """The latest task that was not removed by scaling or with its service."""
        return next((task for task in reversed(self.tasks) if task.desired_state < TaskState.REMOVE), None)

    def is_occupied(self, service: Service, situation: Situation) -> bool:
        """Whether the slot counts as one of the service's replicas."""
        if self.live:
            return True
        newest = self.newest
        return newest is not None and not may_restart(newest, self, service, situation)


def is_live(task: Task) -> bool:
    """Whether the task is still meant to run."""
    return task.desired_state <= TaskState.RUNNING


def slots_of(tasks: Iterable[Task]) -> dict[int, Slot]:
    """Tasks of one service by slot, in order of slot and then of creation. Cheapest when they come in order of slot."""
    by_slot: dict[int, list[Task]] = {}
    for task in tasks:
        slot_tasks = by_slot.get(task.slot)
        if slot_tasks is None:
            by_slot[task.slot] = [task]
        else:
            slot_tasks.append(task)
    for slot_tasks in by_slot.values():
        if len(slot_tasks) > 1:
            slot_tasks.sort(key=lambda task: (task.created_at_s, task.id))
    return {number: Slot(number, by_slot[number]) for number in sorted(by_slot)}


def may_restart(task: Task, slot: Slot, service: Service, situation: Situation) -> bool:
    """Whether the restart policy of a task that has ended lets another take its place.

    One whose address was found taken is no attempt: it never had what it was promised.
    """
    if task.status.conflicts:
        return True
    policy = task.spec.restart
    if policy.condition is RestartCondition.NONE:
        return False
    if policy.condition is RestartCondition.ON_FAILURE and task.status.state is TaskState.COMPLETE:
        return False
    if policy.max_attempts == 0:
        return True
    restarts = [t for t in slot.tasks if t.spec_version == service.spec_version and not t.status.conflicts][1:]
    if policy.window_s > 0:
        ended_s = situation.times[task.id].ended_s or situation.now_s
        restarts = [t for t in restarts if situation.times[t.id].created_s > ended_s - policy.window_s]
    return len(restarts) < policy.max_attempts
