"""What happens to a member, for whoever wants to read it in his own time."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator, Callable

import trio

from beeyard.discovery.gossip.serf.event import Event, MemberEvent

# Events and queries that wait for a slow reader. Members wait beside them, each once.
WAITING_MAX = 1024


class Subscription(AsyncIterator[Event]):
    """Events from the moment of subscribing on.

    Changes of one member that nobody has read yet are told as the last of them: a slow reader misses steps, never the
    state. Of everything else the newest 1,024 are kept; `n_dropped` counts the others.
    """

    def __init__(self, forget: Callable[[Subscription], None]) -> None:
        self.n_dropped = 0
        self._forget = forget
        # In order of arrival. A member's change has its name as the key, anything else a number.
        self._waiting: collections.OrderedDict[str | int, Event] = collections.OrderedDict()
        self._numbers: collections.deque[int] = collections.deque()
        self._next_number = 0
        self._closed = False
        self._changed = trio.Event()

    async def __anext__(self) -> Event:
        """The next event. Cancellation: nothing is lost."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            await self._changed.wait()
        key, event = self._waiting.popitem(last=False)
        if isinstance(key, int):
            self._numbers.popleft()
        return event

    def close(self) -> None:
        """What waits can still be read, then the reader's loop ends. Idempotent: yes."""
        if not self._closed:
            self._closed = True
            self._forget(self)
            self._changed.set()

    def put_nowait(self, event: Event) -> None:
        """Something has happened."""
        if isinstance(event, MemberEvent):
            self._waiting.pop(event.member.name, None)
            self._waiting[event.member.name] = event
        else:
            if len(self._numbers) >= WAITING_MAX:
                del self._waiting[self._numbers.popleft()]
                self.n_dropped += 1
            self._numbers.append(self._next_number)
            self._waiting[self._next_number] = event
            self._next_number += 1
        self._changed.set()
        self._changed = trio.Event()


class Answers(AsyncIterator[Event]):
    """What comes back for one question of ours: `QueryAck`, `QueryAnswer` or `KeysDone`, until its time is over."""

    def __init__(self, query_id: int, forget: Callable[[int], None]) -> None:
        self.query_id = query_id
        self._forget = forget
        self._waiting: collections.deque[Event] = collections.deque()
        self._done = False
        self._changed = trio.Event()

    async def __anext__(self) -> Event:
        """The next one. Cancellation: nothing is lost."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._done:
                raise StopAsyncIteration
            await self._changed.wait()
        return self._waiting.popleft()

    def close(self) -> None:
        """Want no more answers. Idempotent: yes."""
        if not self._done:
            self.end()
            self._forget(self.query_id)

    def put_nowait(self, event: Event) -> None:
        """A member answered: each does so once, so their number is the bound."""
        self._waiting.append(event)
        self._wake()

    def end(self) -> None:
        """Nothing more will come."""
        self._done = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


__all__ = ["WAITING_MAX", "Answers", "Subscription"]
