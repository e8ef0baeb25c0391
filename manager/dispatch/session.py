"""One agent's session on the manager's side: a reader, and a writer that owns the stream.

Nothing is queued towards an agent. What it must hear is kept as the newest value of its kind (assignments not told yet,
the last durable report, the last heartbeat that counts), and the writer sends what there is when it gets to it. So an agent
that reads slowly costs no more memory than one that reads fast; one that does not read at all is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.wire import FromAgent, IdentityReply, LeaseRenewed, Probe, Refused, RenewRequest, StatusAck, Welcome
from beeyard.manager.dispatch.assignments import AssignmentBook
from beeyard.manager.dispatch.pacer import Pacer
from beeyard.manager.dispatch.routes import RouteBook
from beeyard.runtime.frames import FrameStream

# 10 ms: below what a user notices; a service's tasks for one node arrive within it and go as one message.
WINDOW_S = 0.010
# Least time between two writes to one agent: a write costs some 100 µs on either side however little it says, and while
# thousands of tasks start there is always a little more to say. The first word after a quiet time does not wait.
WRITE_GAP_S = 0.100
# 50 ms: nobody waits for an acknowledgement, so it rides on what else there is to say; under load that halves the writes.
ACK_WINDOW_S = 0.050
# While a service of many tasks starts, every host of its network hears of every task: a few messages a second will do.
ROUTES_WINDOW_S = 0.250
# An agent that reads nothing for so long is as good as gone; equal to three heartbeats.
WRITE_TIMEOUT_S = 15.0
# For the last words to an agent that may not be listening.
FAREWELL_S = 2.0
# A lease is renewed at an eighth of it, so that losing a few renewals does no harm, and once a minute at most.
LEASE_FRACTION = 8.0
LEASE_RENEWAL_S_MAX = 60.0


Renew = Callable[["Session", RenewRequest], Awaitable[IdentityReply | Refused]]


class Session:
    """What one agent has to be told, and the conversation itself. Made for each connection, never used again."""

    def __init__(
        self,
        node_id: str,
        session_id: str,
        frames: FrameStream[FromAgent],
        book: AssignmentBook,
        routes: RouteBook,
        pacer: Pacer,
        *,
        answers_probes: bool = False,
    ) -> None:
        self.answers_probes = answers_probes
        self._probe_due = False
        self._routes = routes
        self._pacer = pacer
        self.node_id = node_id
        self.session_id = session_id
        self._frames = frames
        self._book = book
        self._scope = trio.CancelScope()
        self._due = trio.Event()  # the writer waits for it
        self._due_s = math.inf  # when it will be set, as far as there is something to say
        self._sent_s = -math.inf
        self.refused: Refused | None = None  # why this manager ends it
        self._nursery: trio.Nursery | None = None
        self._renewal: RenewRequest | None = None  # under way
        self._identity: IdentityReply | None = None
        self._acked = 0
        self._ack_due = False
        self._heartbeat = 0  # the last one, and when it came
        self._heartbeat_s: float | None = None
        self._renewed_s: float | None = None  # when the heartbeat came that leases are counted from
        self._renewal_due = False
        self.served = False  # whether all of the first set, the complete one, was written

    @property
    def ended(self) -> bool:
        """Whether it was told to end, or has."""
        return self.refused is not None or self._scope.cancel_called

    @property
    def end_reason(self) -> str:
        """Why this manager ended it, "" when the agent did."""
        return self.refused.reason if self.refused is not None else ""

    # --- what the agent must hear; each returns at once ---

    def touch(self, task_id: str) -> None:
        """A task of the node changed."""
        self._book.touch(task_id)
        self._speak_within(WINDOW_S)

    def touch_route(self, destination: str | None) -> None:
        """The way to a task of another node changed; None: perhaps to all of them."""
        self._routes.touch(destination)
        self._speak_within(ROUTES_WINDOW_S)

    def resync(self) -> None:
        """The agent asks for a complete set."""
        self._book.request_complete()
        self._speak_within(WINDOW_S)

    def probe(self) -> None:
        """Have the agent say at once that it is there."""
        assert self.answers_probes, "one that does not know the question would end the session"
        self._probe_due = True
        self._speak_within(WINDOW_S)

    def acknowledge(self, number: int) -> None:
        """Every report up to this number is durable."""
        self._acked = max(self._acked, number)
        self._ack_due = True
        self._speak_within(ACK_WINDOW_S)

    def start_renewal(self, request: RenewRequest, renew: Renew) -> None:
        """Have the agent's certificate renewed meanwhile; one at a time, and of several requests the last one counts."""
        is_busy, self._renewal = self._renewal is not None, request
        if not is_busy:
            assert self._nursery is not None, "requests are read within the conversation"
            self._nursery.start_soon(self._renew, renew)

    async def _renew(self, renew: Renew) -> None:
        while (request := self._renewal) is not None:
            reply = await renew(self, request)
            if self._renewal is not request:
                continue  # the agent has thrown that key away
            self._renewal = None
            if isinstance(reply, Refused):
                self.end(reply)
            else:
                self._identity = reply
                self._speak_within(WINDOW_S)

    def heartbeat(self, number: int, now_s: float) -> None:
        """The agent was heard: leases are counted anew if it is time."""
        self._heartbeat, self._heartbeat_s = number, now_s
        interval_s = min(LEASE_RENEWAL_S_MAX, self._book.shortest_lease_s / LEASE_FRACTION)
        if self._renewed_s is None or now_s >= self._renewed_s + interval_s:
            self._renewal_due = True
            self._speak_within(WINDOW_S)

    def end(self, refused: Refused) -> None:
        """Say why and hang up, within two seconds whatever the agent does. The first reason counts."""
        if not self.ended:
            self.refused = refused
            self._scope.deadline = trio.current_time() + FAREWELL_S
            self._speak_at(-math.inf)

    def _speak_within(self, window_s: float) -> None:
        self._speak_at(max(trio.current_time() + window_s, self._sent_s + WRITE_GAP_S))

    def _speak_at(self, at_s: float) -> None:
        """Have the writer say what there is at a time, or earlier."""
        if at_s < self._due_s:
            self._due_s = at_s
            self._pacer.call(at_s, self)

    def due(self, at_s: float) -> None:
        """See `Speaker.due`."""
        if at_s == self._due_s:
            self._due.set()

    # --- the conversation ---

    async def run(
        self,
        welcome: Welcome,
        handle: Callable[[Session, FromAgent], Awaitable[None]],
        taken: Callable[[Session], Awaitable[None]],
    ) -> None:
        """Converse until one side ends it.

        Args:
            welcome: opens the session.
            handle: called for each message, one at a time; the next is read when it has returned.
            taken: called after each part of the first set that was written, the last time with `served`.

        Raises:
            trio.BrokenResourceError: the connection broke (in an exception group).
        """
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._write, welcome, taken)
                await self._read(handle)
                self._scope.cancel()

    async def _read(self, handle: Callable[[Session, FromAgent], Awaitable[None]]) -> None:
        """Hand on what comes until the agent hangs up; once the session ends, what comes is ignored."""
        try:
            while (message := await self._frames.receive()) is not None:
                if not self.ended:
                    await handle(self, message)
        except RemoteProtocolError as error:
            self.end(Refused(reason=str(error), retry=True))
            await trio.sleep_forever()  # until the writer has told

    async def _write(self, welcome: Welcome, taken: Callable[[Session], Awaitable[None]]) -> None:
        first = self._book.take()
        # Routes go before the tasks that need them.
        await self._send([welcome, *self._routes.take(), *([] if first is None else [first])])
        while True:
            if self._book.unfinished:
                self._speak_at(-math.inf)
            if not self.served and not self.ended:
                self.served = not self._book.unfinished
                await taken(self)
            await self._due.wait()
            self._due, self._due_s = trio.Event(), math.inf
            if messages := self._collect():
                self._sent_s = trio.current_time()
                await self._send(messages)
            if self.refused is not None:
                self._scope.cancel()

    async def _send(self, messages: list[object]) -> None:
        if self._frames.send_nowait(messages):
            return
        with trio.move_on_after(WRITE_TIMEOUT_S) as writing:
            await self._frames.flush()
        if writing.cancelled_caught:
            # The stream ends within a message: nothing more can be said on it.
            self._scope.cancel()

    def _collect(self) -> list[object]:
        """All that there is to say now, in one write."""
        if self.refused is not None:
            return [self.refused]
        messages: list[object] = []
        if self._probe_due:
            self._probe_due = False
            messages.append(Probe())
        if self._ack_due:
            self._ack_due = False
            messages.append(StatusAck(number=self._acked))
        shortest_before_s = self._book.shortest_lease_s
        assignments = self._book.take()
        # Where a task with a shorter lease arrives, the last renewal may be older than all of it.
        if self._heartbeat_s is not None and (self._renewal_due or self._book.shortest_lease_s < shortest_before_s):
            messages.append(LeaseRenewed(heartbeat_number=self._heartbeat))
            self._renewed_s = self._heartbeat_s
            self._renewal_due = False
        messages += self._routes.take()
        if assignments is not None:
            messages.append(assignments)
        if self._identity is not None:
            messages.append(self._identity)
            self._identity = None
        return messages
