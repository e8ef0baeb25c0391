"""The durable store on SQLite: write-ahead log, synchronous=FULL, one writer.

Theory of operation
-------------------
All calls go through one worker at a time, so a batch is one transaction and one fsync. A batch is one row of `log`, and
that alone makes it durable. `object` holds what is alive and follows behind: what the log says of an object that it does not
say yet is *pending*, in memory too, and is written there once 10,000 objects are, the oldest first. A task that comes to run
changes four times in a second or two, and so is written there once. Reading takes the objects and lays the log over them.

`meta` holds the last index, up to where the log is in `object` (`applied`), and how far the log was cut. It keeps what is not
applied, and the last 10,000 writes for watchers that resume.

What is written together changes together: the tasks of a service move on in batches. So objects lie in the order in which
they were created, whatever their ids.

The connection holds SQLite's exclusive lock from opening to closing, so a second process is refused at once and the shared
memory file is not needed. The lock is the kernel's and ends with the process, however it ends.

A commit that fails for lack of room is rolled back and nothing of it is stored; later ones work once there is room. When an
*fsync* fails, nobody can say what is on the disk (the kernel drops the pages it could not write), so the database refuses
everything from then on and the daemon has to start anew from what the disk really holds.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Compacted, Record
from beeyard.runtime.real_files import disk_error, make_directories, sync_directory
from beeyard.runtime.real_thread import in_thread

T = TypeVar("T")

log = structlog.get_logger(__name__)

# "BeeY" as an SQLite application id: tells our files from other programs' databases.
APPLICATION_ID = 0x42656559
FORMAT_VERSION = 3
# Watchers of a few minutes ago can resume at thousands of writes a minute; about 5 MB.
LOG_RECORDS_MAX = 10_000
# Objects that may wait to be written as such: a start after a crash reads as many from the log, some 50 ms.
PENDING_MAX = 10_000
# Twice SQLite's own: a dozen tasks fit on one. Measured with batches of 1,000: 8.0 µs of CPU a write, 12.8 with 4096.
PAGE_BYTES = 8192
# Pages in the write-ahead log before they are copied to the file: 16 MB, once in some 10,000 writes. One transaction may need
# more; the log is cut back to this when it begins anew.
WAL_PAGES = 2000

_META = ("index", "compacted", "applied")
_SCHEMA = """
create table object(position integer primary key, kind text not null, id text not null, idx integer not null,
    data blob not null, unique(kind, id));
create table log(idx integer primary key, records blob not null);
create table meta(name text primary key, value integer not null) without rowid;
insert into meta values('index', 0), ('compacted', 0), ('applied', 0);
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Record]).decode


class _Pending(msgspec.Struct, frozen=True, gc=False):
    """An object of which `object` does not say the newest."""

    since: int  # index of the first write that is missing there
    newest: Record


class SqliteDatabase:
    """`Database` in one file. Made by `open`.

    Args:
        log_records_max: writes that the log keeps at least.
        pending_max: objects that may wait to be written as such.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        *,
        log_records_max: int = LOG_RECORDS_MAX,
        pending_max: int = PENDING_MAX,
    ) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._log_records_max = log_records_max
        self._pending_max = pending_max
        self._worker = trio.CapacityLimiter(1)
        self._failed = ""
        self._index: int = _meta(connection, "index")
        # Invariant: in order of `since`, for an object keeps its place when it is written again.
        self._pending: dict[tuple[str, str], _Pending] | None = None  # None: not read yet

    @classmethod
    async def open(
        cls, path: str, *, log_records_max: int = LOG_RECORDS_MAX, pending_max: int = PENDING_MAX
    ) -> SqliteDatabase:
        """Open or create; see `Host.open_database`."""
        connection = await trio.to_thread.run_sync(_connect, path)
        return cls(path, connection, log_records_max=log_records_max, pending_max=pending_max)

    async def load(self) -> tuple[int, list[Record]]:
        """See `Database.load`."""
        return await self._run("read", self._load)

    async def commit(self, batch: Sequence[Record]) -> None:
        """See `Database.commit`. Indices rise within a batch and from batch to batch."""
        batch = list(batch)
        await self._run("write", lambda connection: self._commit(connection, batch))

    async def changes(self, since: int) -> list[Record]:
        """See `Database.changes`."""
        return await self._run("read", lambda connection: _changes(connection, since))

    async def aclose(self) -> None:
        """Close and give the lock back, with everything written where it belongs. Idempotent: yes."""
        with trio.CancelScope(shield=True):
            async with self._worker:
                connection, self._connection = self._connection, None
                if connection is not None:
                    await trio.to_thread.run_sync(self._close, connection)

    def _close(self, connection: sqlite3.Connection) -> None:
        try:
            if self._pending and not self._failed:
                with connection:
                    connection.execute("begin immediate")
                    _apply(connection, [entry.newest for entry in self._pending.values()])
                    connection.execute("update meta set value=? where name='applied'", (self._index,))
        except sqlite3.Error as error:
            log.info("the log was not settled; the next start reads it", path=self._path, reason=_reason(error))
        finally:
            connection.close()

    async def _run(self, operation: str, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run one job alone, off the trio thread; an error of SQLite becomes a DiskError."""
        async with self._worker:
            if self._connection is None:
                raise DiskError(operation, self._path, "it is closed")
            if self._failed:
                raise DiskError(operation, self._path, self._failed, fatal=True)
            connection = self._connection
            try:
                return await in_thread(lambda: job(connection))
            except msgspec.MsgspecError as error:
                raise DiskError(operation, self._path, f"its log is damaged ({error})") from error
            except sqlite3.Error as error:
                if _is_sync_failure(error):
                    self._failed = "the disk failed to sync; restart the daemon to read what it holds"
                raise DiskError(
                    operation, self._path, self._failed or _reason(error), fatal=bool(self._failed)
                ) from error

    def _load(self, connection: sqlite3.Connection) -> tuple[int, list[Record]]:
        pending = self._read_pending(connection)
        rows = connection.execute("select idx, kind, id, data from object")
        records = [Record(index=row[0], kind=row[1], id=row[2], data=row[3]) for row in rows]
        live = [record for record in records if (record.kind, record.id) not in pending]
        live += [entry.newest for entry in pending.values() if entry.newest.data is not None]
        return self._index, sorted(live, key=lambda record: record.index)

    def _read_pending(self, connection: sqlite3.Connection) -> dict[tuple[str, str], _Pending]:
        if self._pending is None:
            self._pending = {}
            _note(self._pending, _logged(connection, _meta(connection, "applied")))
        return self._pending

    def _commit(self, connection: sqlite3.Connection, batch: list[Record]) -> None:
        index = self._index
        for record in batch:
            assert record.index > index, f"index {record.index} does not rise above {index}"
            index = record.index
        if not batch:
            return
        pending = self._read_pending(connection)
        # Twice as many as come: so it gets shorter again however long it is.
        n_due = min(2 * len(batch), len(pending) - self._pending_max)
        due = [entry.newest for entry in itertools.islice(pending.values(), max(0, n_due))]
        behind = next(itertools.islice(pending.values(), len(due), None), None)
        applied = (batch[0].index if behind is None else behind.since) - 1
        connection.execute("begin immediate")
        try:
            _write(connection, batch, due, applied, index - self._log_records_max)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:  # SQLite has already rolled back after some errors
                connection.execute("rollback")
            raise
        self._index = index
        for record in due:
            del pending[record.kind, record.id]
        _note(pending, batch)


def _connect(path: str) -> sqlite3.Connection:
    """Open or create the file, take the lock, check that it is ours."""
    try:
        make_directories(os.path.dirname(path))
        # Made here rather than by SQLite so that it is never readable by others: it holds the cluster's CA key.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_directory(os.path.dirname(path))
    except OSError as error:
        raise disk_error("open", path, error) from error
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # Before the first read: this mode decides whether a shared memory file is made.
        connection.execute("pragma locking_mode=exclusive")
        _check_kind(connection, path)
        for pragma in (
            f"page_size={PAGE_BYTES}",
            "journal_mode=wal",
            "synchronous=full",
            f"wal_autocheckpoint={WAL_PAGES}",
            f"journal_size_limit={WAL_PAGES * PAGE_BYTES}",
            "trusted_schema=off",
        ):
            connection.execute(f"pragma {pragma}")
        _create_or_lock(connection)
        _check_meta(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise DiskError("open", path, _reason(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_kind(connection: sqlite3.Connection, path: str) -> None:
    tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
    application_id = connection.execute("pragma application_id").fetchone()[0]
    version = connection.execute("pragma user_version").fetchone()[0]
    if tables and application_id != APPLICATION_ID:
        raise DiskError("open", path, "it is a database of another program")
    if tables and version == 2:  # all of its log is in `object`
        with connection:
            connection.execute("insert into meta select 'applied', value from meta where name='index'")
            connection.execute(f"pragma user_version={FORMAT_VERSION}")
    elif tables and version != FORMAT_VERSION:
        raise DiskError("open", path, f"its format is {version}, this program knows {FORMAT_VERSION}")


def _create_or_lock(connection: sqlite3.Connection) -> None:
    """Write once, which takes the exclusive lock, and make the tables when the file is new."""
    connection.execute("begin immediate")
    if connection.execute("select count(*) from sqlite_master").fetchone()[0] == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"pragma application_id={APPLICATION_ID}")
        connection.execute(f"pragma user_version={FORMAT_VERSION}")
    else:
        connection.execute("update meta set value=value where name='index'")
    connection.execute("commit")


def _check_meta(connection: sqlite3.Connection, path: str) -> None:
    """Without one of these numbers nobody can say what of the log is missing in the objects."""
    found = dict(connection.execute("select name, value from meta"))
    for name in _META:
        if not isinstance(found.get(name), int):
            raise DiskError("open", path, f"it is damaged: table meta says {found.get(name)!r} of {name}, not a number")


def _write(connection: sqlite3.Connection, batch: list[Record], due: list[Record], applied: int, cut: int) -> None:
    """Few statements, for each may wait for the interpreter: the trio thread is busy while this one works.

    Args:
        batch: what becomes durable, in the log.
        due: what is written as objects now.
        applied: up to which index all writes are in `object` then.
        cut: watchers may ask for what came after it; what the log holds up to it is dropped once it is in `object`.
    """
    connection.execute("insert into log values(?, ?)", (batch[-1].index, _encode(batch)))
    if due:
        _apply(connection, due)
    if min(cut, applied) > 0:
        connection.execute("delete from log where idx<=?", (min(cut, applied),))
    connection.execute(
        "update meta set value=case name when 'index' then ? when 'applied' then ? else max(value, ?) end",
        (batch[-1].index, applied, cut),
    )


def _apply(connection: sqlite3.Connection, records: list[Record]) -> None:
    """Write the newest of some objects as such."""
    connection.executemany(
        "insert into object(kind, id, idx, data) values(?, ?, ?, ?)"
        " on conflict(kind, id) do update set idx=excluded.idx, data=excluded.data",
        [(r.kind, r.id, r.index, r.data) for r in records if r.data is not None],
    )
    gone = [(r.kind, r.id) for r in records if r.data is None]
    if gone:
        connection.executemany("delete from object where kind=? and id=?", gone)


def _note(pending: dict[tuple[str, str], _Pending], batch: list[Record]) -> None:
    for record in batch:
        key = record.kind, record.id
        before = pending.get(key)
        pending[key] = _Pending(record.index if before is None else before.since, record)


def _meta(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute("select value from meta where name=?", (name,)).fetchone()[0]
    return value


def _logged(connection: sqlite3.Connection, since: int) -> list[Record]:
    """All writes after an index, as far as the log goes back."""
    rows = connection.execute("select records from log where idx>? order by idx", (since,))
    return [record for row in rows for record in _decode(row[0]) if record.index > since]


def _changes(connection: sqlite3.Connection, since: int) -> list[Record]:
    compacted = _meta(connection, "compacted")
    if since < compacted:
        raise Compacted(f"changes up to {compacted} are no longer kept, {since} was asked for")
    return _logged(connection, since)


def _is_sync_failure(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")


def _reason(error: sqlite3.Error) -> str:
    """A person's words for what SQLite says."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process has it open"
    if name == "SQLITE_FULL":
        return "the disk is full"
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return f"it is not a database or it is damaged ({error})"
    return str(error)


__all__ = ["LOG_RECORDS_MAX", "SqliteDatabase"]
