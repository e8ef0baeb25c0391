"""What one node must run, as sets of changes against what its agent was told before.

An `AssignmentBook` belongs to one session. Store events only mark tasks as touched; what is sent is read from the store
when the writer is ready to send. So a set holds the net effect of everything since the last one, however slow the agent
reads, and the memory of a book is bounded by the tasks of its node.

A task is sent once it is ASSIGNED or beyond, and again when something other than its status changed. It is removed when
it is gone from the store. The first set of a session, and the answer to a `Resync`, is complete.

A set is handed out in parts of bounded size (see `core.wire`); the next set begins when all of them are taken. A task that
is too large for any part is left out and its owner told: it must cost its node neither the session nor the other tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from beeyard.core.model import Service, Task
from beeyard.core.states import ASSIGNED, TaskState
from beeyard.core.wire import FRAME_BYTES_MAX, AssignedTask, Assignments, encoder
from beeyard.manager.store import View

# Source: SwarmKit `defaultNodeDownPeriod`: tasks of a node that is down for so long are orphaned.
LEASE_S = 86400.0
# Twelve heartbeats: a task that must not run where nobody can see it still survives a restart of the manager.
FENCED_LEASE_S = 60.0
# 1 MiB: one part passes a link of 1 Mbit/s within the time that a write may take, and others can speak in between.
PART_BYTES = 1 << 20
# Ids of removed tasks in one part, some 250 KB.
PART_REMOVED = 10_000
# Half a frame: room for whatever else is in it.
TASK_BYTES_MAX = FRAME_BYTES_MAX // 2


# A task and its bytes on the wire.
_Sized = tuple[AssignedTask, int]


class AssignmentBook:
    """What the agent of one node has been told in this session, and what it has not yet."""

    def __init__(self, store: View, node_id: str, too_large: Callable[[str, int], None]) -> None:
        """`too_large` is called with the id and the bytes of a task that cannot be sent."""
        self._store = store
        self._node_id = node_id
        self._too_large = too_large
        self._number = 0
        self._sent: dict[str, AssignedTask] = {}
        self._fenced: dict[str, None] = {}  # those of `_sent` with the short lease
        self._touched: dict[str, None] = {}  # a dict for its order
        self._complete_due = True
        self._parts: deque[Assignments] = deque()

    @property
    def unfinished(self) -> bool:
        """Whether parts of a set are left that was begun."""
        return bool(self._parts)

    @property
    def shortest_lease_s(self) -> float:
        """The shortest lease of the tasks that the agent was told to run."""
        return FENCED_LEASE_S if self._fenced else LEASE_S

    def touch(self, task_id: str) -> None:
        """Something about a task of this node changed."""
        self._touched[task_id] = None

    def request_complete(self) -> None:
        """The agent has missed a set: the next one must be complete."""
        self._complete_due = True

    def take(self) -> Assignments | None:
        """The set or the part of one to send now, or None when nothing of interest changed. It counts as sent."""
        if not self._parts:
            self._parts.extend(self._next_set())
        return self._parts.popleft() if self._parts else None

    def _next_set(self) -> list[Assignments]:
        touched, self._touched = self._touched, {}
        complete, self._complete_due = self._complete_due, False
        changed, removed = self._everything() if complete else self._changes(touched)
        if not complete and not changed and not removed:
            return []
        before, self._number = self._number, self._number + 1
        parts = _parts(changed, removed)
        return [
            Assignments(
                complete=complete,
                applies_to=0 if complete else before,
                results_in=self._number,
                tasks=tuple(tasks),
                removed=tuple(removed),
                more=position < len(parts),
            )
            for position, (tasks, removed) in enumerate(parts, start=1)
        ]

    def _everything(self) -> tuple[list[_Sized], list[str]]:
        before, self._sent, self._fenced = self._sent, {}, {}
        placed = (t for t in self._store.tasks_of_node(self._node_id) if t.status.state >= TaskState.ASSIGNED)
        kept = (self._keep(assigned_task(t, self._store.services, before.get(t.id))) for t in placed)
        return [sized for sized in kept if sized is not None], []

    def _changes(self, touched: Iterable[str]) -> tuple[list[_Sized], list[str]]:
        changed: list[_Sized] = []
        removed: list[str] = []
        for task_id in touched:
            task = self._store.tasks.get(task_id)
            if task is None or task.node_id != self._node_id:
                self._fenced.pop(task_id, None)
                if self._sent.pop(task_id, None) is not None:
                    removed.append(task_id)
            elif (news := self._news(task)) is not None:
                changed.append(news)
        return changed, removed

    def _news(self, task: Task) -> _Sized | None:
        """The task as it must be sent now, None when the agent knows all but its status."""
        if task.status.state < ASSIGNED:
            return None
        before = self._sent.get(task.id)
        if before is not None and before.desired_state is task.desired_state and before.grants == task.grants:
            return None  # Nothing else of a task ever changes.
        return self._keep(assigned_task(task, self._store.services, before))

    def _keep(self, assigned: AssignedTask) -> _Sized | None:
        n_bytes = len(encoder.encode(assigned))
        if n_bytes > TASK_BYTES_MAX:
            self._too_large(assigned.id, n_bytes)
            return None
        self._sent[assigned.id] = assigned
        if assigned.fence:
            self._fenced[assigned.id] = None
        return assigned, n_bytes


def _parts(changed: list[_Sized], removed: list[str]) -> list[tuple[list[AssignedTask], list[str]]]:
    """Share a set out over at least one part, in order, removals first."""
    chunks = [removed[i : i + PART_REMOVED] for i in range(0, len(removed), PART_REMOVED)]
    parts: list[tuple[list[AssignedTask], list[str]]] = [([], chunk) for chunk in chunks] or [([], [])]
    part_bytes = 0
    for task, n_bytes in changed:
        if part_bytes and part_bytes + n_bytes > PART_BYTES:
            parts.append(([], []))
            part_bytes = 0
        parts[-1][0].append(task)
        part_bytes += n_bytes
    return parts


def is_news(old: Task | None, new: Task | None) -> bool:
    """Whether an agent may have to hear of this change of a task: not when only its status moved on."""
    if old is None or new is None:
        return True
    if old.status.state < ASSIGNED <= new.status.state:
        return True
    return old.desired_state is not new.desired_state or old.grants != new.grants or old.node_id != new.node_id


def assigned_task(task: Task, services: Mapping[str, Service], before: AssignedTask | None) -> AssignedTask:
    """A task as its agent is told of it; `before` is how it was told last in the same session."""
    labels = before.service_labels if before is not None else _labels(task, services.get(task.service_id))
    return AssignedTask(
        id=task.id,
        service_id=task.service_id,
        service_name=task.service_name,
        slot=task.slot,
        spec=task.spec,
        desired_state=task.desired_state,
        grants=task.grants,
        state=task.status.state,
        lease_s=FENCED_LEASE_S if task.fence else LEASE_S,
        fence=task.fence,
        service_labels=labels,
    )


def _labels(task: Task, service: Service | None) -> dict[str, str]:
    """The labels of the service in the version that the task was made of, as far as they are still known."""
    if service is None:
        return {}
    if service.spec_version != task.spec_version and service.previous_spec is not None:
        return service.previous_spec.labels
    return service.spec.labels
