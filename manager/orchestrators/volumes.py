"""Moves cluster volumes on their way to nodes and back, step by step: see `core.publishing`."""

from __future__ import annotations

from functools import partial

import structlog
import trio

from beeyard.core.model import Task
from beeyard.core.publishing import advance
from beeyard.core.volume import Volume
from beeyard.manager.store import Change, Store, Transaction, View

log = structlog.get_logger(__name__)


class VolumeOrchestrator:
    """Advances the volumes that are on some node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty: dict[str, None] = {}  # ids of volumes to look at

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with self._store.subscribe("task", "volume") as changes:
            self._dirty.update(dict.fromkeys(self._store.volumes))
            task_status.started()
            while True:
                dirty, self._dirty = self._dirty, {}
                moving = [volume_id for volume_id in dirty if _advanced(self._store, volume_id) is not None]
                if moving:
                    await self._store.commit_patiently(partial(_advance_all, moving))
                await changes.wait()
                for change in changes.take_nowait().changes:
                    self._note(change)

    def _note(self, change: Change) -> None:
        """Which volumes this may move: one that was changed, or whose user has come or gone."""
        if change.kind == "volume":
            self._dirty[change.id] = None
        for task in (change.old, change.new):
            if isinstance(task, Task) and task.grants:
                self._dirty.update(dict.fromkeys(use.volume_id for use in task.volumes))


def _advanced(view: View, volume_id: str) -> Volume | None:
    """A volume one step on, None when it is gone or stays as it is."""
    volume = view.volumes.get(volume_id)
    if volume is None or not volume.published:
        return None

    def is_used(node_id: str) -> bool:
        return any(
            task.holds_room and any(use.volume_id == volume_id for use in task.volumes)
            for task in view.tasks_of_node(node_id)
        )

    after = advance(volume, is_used)
    return None if after is volume else after


def _advance_all(volume_ids: list[str], tx: Transaction) -> None:
    for volume_id in volume_ids:
        volume = _advanced(tx, volume_id)
        if volume is not None:
            tx.update(volume)
            log.debug("volume moves", volume=volume.name, places=len(volume.published))


__all__ = ["VolumeOrchestrator"]
