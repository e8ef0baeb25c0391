"""Hooks that begin before a node is known, by task."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from beeyard.core.grant import AnyGrant
from beeyard.core.model import Task
from beeyard.core.states import TaskState
from beeyard.manager.hooks.hook import Hook, Stage
from beeyard.manager.hooks.run import HookRun


def begins_new(hooks: Sequence[Hook], task: Task) -> bool:
    """Whether some hook is to begin before a node is sought for the task."""
    return any(not hook.window.has_node and hook.applies(task) for hook in hooks)


class EarlyHooks:
    """Starts them once for each task, and keeps them while plans come and go: their grants are good for any node."""

    def __init__(self, hooks: Sequence[Hook], nursery: trio.Nursery) -> None:
        self._hooks = [hook for hook in hooks if not hook.window.has_node]
        self._nursery = nursery
        self._runs: dict[str, HookRun] = {}

    def of(self, task: Task) -> HookRun | None:
        """The task's hooks, started when they were not yet; None when it needs none."""
        run = self._runs.get(task.id)
        if run is None and self._hooks:
            recorded = [grant.hook for grant in task.grants]
            hooks = [hook for hook in self._hooks if hook.name not in recorded and hook.applies(task)]
            if hooks:
                run = self._runs[task.id] = HookRun(hooks, task, self._nursery)
                run.enter(Stage.NEW)
                if task.status.state == TaskState.PENDING:
                    run.enter(Stage.PENDING)
        return run

    def holds_in_new(self, task_id: str) -> bool:
        """Whether some hook keeps the task from becoming PENDING."""
        run = self._runs.get(task_id)
        return run is not None and bool(run.waits_for(Stage.PENDING))

    def grants(self, task_id: str) -> tuple[AnyGrant, ...]:
        """What was reserved for the task and is not stored with it yet."""
        run = self._runs.get(task_id)
        return tuple(run.grants) if run is not None else ()

    def stored_pending(self, task_id: str, grants: Sequence[AnyGrant]) -> None:
        """The task is PENDING, with these grants: start the hooks that begin there. Some may have finished meanwhile."""
        run = self._runs.get(task_id)
        if run is not None:
            run.stored(grants)
            run.enter(Stage.PENDING)

    def stored_assigned(self, task_id: str) -> None:
        """The task is ASSIGNED, with all of its grants: the plan waited for each of its hooks before it was stored."""
        run = self._runs.pop(task_id, None)
        if run is not None:
            run.hand_over()

    def end(self, task_id: str) -> None:
        """Stop a task's hooks and release what they hold. Idempotent."""
        run = self._runs.pop(task_id, None)
        if run is not None:
            run.abandon()
