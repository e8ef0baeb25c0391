"""A `Database` in memory whose commits can be made to fail, hang or be counted: for tests of what stands above it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Compacted, Record


class MemoryDatabase:
    """Keeps what was committed.

    A commit takes `takes_s`. `fail_when(n)` decides whether commit number n (from 1) is refused; `after_commit(n)` is called
    when it is on the disk.
    """

    def __init__(self, keep: int = 10_000) -> None:
        self.log: list[Record] = []
        self.n_commits = 0
        self.n_batches: list[int] = []
        self.fail_when: Callable[[int], bool] = lambda n: False
        self.failures_are_fatal = False
        self.hangs_from = math.inf
        self.takes_s = 0.0
        self.after_commit: Callable[[int], None] = lambda n: None
        self.hold: trio.Event | None = None
        self.closed = False
        self._keep = keep

    async def load(self) -> tuple[int, list[Record]]:
        await trio.lowlevel.checkpoint()
        live: dict[tuple[str, str], Record] = {}
        for record in self.log:
            live.pop((record.kind, record.id), None)
            if record.data is not None:
                live[record.kind, record.id] = record
        return (self.log[-1].index if self.log else 0), list(live.values())

    async def commit(self, batch: Sequence[Record]) -> None:
        self.n_commits += 1
        if self.fail_when(self.n_commits):
            raise DiskError("write", "memory", "no space left", fatal=self.failures_are_fatal)
        if self.hangs_from <= self.n_commits:
            await trio.sleep_forever()  # as long as the power is on; nothing of it is stored
        if self.takes_s:
            await trio.sleep(self.takes_s)
        if self.hold is not None:
            with trio.CancelScope(shield=True):
                await self.hold.wait()
        await trio.lowlevel.cancel_shielded_checkpoint()
        self.n_batches.append(len(batch))
        self.log.extend(batch)
        self.after_commit(self.n_commits)

    async def changes(self, since: int) -> list[Record]:
        await trio.lowlevel.checkpoint()
        kept = self.log[-self._keep :]
        if kept and kept[0].index > since + 1:
            raise Compacted(f"{since}")
        return [record for record in kept if record.index > since]

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True
