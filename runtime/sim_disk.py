"""A simulated disk, and `Files` and `Database` on it.

Theory of operation
-------------------
A file has bytes that are *durable* and bytes that are only *written*. When the daemon crashes, what it wrote stays: it is in
the machine's page cache. At a power cut each file's unsynced tail is kept, lost or torn at a random byte, and a replacement
that was under way has happened or not. So code that does not wait for its sync loses data here as on a real machine.

The database is a log of batches, each with its length and checksum, appended and synced. Opening reads the log from its
start and drops a torn tail. An append that fails is taken back, so nothing of that batch is stored; after a sync that
failed nobody knows, and the database refuses everything until it is opened again. Both are what the real one does.

Faults: `full` refuses all writes; `fail_in` fails the Nth write or sync from now; `latency_s` is what each of them takes.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

import msgspec
import trio

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Compacted, Record
from beeyard.runtime.sim_life import Life

LOG_RECORDS_MAX = 10_000
# An NVMe disk's sync; `slow disk` faults raise it.
LATENCY_S = 0.0005

_batch_decoder = msgspec.msgpack.Decoder(list[Record])
_batch_encoder = msgspec.msgpack.Encoder()


class SimDisk:
    """The disk of one machine; survives every life of its daemon."""

    def __init__(self, rng: random.Random) -> None:
        self.full = False
        self.latency_s = LATENCY_S
        self.n_calls = 0  # writes and syncs so far
        self.opened: dict[str, Life] = {}  # databases, by who has them open
        # Called with each batch of a database once it is durable, and with the whole log when it is opened again: what
        # checks everything ever stored hangs on here.
        self.on_commit: Callable[[str, list[Record]], None] = _nobody_watches
        self._rng = rng
        self._fail_at: dict[int, str] = {}
        self._written: dict[str, bytearray] = {}  # as a reader sees it
        self._n_durable: dict[str, int] = {}  # how much of it a power cut leaves; absent: the whole file vanishes
        self._replacing: list[tuple[str, bytes | None]] = []  # replacements (None: removals) that are under way

    def fail_in(self, n: int, reason: str = "input/output error") -> None:
        """Fail the Nth write or sync from now, once."""
        assert n >= 1
        self._fail_at[self.n_calls + n] = reason

    def power_cut(self) -> None:
        """Lose or tear what was not synced."""
        self.opened.clear()
        self.settle()
        for path in sorted(self._written):
            durable = self._n_durable.get(path)
            if durable is None:
                del self._written[path]
            else:
                # The whole tail had just reached the disk, or nothing of it, or a part.
                written = len(self._written[path])
                kept = self._rng.choice((durable, written, self._rng.randint(durable, written)))
                del self._written[path][kept:]
                self._n_durable[path] = kept

    def settle(self) -> None:
        """The process that replaced files is gone: each replacement has happened or not."""
        for path, data in self._replacing:
            if self._rng.random() < 0.5:
                self._put(path, data)
        self._replacing.clear()

    # What follows takes time and may fail. All are shielded: a real write that has begun is finished.

    async def append(self, life: Life, path: str, data: bytes) -> None:
        """Write at the end; not durable yet."""
        await self._work(life, "write", path)
        self._written.setdefault(path, bytearray()).extend(data)
        self._n_durable.setdefault(path, 0)

    async def sync(self, life: Life, path: str) -> None:
        """Make what was written durable."""
        await self._work(life, "sync", path)
        self._n_durable[path] = len(self._written[path])

    def truncate(self, path: str, size: int) -> None:
        """Take back what was appended last."""
        del self._written[path][size:]
        self._n_durable[path] = min(size, self._n_durable[path])

    async def replace(self, life: Life, path: str, data: bytes | None) -> None:
        """Replace a file (or remove it) atomically and durably."""
        self._replacing.append((path, data))
        try:
            await self._work(life, "write" if data is not None else "remove", path)
            self._put(path, data)
        finally:
            if (path, data) in self._replacing:  # not so after a crash, which has decided already
                self._replacing.remove((path, data))

    def read(self, path: str) -> bytes | None:
        """The content as a reader sees it."""
        content = self._written.get(path)
        return None if content is None else bytes(content)

    def paths(self) -> list[str]:
        """Every file."""
        return sorted(self._written)

    def _put(self, path: str, data: bytes | None) -> None:
        self._written.pop(path, None)
        self._n_durable.pop(path, None)
        if data is not None:
            self._written[path] = bytearray(data)
            self._n_durable[path] = len(data)

    async def _work(self, life: Life, operation: str, path: str) -> None:
        """Take the time of a write or sync, then fail if that is its fate or the daemon is gone meanwhile."""
        self.n_calls += 1
        reason = self._fail_at.pop(self.n_calls, "")
        if self.full and operation == "write":
            reason = reason or "the disk is full"
        with trio.CancelScope(shield=True):
            await trio.sleep(self.latency_s)
            await life.gate()  # a paused CPU does not see that it is done
        if not life.alive:
            reason = "this machine has crashed"
        if reason:
            raise DiskError(operation, path, reason)


class SimFiles:
    """`Files` of one life."""

    def __init__(self, disk: SimDisk, life: Life) -> None:
        self._disk = disk
        self._life = life

    async def read(self, path: str) -> bytes | None:
        """See `Files.read`."""
        await self._enter("read", path)
        data = self._disk.read(path)
        if data is None and any(existing.startswith(f"{path}/") for existing in self._disk.paths()):
            raise DiskError("read", path, "Is a directory")
        return data

    async def replace(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """See `Files.replace`. The mode is not modelled: nobody else is on this machine."""
        await self._enter("write", path)
        self._check_parents(path)
        await self._disk.replace(self._life, path, data)

    async def append(self, path: str, data: bytes) -> None:
        """See `Files.append`."""
        await self._enter("write", path)
        self._check_parents(path)
        await self._disk.append(self._life, path, data)

    async def remove(self, path: str) -> None:
        """See `Files.remove`."""
        await self._enter("remove", path)
        if self._disk.read(path) is not None:
            await self._disk.replace(self._life, path, None)

    async def list(self, directory: str) -> list[str]:
        """See `Files.list`."""
        await self._enter("list", directory)
        prefix = directory.rstrip("/") + "/"
        names = [path.removeprefix(prefix) for path in self._disk.paths() if path.startswith(prefix)]
        return [name for name in names if "/" not in name]

    def _check_parents(self, path: str) -> None:
        parents = {path[:at] for at in range(1, len(path)) if path[at] == "/"}
        if any(existing in parents for existing in self._disk.paths()):
            raise DiskError("write", path, "not a directory")

    async def _enter(self, operation: str, path: str) -> None:
        assert path.startswith("/"), path
        if not await self._life.gate():
            raise DiskError(operation, path, "this machine has crashed")


class SimDatabase:
    """`Database` of one life. Made by `open`."""

    def __init__(self, disk: SimDisk, life: Life, path: str) -> None:
        self._disk = disk
        self._life = life
        self._path = path
        self._failed = ""
        self._turn = trio.Lock()
        self._index = 0
        self._alive: dict[tuple[str, str], Record] = {}
        self._log: list[Record] = []
        self._compacted = 0

    @classmethod
    async def open(cls, disk: SimDisk, life: Life, path: str) -> SimDatabase:
        """Open or create; see `Host.open_database`."""
        alive = await life.gate()
        owner = disk.opened.get(path)
        if not alive:
            raise DiskError("open", path, "this machine has crashed")
        if owner is not None and owner.alive:
            raise DiskError("open", path, "another process has it open")
        database = cls(disk, life, path)
        disk.opened[path] = life
        try:
            await database._recover()
        except BaseException:
            disk.opened.pop(path, None)
            raise
        return database

    async def load(self) -> tuple[int, list[Record]]:
        """See `Database.load`."""
        await self._enter("read")
        return self._index, sorted(self._alive.values(), key=lambda record: record.index)

    async def commit(self, batch: Sequence[Record]) -> None:
        """See `Database.commit`."""
        batch = list(batch)
        await self._enter("write")
        async with self._turn:
            self._check("write")
            index = self._index
            for record in batch:
                assert record.index > index, f"index {record.index} does not rise above {index}"
                index = record.index
            if not batch:
                return
            await self._store(_encoded(batch))
            self._apply(batch)
            self._disk.on_commit(self._path, batch)

    async def changes(self, since: int) -> list[Record]:
        """See `Database.changes`."""
        await self._enter("read")
        if since < self._compacted:
            raise Compacted(f"changes up to {self._compacted} are no longer kept, {since} was asked for")
        return [record for record in self._log if record.index > since]

    async def aclose(self) -> None:
        """Close. Idempotent: yes."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        if not self._failed.startswith("it is closed"):
            self._failed = "it is closed"
            if self._disk.opened.get(self._path) is self._life:
                del self._disk.opened[self._path]

    async def _enter(self, operation: str) -> None:
        await self._life.gate()
        self._check(operation)

    def _check(self, operation: str) -> None:
        if not self._life.alive:
            raise DiskError(operation, self._path, "this machine has crashed")
        if self._failed:
            raise DiskError(operation, self._path, self._failed, fatal="failed to sync" in self._failed)

    async def _store(self, data: bytes) -> None:
        try:
            await self._disk.append(self._life, self._path, data)
        except DiskError as error:
            raise DiskError("write", self._path, error.reason) from error
        try:
            await self._disk.sync(self._life, self._path)
        except DiskError as error:
            self._failed = "the disk failed to sync; restart the daemon to read what it holds"
            raise DiskError("write", self._path, self._failed, fatal=True) from error

    async def _recover(self) -> None:
        """Read the log and drop its torn end, which must be durable before anything follows it."""
        content = self._disk.read(self._path)
        if content is None:
            await self._disk.append(self._life, self._path, b"")
            await self._disk.sync(self._life, self._path)
            return
        position = 0
        while (batch := _decoded(content, position)) is not None:
            self._apply(batch[0])
            position = batch[1]
        self._disk.truncate(self._path, position)
        await self._disk.sync(self._life, self._path)
        if self._log:
            self._disk.on_commit(self._path, self._log)  # the last batch's writer may not have lived to see it durable

    def _apply(self, batch: list[Record]) -> None:
        for record in batch:
            self._index = record.index
            self._log.append(record)
            if record.data is None:
                self._alive.pop((record.kind, record.id), None)
            else:
                self._alive[record.kind, record.id] = record
        surplus = len(self._log) - LOG_RECORDS_MAX
        if surplus > 0:
            self._compacted = self._log[surplus - 1].index
            del self._log[:surplus]


def _nobody_watches(path: str, batch: list[Record]) -> None:
    """What nobody watches."""


def _encoded(batch: list[Record]) -> bytes:
    """Length and checksum, four bytes each, then the batch."""
    body = _batch_encoder.encode(batch)
    return len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def _decoded(content: bytes, position: int) -> tuple[list[Record], int] | None:
    """The batch at a position and where the next one begins; None where the log ends or is torn."""
    start = position + 8
    if len(content) < start:
        return None
    end = start + int.from_bytes(content[position : position + 4], "big")
    body = content[start:end]
    if len(content) < end or zlib.crc32(body) != int.from_bytes(content[position + 4 : start], "big"):
        return None
    return _batch_decoder.decode(body), end


__all__ = ["LATENCY_S", "SimDatabase", "SimDisk", "SimFiles"]
