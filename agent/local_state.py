"""What the agent keeps on disk about each task, so that a restart neither forgets a task nor runs it twice.

One file per task under `STATE_DIR/tasks/`, replaced as a whole. A record is written before what it announces happens: the
assignment before anything of the task exists, STARTING before its command may run, an end before it is reported. RUNNING
is not written: after a restart the executor knows better than any file.
"""

from __future__ import annotations

import msgspec
import structlog

from beeyard.core.model import TaskStatus
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import Files

log = structlog.get_logger(__name__)


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task as it was last written."""

    assigned: AssignedTask
    status: TaskStatus


class LocalState:
    """The task records of one agent. Errors of the disk are `DiskError`s."""

    def __init__(self, files: Files, state_dir: str) -> None:
        self._files = files
        self._directory = f"{state_dir}/tasks"
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(TaskRecord)

    async def load(self) -> dict[str, TaskRecord]:
        """Every readable record by task id. A damaged one is removed: its task is then treated as unknown."""
        records: dict[str, TaskRecord] = {}
        for name in await self._files.list(self._directory):
            path = f"{self._directory}/{name}"
            data = await self._files.read(path)
            if data is None:
                continue
            try:
                record = self._decoder.decode(data)
            except msgspec.MsgspecError as error:
                log.warning("a task record is damaged and removed", path=path, reason=str(error))
                await self._files.remove(path)
                continue
            records[record.assigned.id] = record
        return records

    async def save(self, record: TaskRecord) -> None:
        """Write durably.

        Raises:
            DiskError: the older record, if any, is still there.
        """
        await self._files.replace(self._path(record.assigned.id), self._encoder.encode(record))

    async def remove(self, task_id: str) -> None:
        """Forget a task. Idempotent: yes."""
        await self._files.remove(self._path(task_id))

    def _path(self, task_id: str) -> str:
        # Ids come from an authenticated manager, but a path made of one must not leave the directory whatever it says.
        assert task_id.replace("-", "").replace("_", "").isalnum(), task_id
        return f"{self._directory}/{task_id}"


__all__ = ["LocalState", "TaskRecord"]
