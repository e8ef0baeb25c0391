"""What waiting tasks say of themselves, on its way to the store: coalesced, and written only when it changed."""

from __future__ import annotations

from functools import partial

import msgspec
import trio

from beeyard.core.model import Task
from beeyard.core.states import TaskState
from beeyard.manager.store import Store, Transaction


class News:
    """Messages and reasons of tasks that are not assigned yet. `tell` is for anyone, `run` writes."""

    def __init__(self, store: Store, batch_max: int) -> None:
        self._store = store
        self._batch_max = batch_max
        self._waiting: dict[str, tuple[str, str]] = {}  # (message, err) by task
        self._some = trio.Event()

    def tell(self, task: Task, message: str, err: str = "") -> None:
        """Have a task say this; the last word counts.

        Whether it says so already only the transaction knows: `task` may be an old one, and other news under way.
        """
        self._waiting[task.id] = (message, err)
        self._some.set()

    async def run(self) -> None:
        """Write what was told, until cancelled."""
        while True:
            await self._some.wait()
            batch = list(self._waiting.items())[: self._batch_max]
            for task_id, _ in batch:
                del self._waiting[task_id]
            if not self._waiting:
                self._some = trio.Event()
            await self._store.commit_patiently(partial(_write, batch))


def _write(batch: list[tuple[str, tuple[str, str]]], tx: Transaction) -> None:
    for task_id, (message, err) in batch:
        task = tx.get(Task, task_id)
        if task is None or task.status.state >= TaskState.ASSIGNED:
            continue
        if (task.status.message, task.status.err) != (message, err):
            status = msgspec.structs.replace(task.status, message=message, err=err, at_s=tx.now_s)
            tx.update(msgspec.structs.replace(task, status=status))
