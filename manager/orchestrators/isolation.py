"""Gives tasks up whose node has been out of reach for longer than their lease, and with that their addresses.

A shim keeps its task's links up for at most a lease after the last word from the manager, then downs them by itself. So
once the lease and a margin have passed since the last contact with a node, nothing of its tasks can be on the LAN any more.
Contact is counted by this manager alone: what an earlier one heard counts as heard at this one's start.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import structlog
import trio

from beeyard.core.model import Node, Task
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.dispatch.assignments import FENCED_LEASE_S, LEASE_S
from beeyard.manager.store import Store, Transaction, Wake

# Two clocks of crystals differ by some 0.01 %, a bad virtual machine's by 1 %; and half a minute for what lags.
MARGIN_S_MIN = 30.0
MARGIN_RATIO = 0.02

log = structlog.get_logger(__name__)


def release_after_s(task: Task) -> float:
    """Seconds after the last contact with its node at which a task is surely off the LAN."""
    lease_s = FENCED_LEASE_S if task.fence else LEASE_S
    return lease_s + max(MARGIN_S_MIN, MARGIN_RATIO * lease_s)


class IsolationWatch:
    """Orphans tasks by time. `last_contact` gives trio times for node ids."""

    def __init__(self, store: Store, last_contact: Callable[[str], float]) -> None:
        self._store = store
        self._last_contact = last_contact
        self._started_s = trio.current_time()
        self._down: dict[str, None] = {}  # nodes that are down or were when something last changed of them

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with self._store.subscribe("node", "task") as changes:
            self._down = {n.id: None for n in self._store.nodes.values() if n.status.state is NodeState.DOWN}
            task_status.started()
            while True:
                due_s = await self._orphan_lapsed()
                with trio.move_on_at(due_s):
                    await changes.wait()
                self._note(changes.take_nowait())

    def _note(self, wake: Wake) -> None:
        for change in wake.changes:
            if change.kind == "node":
                self._down[change.id] = None

    async def _orphan_lapsed(self) -> float:
        """Orphan what is due now; gives when the next may be."""
        next_s = math.inf
        lapsed: list[str] = []
        for node_id in list(self._down):
            node = self._store.nodes.get(node_id)
            if node is None or node.status.state is not NodeState.DOWN:
                del self._down[node_id]
                continue
            for task in self._store.tasks_of_node(node.id):
                if task.holds_room:
                    due_s = self._due_s(task)
                    if due_s <= trio.current_time():
                        lapsed.append(task.id)
                    next_s = min(next_s, due_s)
        if not lapsed:
            return next_s
        await self._store.commit_patiently(lambda tx: self._orphan(tx, lapsed))
        return -math.inf

    def _due_s(self, task: Task) -> float:
        contact_s = max(self._last_contact(task.node_id), self._started_s)
        return contact_s + release_after_s(task)

    def _orphan(self, tx: Transaction, task_ids: list[str]) -> None:
        for task_id in task_ids:
            task = tx.get(Task, task_id)
            node = tx.get(Node, task.node_id) if task is not None else None
            # The node may have come back while this was queued; then its agent speaks for its tasks again.
            if task is None or not task.holds_room or node is None or node.status.state is not NodeState.DOWN:
                continue
            if self._due_s(task) > trio.current_time():
                continue
            name = node.description.hostname or node.id
            status = msgspec.structs.replace(
                task.status,
                state=TaskState.ORPHANED,
                message="orphaned",
                err=f"node {name} has been out of reach for longer than the task's lease",
                at_s=tx.now_s,
            )
            tx.update(msgspec.structs.replace(task, status=status))
            log.warning("task orphaned", task=task.id, node=node.id)
