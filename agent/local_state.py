"""What the agent keeps on disk about each task, so that a restart neither forgets a task nor runs it twice.

One record a task in the database `STATE_DIR/tasks.db`. A record is written before what it announces happens: the assignment
before anything of the task exists, STARTING before its command may run, an end before it is reported. RUNNING is not written:
after a restart the executor knows better than any file.

What many tasks write at one time shares one transaction, and its one sync of the disk: whoever comes first writes for all
that wait by then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import structlog
import trio

from beeyard.agent.turn import Turn
from beeyard.core.errors import DiskError
from beeyard.core.model import TaskStatus
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import Database, Host, Record

FILE = "tasks.db"
KIND = "task"

log = structlog.get_logger(__name__)


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task as it was last written."""

    assigned: AssignedTask
    status: TaskStatus


@dataclasses.dataclass(eq=False)
class _Write:
    """What one caller waits for."""

    task_id: str
    data: bytes | None  # None: forget it
    error: DiskError | None = None
    done: bool = False


class LocalState:
    """The task records of one agent. Errors of the disk are `DiskError`s.

    The database is made with the first record: an agent that no cluster lets in leaves nothing behind.
    """

    def __init__(self, host: Host, state_dir: str) -> None:
        self._host = host
        self._state_dir = state_dir
        self._path = f"{state_dir}/{FILE}"
        self._database: Database | None = None  # None: not opened yet, or given up after the disk failed
        self._index = 0
        self._stored: set[str] = set()  # task ids; forgetting one that is not there costs nothing
        self._queue: list[_Write] = []
        self._turn = Turn()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(TaskRecord)

    async def load(self) -> dict[str, TaskRecord]:
        """Every readable record by task id. A damaged one is removed: its task is then treated as unknown. Call first."""
        records: dict[str, TaskRecord] = {}
        if self._database is None and FILE not in await self._host.files.list(self._state_dir):
            return records
        for record in await self._read(await self._opened()):
            assert record.data is not None
            try:
                records[record.id] = self._decoder.decode(record.data)
            except msgspec.MsgspecError as error:
                log.warning("a task record is damaged and removed", path=self._path, task=record.id, reason=str(error))
                await self.remove(record.id)
        return records

    async def save(self, record: TaskRecord) -> None:
        """Write durably. Cancellation: it is written or it is not.

        Raises:
            DiskError: the older record, if any, is still there.
        """
        await self._write(_Write(record.assigned.id, self._encoder.encode(record)))

    async def remove(self, task_id: str) -> None:
        """Forget a task. Idempotent: yes."""
        await self._write(_Write(task_id, None))

    async def aclose(self) -> None:
        """Close the database. Idempotent: yes."""
        database, self._database = self._database, None
        if database is not None:
            await database.aclose()

    async def _opened(self) -> Database:
        if self._database is None:
            database = await self._host.open_database(self._path)
            await self._read(database)
            self._database = database
        return self._database

    async def _read(self, database: Database) -> list[Record]:
        self._index, stored = await database.load()
        self._stored = {record.id for record in stored}
        return stored

    async def _write(self, write: _Write) -> None:
        self._queue.append(write)
        try:
            async with self._turn:
                if not write.done:
                    await self._write_all()
        finally:
            if write in self._queue:
                self._queue.remove(write)
        if write.error is not None:
            raise write.error

    async def _write_all(self) -> None:
        """Write what waits, in one transaction."""
        writes, self._queue = self._queue, []
        error: DiskError | None = None
        # Safety: bounded by the disk; a caller that is cancelled must not leave the others without an answer.
        with trio.CancelScope(shield=True):
            try:
                await self._commit(writes)
            except DiskError as failure:
                error = failure
                if failure.fatal:
                    # What the disk holds may not be what this process believes: it is opened and read anew.
                    await self.aclose()
            except BaseException:  # a defect of ours: none was written, so that each of the others finds out for itself
                self._queue = [*writes, *self._queue]
                raise
        for write in writes:
            write.done, write.error = True, error

    async def _commit(self, writes: Sequence[_Write]) -> None:
        if self._database is None and all(write.data is None for write in writes) and not self._stored:
            return
        database = await self._opened()
        stored = self._stored.copy()
        batch: list[Record] = []
        for write in writes:
            if write.data is not None:
                stored.add(write.task_id)
            elif write.task_id in stored:
                stored.remove(write.task_id)
            else:
                continue
            batch.append(Record(index=self._index + len(batch) + 1, kind=KIND, id=write.task_id, data=write.data))
        if batch:
            await database.commit(batch)
            self._index += len(batch)
            self._stored = stored


__all__ = ["LocalState", "TaskRecord"]
