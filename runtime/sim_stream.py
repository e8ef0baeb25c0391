"""Simulated TCP and unix streams: two endpoints and a pipe each way.

Theory of operation
-------------------
A pipe holds *segments*, each with the time at which it arrives; they arrive in order. No task moves them: a reader waits
until the first one's time has come. As TCP repeats what is lost, loss means delay, and a blocked direction (a partition, a
machine without power) means that segments *stall*: they have no time of arrival until the way is free again, and then they
come with TCP's next attempt, which may be as far away as they have waited already. What has stalled longer than
`GIVE_UP_S` breaks the connection, as the kernel would.

An endpoint ends in one of three ways. Closed: what was sent still arrives, then the reader sees the end; who goes on sending
is reset. Reset: the other side's next call fails. Vanished (its machine lost power): the other side learns nothing, until
it sends and the machine is on again.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Protocol

import trio

from beeyard.runtime.sim_life import Life

# What a sender may have on the way before it waits; Linux's buffers are of this order.
WINDOW_BYTES = 256 * 1024
# Linux gives up after 15 repetitions, which are 924 s.
GIVE_UP_S = 924.0
# The longest pause between two repetitions.
REPEAT_S_MAX = 120.0


class Way(Protocol):
    """How bytes get from one machine to another; the network decides."""

    def arrival_s(self) -> float:
        """When what is sent now arrives; infinity when the way is blocked."""

    def sent(self, data: bytes) -> None:
        """Note a message for the trace."""


class Pipe:
    """Bytes on their way in one direction."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.segments: collections.deque[tuple[float, bytes]] = collections.deque()  # b"" is the end of the stream
        self.n_bytes = 0
        self.stalled_since = math.inf
        self.reader_gone = False
        self.sender: Endpoint | None = None  # who learns of a reset
        self._changed = trio.Event()

    def wake(self) -> None:
        """Let reader and writer look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self, deadline: float) -> None:
        """Return at the next `wake`, at the latest at a time of trio's clock."""
        with trio.move_on_at(deadline):
            await self._changed.wait()

    def put(self, data: bytes) -> None:
        """Send."""
        arrives = self.way.arrival_s()
        if self.segments:
            arrives = max(arrives, self.segments[-1][0])
        if arrives == math.inf:
            self.stalled_since = min(self.stalled_since, trio.current_time())
        self.segments.append((arrives, data))
        self.n_bytes += len(data)
        self.wake()

    def take(self, max_bytes: int) -> bytes | None:
        """What has arrived, up to so much; b"" at the end; None when nothing has."""
        now = trio.current_time()
        got = bytearray()
        while self.segments and self.segments[0][0] <= now and len(got) < max_bytes:
            arrived, data = self.segments[0]
            if not data:
                return bytes(got)  # the end stays, so that it can be read again
            part = data[: max_bytes - len(got)]
            got += part
            if len(part) < len(data):
                self.segments[0] = (arrived, data[len(part) :])
            else:
                self.segments.popleft()
        if not got:
            return None
        self.n_bytes -= len(got)
        self.wake()
        return bytes(got)

    def next_arrival_s(self) -> float:
        """When there is something to take."""
        return self.segments[0][0] if self.segments else math.inf

    def stall(self) -> None:
        """The way is blocked: what is under way is lost and has to be repeated."""
        now = trio.current_time()
        under_way = [(arrives if arrives <= now else math.inf, data) for arrives, data in self.segments]
        self.segments = collections.deque(under_way)
        if under_way and under_way[-1][0] == math.inf:
            self.stalled_since = min(self.stalled_since, now)
        self.wake()

    def flow(self, wait_s: Callable[[float], float]) -> None:
        """The way is free: stalled segments come with the next repetition, `wait_s(longest)` from now."""
        if self.stalled_since == math.inf:
            return
        now = trio.current_time()
        arrives_next = now + wait_s(min(now - self.stalled_since, REPEAT_S_MAX))
        self.segments = collections.deque(
            (arrives_next if arrives == math.inf else arrives, data) for arrives, data in self.segments
        )
        self.stalled_since = math.inf
        if self.reader_gone and self.sender is not None:
            self.sender.break_at(arrives_next, "connection reset by peer")
        self.wake()

    def forget_stalled(self) -> None:
        """The sender is gone: nobody repeats what is lost."""
        while self.segments and self.segments[-1][0] == math.inf:
            self.segments.pop()
        self.stalled_since = math.inf


class Endpoint(trio.abc.Stream):
    """One end of a connection. `life` None: somebody on the machine who is not the daemon, such as a test's client."""

    def __init__(self, life: Life | None, incoming: Pipe, outgoing: Pipe, remote: str) -> None:
        self.life = life
        self.remote = remote
        self.closed = False
        self._incoming = incoming
        self._outgoing = outgoing
        self._broken = ""
        self._breaks_at = math.inf
        self._receiving = False
        self._sending = False
        outgoing.sender = self

    @property
    def peer_closed(self) -> bool:
        """Whether the other end is closed: its process is done with the connection, or gone."""
        return self._outgoing.reader_gone

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As trio's: waits while the other side does not read."""
        await self._gate()
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        self._sending = True
        try:
            while self._outgoing.n_bytes >= WINDOW_BYTES:
                self._check()
                await self._outgoing.changed(self._attention_s())
            await self._gate()
            if data:
                self._outgoing.way.sent(bytes(data))
                self._outgoing.put(bytes(data))
                if self._outgoing.reader_gone:
                    # What is sent to one who has closed is answered with a reset, once it gets there.
                    self.break_at(self._outgoing.segments[-1][0], "connection reset by peer")
        finally:
            self._sending = False

    async def wait_send_all_might_not_block(self) -> None:
        """As trio's."""
        await self._gate()
        while self._outgoing.n_bytes >= WINDOW_BYTES:
            self._check()
            await self._outgoing.changed(self._attention_s())
        await self._gate()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As trio's. Cancellation: nothing is lost."""
        await self._gate()
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving on this stream")
        self._receiving = True
        try:
            while True:
                self._check()
                if self._incoming.next_arrival_s() <= trio.current_time():
                    await self._gate()
                    data = self._incoming.take(max_bytes or 65536)
                    if data is not None:
                        return data
                await self._incoming.changed(min(self._incoming.next_arrival_s(), self._attention_s()))
        finally:
            self._receiving = False

    async def aclose(self) -> None:
        """Close: what was sent still arrives. Idempotent: yes."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`, at once."""
        if self.closed:
            return
        self.closed = True
        if not self._broken:
            self._outgoing.put(b"")
        self._incoming.reader_gone = True
        self.wake()

    def reset(self, peer: Endpoint, reason: str = "connection reset by peer") -> None:
        """Close with a reset: the other end's calls fail once it gets there."""
        if not self.closed:
            self.closed = True
            self._incoming.reader_gone = True
            peer.break_at(self._outgoing.way.arrival_s(), reason)
            self.wake()

    def vanish(self) -> None:
        """This machine lost power: nobody is told."""
        self.closed = True
        self._incoming.reader_gone = True
        self._outgoing.forget_stalled()
        self.wake()

    def break_at(self, at_s: float, reason: str) -> None:
        """From then on every call fails."""
        if at_s < self._breaks_at:
            self._breaks_at, self._broken = at_s, reason
            self.wake()

    async def _gate(self) -> None:
        """Wait while the machine is paused, then fail if there is a reason to."""
        if self.life is not None:
            await self.life.gate()
        else:
            await trio.lowlevel.checkpoint()
        self._check()

    def _check(self) -> None:
        now = trio.current_time()
        if self.life is not None and not self.life.alive:
            raise trio.BrokenResourceError("this machine has crashed")
        if self.closed:
            raise trio.ClosedResourceError("this stream was closed")
        if now >= self._outgoing.stalled_since + GIVE_UP_S:
            self.break_at(now, "connection timed out")
        if now >= self._breaks_at:
            raise trio.BrokenResourceError(f"connection to {self.remote} is broken: {self._broken}")

    def _attention_s(self) -> float:
        """When `_check` may answer otherwise, if nothing happens before."""
        return min(self._breaks_at, self._outgoing.stalled_since + GIVE_UP_S)

    def wake(self) -> None:
        """Let whoever waits on this end look again."""
        self._incoming.wake()
        self._outgoing.wake()


__all__ = ["GIVE_UP_S", "WINDOW_BYTES", "Endpoint", "Pipe", "Way"]
