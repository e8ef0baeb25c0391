"""A manager that does what a test says, at the other end of an agent's connections (in memory, without TLS)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import trio
import trio.testing

from beeyard.core.errors import PeerError
from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import (
    AssignedTask,
    Assignments,
    FromAgent,
    Heartbeat,
    Hello,
    LeaseRenewed,
    StatusAck,
    StatusReport,
    Welcome,
    from_agent_decoder,
)
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Connection, Credentials

MANAGER = "tcp://10.0.0.1:2377"
PATIENCE_S = 600.0

M = TypeVar("M")


class ScriptedNet:
    """`Net` of an agent: its dials arrive at the scripts of managers, which accept them when they like."""

    def __init__(self) -> None:
        self.dialled: list[tuple[float, str, Credentials | None]] = []
        self.refusing: dict[str, str] = {}  # address → why nobody can connect there
        self._arrivals, self._waiting = trio.open_memory_channel[tuple[str, trio.abc.Stream]](100)

    async def dial(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = 10.0
    ) -> Connection:
        await trio.lowlevel.checkpoint()
        self.dialled.append((trio.current_time(), address, credentials))
        if address in self.refusing:
            raise PeerError(f"cannot connect to {address}: {self.refusing[address]}")
        ours, theirs = trio.testing.memory_stream_pair()
        self._arrivals.send_nowait((address, theirs))
        return Connection(stream=ours, remote=address)

    async def accept(self) -> Peer:
        """The next agent that connects."""
        with trio.fail_after(PATIENCE_S):
            address, stream = await self._waiting.receive()
        return Peer(address, stream)


class Peer:
    """The manager's end of one connection."""

    def __init__(self, address: str, stream: trio.abc.Stream) -> None:
        self.address = address
        self.stream = stream
        self.heard: list[tuple[float, FromAgent]] = []
        self.acknowledges = True  # whether reports are confirmed at once
        self.renews = True  # whether heartbeats are confirmed at once
        self._frames = FrameStream(stream, from_agent_decoder)
        self._changed = trio.Event()
        self._number = 0
        self.closed = False

    async def say(self, *messages: object) -> None:
        """Send as one write."""
        await self._frames.send(messages)

    async def hear(self) -> FromAgent | None:
        """The next message; for connections that are no session."""
        with trio.fail_after(PATIENCE_S):
            return await self._frames.receive()

    async def hang_up(self) -> None:
        """Close the connection."""
        await self.stream.aclose()

    async def welcome(
        self,
        nursery: trio.Nursery,
        tasks: Iterable[AssignedTask] | None = (),
        *,
        heartbeat_s: float = 5.0,
        managers: tuple[str, ...] = (),
    ) -> Hello:
        """Open the session and send a complete set; from then on everything is heard, and confirmed if wished.

        `tasks` None: the manager takes its time with the set.
        """
        hello = await self.hear()
        assert isinstance(hello, Hello), hello
        self.heard.append((trio.current_time(), hello))
        await self.say(
            Welcome(session_id="s", node_id="n1", heartbeat_s=heartbeat_s, manager_addresses=managers),
        )
        if tasks is not None:
            await self.assign_all(tasks)
        nursery.start_soon(self._listen)
        return hello

    async def assign_all(self, tasks: Iterable[AssignedTask]) -> None:
        """Send a complete set."""
        self._number += 1
        await self.say(Assignments(complete=True, applies_to=0, results_in=self._number, tasks=tuple(tasks)))

    async def assign(self, *tasks: AssignedTask, removed: tuple[str, ...] = (), skip: int = 0) -> None:
        """Send an incremental set; with `skip` so many sets before it were lost."""
        applies_to = self._number + skip
        self._number = applies_to + 1
        await self.say(
            Assignments(complete=False, applies_to=applies_to, results_in=self._number, tasks=tasks, removed=removed)
        )

    async def _listen(self) -> None:
        try:
            while (message := await self._frames.receive()) is not None:
                self.heard.append((trio.current_time(), message))
                if isinstance(message, StatusReport) and self.acknowledges:
                    await self.say(StatusAck(number=message.number))
                if isinstance(message, Heartbeat) and self.renews:
                    await self.say(LeaseRenewed(heartbeat_number=message.number))
                self._wake()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- what was heard ---

    def of(self, kind: type[M]) -> list[M]:
        """Every message of a kind so far."""
        return [message for _, message in self.heard if isinstance(message, kind)]

    def reports_of(self, task_id: str) -> list[TaskStatus]:
        """Every status of a task that was reported, in order."""
        return [r.status for message in self.of(StatusReport) for r in message.reports if r.task_id == task_id]

    def status(self, task_id: str) -> TaskStatus:
        """The newest status of a task."""
        statuses = self.reports_of(task_id)
        return statuses[-1] if statuses else TaskStatus()

    async def until(self, condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Wait until what was heard makes it true."""
        with trio.fail_after(within_s):
            while not condition():
                await self._changed.wait()

    async def until_state(self, task_id: str, state: TaskState) -> TaskStatus:
        """Wait until a task is in exactly this state."""
        await self.until(lambda: self.status(task_id).state >= state)
        status = self.status(task_id)
        assert status.state is state, status
        return status
