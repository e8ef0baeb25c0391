"""What one node must run, as sets of changes against what its agent was told before.

An `AssignmentBook` belongs to one session. Store events only mark tasks as touched; what is sent is read from the store
when the writer is ready to send. So a set holds the net effect of everything since the last one, however slow the agent
reads, and the memory of a book is bounded by the tasks of its node.

A task is sent once it is ASSIGNED or beyond, and again when something other than its status changed. It is removed when
it is gone from the store. The first set of a session, and the answer to a `Resync`, is complete.
"""

from __future__ import annotations

from collections.abc import Mapping

from beeyard.core.model import Service, Task
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask, Assignments
from beeyard.manager.store import View

# Source: SwarmKit `defaultNodeDownPeriod`: tasks of a node that is down for so long are orphaned.
LEASE_S = 86400.0
# Twelve heartbeats: a task that must not run where nobody can see it still survives a restart of the manager.
FENCED_LEASE_S = 60.0


class AssignmentBook:
    """What the agent of one node has been told in this session, and what it has not yet."""

    def __init__(self, store: View, node_id: str) -> None:
        self._store = store
        self._node_id = node_id
        self._number = 0
        self._sent: dict[str, AssignedTask] = {}
        self._fenced: dict[str, None] = {}  # those of `_sent` with the short lease
        self._touched: dict[str, None] = {}  # a dict for its order
        self._complete_due = True

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
        """The set to send now, or None when nothing of interest changed. It counts as sent."""
        touched, self._touched = self._touched, {}
        if self._complete_due:
            return self._take_complete()
        changed: list[AssignedTask] = []
        removed: list[str] = []
        for task_id in touched:
            task = self._store.tasks.get(task_id)
            if task is None or task.node_id != self._node_id:
                self._fenced.pop(task_id, None)
                if self._sent.pop(task_id, None) is not None:
                    removed.append(task_id)
            elif (assigned := self._news(task)) is not None:
                changed.append(assigned)
        if not changed and not removed:
            return None
        self._number += 1
        return Assignments(
            complete=False,
            applies_to=self._number - 1,
            results_in=self._number,
            tasks=tuple(changed),
            removed=tuple(removed),
        )

    def _take_complete(self) -> Assignments:
        before, self._sent, self._fenced = self._sent, {}, {}
        for task in self._store.tasks_of_node(self._node_id):
            if task.status.state >= TaskState.ASSIGNED:
                self._keep(assigned_task(task, self._store.services, before.get(task.id)))
        self._complete_due = False
        self._number += 1
        return Assignments(complete=True, applies_to=0, results_in=self._number, tasks=tuple(self._sent.values()))

    def _news(self, task: Task) -> AssignedTask | None:
        """The task as it must be sent now, None when the agent knows all but its status."""
        if task.status.state < TaskState.ASSIGNED:
            return None
        before = self._sent.get(task.id)
        if before is not None and before.desired_state is task.desired_state and before.grants == task.grants:
            return None  # Nothing else of a task ever changes.
        return self._keep(assigned_task(task, self._store.services, before))

    def _keep(self, assigned: AssignedTask) -> AssignedTask:
        self._sent[assigned.id] = assigned
        if assigned.fence:
            self._fenced[assigned.id] = None
        return assigned


def is_news(old: Task | None, new: Task | None) -> bool:
    """Whether an agent may have to hear of this change of a task: not when only its status moved on."""
    if old is None or new is None:
        return True
    if old.status.state < TaskState.ASSIGNED <= new.status.state:
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
