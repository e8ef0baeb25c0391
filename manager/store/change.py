"""What readers of the store are told: each durable write once and in order, or just that something changed."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
import trio

from beeyard.core.model import StoredObject
from beeyard.runtime.host import Compacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from beeyard.manager.store.store import Store


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write: `old` is None for a creation, `new` for a deletion. In history read back `old` is not known: None."""

    kind: str
    id: str
    old: StoredObject | None
    new: StoredObject | None
    index: int


class CommitGroup(msgspec.Struct, frozen=True):
    """What was committed at once. Its list is shared by all who are told of it."""

    changes: list[Change]
    kinds: frozenset[str]
    is_plain: bool  # one change of each of some tasks, as nearly all are when there are many

    @classmethod
    def of(cls, changes: list[Change]) -> CommitGroup:
        """A group that is not changed any more."""
        kinds = frozenset({change.kind for change in changes})
        is_plain = len(kinds) == 1 and "task" in kinds and len({change.id for change in changes}) == len(changes)
        return cls(changes, kinds, is_plain)


class Wake(msgspec.Struct, frozen=True):
    """All that changed since the last wake, one entry an object: from its first old to its last new. Read only."""

    changes: list[Change]


# Groups of changes that may wait for a reader as they were committed; beyond, what they say of one object is made one.
GROUPS_MAX = 64


class Wakeups:
    """An async iterator that wakes its reader after durable writes of some kinds; coalesces while nobody waits.

    Level-triggered: the reader should look at the store, which may be ahead of the wake but never behind it.
    """

    def __init__(self, kinds: frozenset[str], leave: Callable[[Wakeups], None]) -> None:
        self._kinds = kinds
        self._leave = leave
        self._groups: list[CommitGroup] = []
        self._event = trio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(self)

    def __aiter__(self) -> Wakeups:
        return self

    async def __anext__(self) -> Wake:
        await self.wait()
        return self.take_nowait()

    async def wait(self) -> None:
        """Return when something is pending or `poke` was called, and leave it there."""
        await self._event.wait()

    def poke(self) -> None:
        """Wake the reader though nothing was written."""
        self._event.set()

    def take_nowait(self) -> Wake:
        """What is pending, which may be nothing."""
        groups, self._groups = self._groups, []
        self._event = trio.Event()
        return Wake(self._coalesced(groups))

    def offer(self, group: CommitGroup) -> None:
        """Told by the store after each durable group."""
        if group.kinds.isdisjoint(self._kinds):
            return
        self._groups.append(group)
        if len(self._groups) > GROUPS_MAX:
            self._groups = [CommitGroup.of(self._coalesced(self._groups))]
        self._event.set()

    def _coalesced(self, groups: list[CommitGroup]) -> list[Change]:
        """One entry an object, of the kinds that matter here, in order of its first change."""
        if len(groups) == 1 and groups[0].is_plain and "task" in self._kinds:
            return groups[0].changes
        kinds = self._kinds
        pending: dict[str | tuple[str, str], Change] = {}
        for group in groups:
            for change in group.changes:
                kind = change.kind
                if kind not in kinds:
                    continue
                key = change.id if kind == "task" else (kind, change.id)
                earlier = pending.get(key)
                if earlier is not None:
                    change = Change(kind, change.id, earlier.old, change.new, change.index)
                pending[key] = change
        return list(pending.values())


class Watch:
    """An async iterator over every durable write after an index, in order, none left out.

    It holds no place in the store, so it may simply be dropped. A reader that is slow reads what it missed from the database.

    Raises (from iteration):
        Compacted: the log no longer reaches back to where this reader is.
    """

    def __init__(self, store: Store, position: int) -> None:
        self._store = store
        self._position = position
        self._buffer: list[Change] = []

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        while not self._buffer:
            if self._position > self._store.index:
                raise Compacted(f"index {self._position} was never written; the last is {self._store.index}")
            if self._position == self._store.index:
                await self._store.wait_past(self._position)
            self._buffer = await self._store.history(self._position)
            self._buffer.reverse()
        change = self._buffer.pop()
        self._position = change.index
        return change
