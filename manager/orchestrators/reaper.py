"""Deletes tasks that nobody needs to see any more.

A task that was told to go (REMOVE) is deleted once its end was observed, or at once if no agent ever saw it. Of the others
each slot keeps a history. Whatever the reason, an ended task stays while its addresses rest: it is the only record of
that, and a restarted manager must not hand them out before their time. After a restart all rest anew, since how long ago a
task ended only a wall clock could tell, which may have jumped; so their records stay that long too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.model import Task
from beeyard.core.states import RUNNING, TaskState
from beeyard.manager.orchestrators.task_clock import TaskClock
from beeyard.manager.store import Store, Transaction, Wake
from beeyard.runtime.host import Host

# Source: SwarmKit `reaperBatchingInterval`.
BATCHING_S = 0.25

SlotKey = tuple[str, int]  # (service id, slot)


class Reaper:
    """Keeps the store from growing."""

    def __init__(self, host: Host, store: Store, batch_max: int, cool_down_s: float = COOL_DOWN_S) -> None:
        self._store = store
        self._batch_max = batch_max
        # A second more than the rest itself: the record may outlive it, not the other way round.
        self._keep_s = cool_down_s + 1.0
        self._clock = TaskClock(host)
        self._began_s = -math.inf
        self._dirty: dict[SlotKey, None] = {}
        self._due_s: dict[SlotKey, float] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with self._store.subscribe("task") as changes:
            self._began_s = trio.current_time()
            for task in self._store.tasks.values():
                self._clock.of(task)
                self._dirty[_slot(task)] = None
            task_status.started()
            while True:
                await self._sweep()
                with trio.move_on_at(min(self._due_s.values(), default=math.inf)):
                    await changes.wait()
                await trio.sleep(BATCHING_S)
                self._note(changes.take_nowait())

    def _note(self, wake: Wake) -> None:
        for change in wake.changes:
            task = change.new or change.old
            assert isinstance(task, Task)
            is_live = task.desired_state <= RUNNING and task.status.state <= RUNNING
            if change.old is not None and change.new is not None and is_live:
                continue  # It gets on with its life.
            if change.new is None:
                self._clock.forget(task.id)
            else:
                self._clock.of(task)
            self._dirty[_slot(task)] = None
        now_s = trio.current_time()
        for slot in [slot for slot, due_s in self._due_s.items() if due_s <= now_s]:
            self._dirty[slot] = None

    async def _sweep(self) -> None:
        """Delete what the dirty slots do not need."""
        slots, self._dirty = self._dirty, {}
        doomed: list[str] = []
        for slot in slots:
            self._due_s.pop(slot, None)
            tasks = self._store.tasks_of_slot(*slot)
            if len(tasks) == 1 and not is_over(tasks[0]):
                continue  # A first task, as most are: nothing is superfluous.
            for task in self._superfluous(tasks):
                rested_s = self._rested_s(task)
                if rested_s <= trio.current_time():
                    doomed.append(task.id)
                else:
                    self._due_s[slot] = min(rested_s, self._due_s.get(slot, math.inf))
        for begin in range(0, len(doomed), self._batch_max):
            batch = doomed[begin : begin + self._batch_max]
            await self._store.commit_patiently(lambda tx, batch=batch: _delete(tx, batch))  # type: ignore[misc]

    def _superfluous(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks of one slot that may go."""
        ordered = sorted(tasks, key=lambda task: (task.created_at_s, task.id))
        gone = [task for task in ordered if task.desired_state == TaskState.REMOVE and is_over(task)]
        kept = [task for task in ordered if task.desired_state != TaskState.REMOVE]
        limit = self._history_limit(kept)
        if limit < 0:
            return gone
        # Those whose address a stranger has are no attempts: they may not push out the ones that are.
        for some in ([t for t in kept if not t.status.conflicts], [t for t in kept if t.status.conflicts]):
            history = [task for task in some if is_over(task)]
            gone += history[: max(0, len(some) - limit)]
        return gone

    def _history_limit(self, kept: Sequence[Task]) -> int:
        """Tasks that a slot keeps; negative: all.

        At least two: the newest tells whether the slot is done for good, the one before whether a delay applies to it.
        """
        limit = self._store.cluster.task_history_limit if self._store.cluster is not None else 5
        attempts = kept[-1].spec.restart.max_attempts if kept else 0
        return limit if limit < 0 else max(attempts + 1 if attempts else limit, 2)

    def _rested_s(self, task: Task) -> float:
        """When the addresses of an ended task have rested."""
        if not task.grants:
            return -math.inf
        ended_s = self._clock.of(task).ended_s
        return -math.inf if ended_s is None else max(ended_s, self._began_s) + self._keep_s


def is_over(task: Task) -> bool:
    """Whether a task has ended, or will never begin."""
    if task.status.state < TaskState.ASSIGNED:
        return task.desired_state > TaskState.RUNNING
    return task.status.state.is_terminal


def _slot(task: Task) -> SlotKey:
    return task.service_id, task.slot


def _delete(tx: Transaction, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        task = tx.get(Task, task_id)
        if task is not None and is_over(task):
            tx.delete(Task, task_id)
