"""The store: reads from memory, writes through one committer that is durable before it is visible.

Theory of operation
-------------------
There are two sets of tables. `_durable` is what everybody reads. `_working` is ahead of it by the group being committed:
builders run on it one after another, in commit order, so names and versions are validated against all that comes before.
A builder that raises has its own writes undone and hurts nobody else. Then the group goes to the database in one batch
(one fsync); when that returns, the same changes are applied to `_durable`, subscribers are woken and callers answered, with
no checkpoint in between. When the database refuses, the whole group is undone, and each caller from the first write on gets
the `DiskError`: also one whose builder had raised, because what it objected to may be a write that never came to be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec
import outcome
import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.core.model import StoredObject
from beeyard.manager.store.change import Change, CommitGroup, Wakeups, Watch
from beeyard.manager.store.transaction import Transaction, undo
from beeyard.manager.store.view import KIND_NAMES, Tables, TablesAhead, View
from beeyard.runtime.host import Compacted, Database, Host, Record

R = TypeVar("R")

# Builders in one group. A group holds up the trio thread while it is built, about 5 µs a write: 256 callers stay under
# a few ms, and an fsync (1-10 ms) is well spread over them.
GROUP_CALLERS_MAX = 256
# Changes kept in memory for watchers that are a little behind; those further back read the database.
RECENT_CHANGES_MAX = 4096
# A full disk does not get better faster, and every try writes a line of log.
DISK_RETRY_S = 1.0
# A database that does not close within this is left to the operating system.
CLOSE_TIMEOUT_S = 5.0

log = structlog.get_logger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_decode = cast("Callable[[bytes], StoredObject]", msgspec.msgpack.Decoder(StoredObject).decode)


class _Job(Generic[R]):
    """One caller of `commit` and, in the end, its result."""

    def __init__(self, build: Callable[[Transaction], R]) -> None:
        self.build = build
        self.done = trio.Event()
        self.result: outcome.Outcome[R] | None = None


class Store(View):
    """All state of the cluster. Make one with `open`, and start `run` before the first commit."""

    def __init__(self, host: Host, database: Database, path: str) -> None:
        super().__init__(Tables())
        self.index = 0  # of the last durable write
        self._host = host
        self._database = database
        self._path = path
        self._working = TablesAhead(self._tables)
        self._queue: deque[_Job[object]] = deque()
        self._queued = trio.Event()
        self._gone = False
        self._recent: deque[Change] = deque(maxlen=RECENT_CHANGES_MAX)
        self._subscribers: list[Wakeups] = []
        self._published = trio.Event()

    @classmethod
    async def open(cls, host: Host, path: str) -> Store:
        """Read everything into memory.

        Raises:
            DiskError: it cannot be read, or something in it is damaged.
        """
        database = await host.open_database(path)
        store = cls(host, database, path)
        store.index, records = await database.load()
        try:
            for record in records:
                if (obj := _object_in(record, path)) is not None:
                    store._tables.put(obj)
                    store._working.put(obj)
        except DiskError:
            await database.aclose()
            raise
        log.info("store opened", path=path, index=store.index, objects=len(records))
        return store

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit what is queued, until cancelled; closes the database at the end.

        Raises:
            DiskError: a fatal one.
        """
        task_status.started()
        try:
            while True:
                await self._queued.wait()
                await self._host.running()
                await self._commit_group()
        finally:
            self._gone = True
            for job in self._queue:
                job.done.set()
            with trio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await self._database.aclose()

    async def commit(self, build: Callable[[Transaction], R]) -> R:
        """Run `build` in commit order and give its result once its writes survive a power cut.

        Whatever `build` raises is raised here, with nothing of it stored, and hurts no other caller. It may run with
        others in one group, so it must read through its transaction and have no effects elsewhere.

        Cancellation: before it is queued only; from then on it waits until the result is known or the committer is gone.

        Raises:
            DiskError: the database refused; nothing is stored.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._gone:
            job: _Job[R] = _Job(build)
            self._queue.append(cast("_Job[object]", job))
            self._queued.set()
            # Safety: the committer always ends the wait, also when it is cancelled itself.
            with trio.CancelScope(shield=True):
                await job.done.wait()
            if job.result is not None:
                return job.result.unwrap()
        # The committer is gone, and with it the daemon: this caller is being cancelled too.
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    async def commit_patiently(self, build: Callable[[Transaction], R]) -> R:
        """As `commit`, but repeated for as long as the database refuses: for work that nobody else would do again."""
        while True:
            try:
                return await self.commit(build)
            except DiskError:
                await trio.sleep(DISK_RETRY_S)

    def subscribe(self, *kinds: str) -> Wakeups:
        """Wake-ups after durable writes of these kinds (all when none is named); `async with` ends the subscription.

        It counts from this call on: a snapshot read after it has no gap to the first wake.
        """
        names = frozenset(kinds or KIND_NAMES.values())
        unknown = sorted(names - frozenset(KIND_NAMES.values()))
        assert not unknown, f"no such kinds: {unknown}"
        wakeups = Wakeups(names, self._subscribers.remove)
        self._subscribers.append(wakeups)
        return wakeups

    def watch(self, since: int | None = None) -> Watch:
        """Every durable write after index `since` (None: after now), in order."""
        return Watch(self, self.index if since is None else since)

    async def wait_past(self, index: int) -> None:
        """Return once `self.index` is above `index`."""
        while self.index <= index:
            await self._published.wait()

    async def history(self, since: int) -> list[Change]:
        """Writes after `since` in order, as far as they are durable now.

        Raises:
            Compacted: some of them are no longer kept.
            DiskError: they cannot be read.
        """
        if self._recent and self._recent[0].index <= since + 1:
            # Invariant: indices in `_recent` have no holes.
            skip = since + 1 - self._recent[0].index
            return [self._recent[i] for i in range(skip, len(self._recent))]
        records = await self._database.changes(since)
        if since < self.index and (not records or records[0].index != since + 1):
            raise Compacted(f"writes after {since} are no longer kept")
        # The database may already hold a group that is not published yet.
        return [
            Change(record.kind, record.id, None, _object_in(record, self._path), record.index)
            for record in records
            if record.index <= self.index
        ]

    async def _commit_group(self) -> None:
        """Build, store, publish and answer one group."""
        jobs = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_CALLERS_MAX))]
        if not self._queue:
            self._queued = trio.Event()
        try:
            results, changes, n_before = self._build(jobs)
            if changes:
                try:
                    await self._database.commit([_record_of(change) for change in changes])
                except DiskError as error:
                    if error.fatal:
                        raise  # ends the daemon: memory and disk may differ, and only a restart tells
                    undo(self._working, changes)
                    log.error("commit failed", reason=str(error), writes=len(changes))
                    results[n_before:] = [outcome.Error(error) for _ in results[n_before:]]
                else:
                    self._publish(changes)
            for job, result in zip(jobs, results, strict=True):
                job.result = result
        finally:
            # Also when cancelled inside the database: nobody may wait for ever.
            for job in jobs:
                job.done.set()

    def _build(self, jobs: list[_Job[object]]) -> tuple[list[outcome.Outcome[object]], list[Change], int]:
        """Run builders in order; gives their results, their changes, and how many ran before the first change."""
        n_before = 0
        results: list[outcome.Outcome[object]] = []
        changes: list[Change] = []
        self._working.caught_up()
        now_s = self._host.wall_now_s()
        for job in jobs:
            transaction = Transaction(self._working, self.index + len(changes), now_s)
            result = outcome.capture(job.build, transaction)
            if isinstance(result, outcome.Error):
                transaction.undo()
            changes += transaction.changes
            results.append(result)
            if not changes:
                n_before = len(results)
        return results, changes, n_before

    def _publish(self, changes: list[Change]) -> None:
        self._tables.apply(changes)
        self.index = changes[-1].index
        self._recent.extend(changes)
        group = CommitGroup.of(changes)
        for subscriber in self._subscribers:
            subscriber.offer(group)
        self._published.set()
        self._published = trio.Event()


def _record_of(change: Change) -> Record:
    return Record(
        index=change.index,
        kind=change.kind,
        id=change.id,
        data=None if change.new is None else _encode(change.new),
    )


def _object_in(record: Record, path: str) -> StoredObject | None:
    """What a record holds, None when it is of a deletion."""
    if record.data is None:
        return None
    reason = "it is another object than it is filed as"
    try:
        obj = _decode(record.data)
        if (KIND_NAMES[type(obj)], obj.id) == (record.kind, record.id):
            return obj
    except (msgspec.MsgspecError, TypeError) as error:
        reason = str(error)
    reason = f"the {record.kind} {record.id} in it is damaged ({reason}); restore the file from a backup"
    raise DiskError("read", path, reason)
