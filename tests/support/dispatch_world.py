"""A dispatcher on a host in memory, and agents that say exactly what a test tells them to.

Connections are trio's in-memory streams; who a connection shows itself to be is said by the test, as the TLS layer would.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
import trio
import trio.testing

from beeyard.core.model import Node, NodeDescription, Resources, Service, Task, TaskStatus
from beeyard.core.states import Role, TaskState
from beeyard.core.wire import (
    PROTOCOL_VERSION,
    Assignments,
    FromManager,
    Heartbeat,
    Hello,
    IdentityReply,
    JoinRequest,
    Refused,
    StatusReport,
    TaskReport,
    Welcome,
    from_manager_decoder,
)
from beeyard.manager import ca
from beeyard.manager.dispatch import Dispatcher
from beeyard.manager.store import Store
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Connection, Credentials, Database, PeerCertificate
from beeyard.runtime.identifier import new_id
from beeyard.runtime.pki import RealPki
from tests.support.memory_database import MemoryDatabase

M = TypeVar("M")
EPOCH_S = 1_800_000_000.0
A_DESCRIPTION = NodeDescription(hostname="yard2", resources=Resources(cpu_nano=4 * 10**9, memory_bytes=1 << 33))


@dataclasses.dataclass(frozen=True)
class Config:
    """What the dispatcher reads of a manager's configuration."""

    listen: str = "tcp://0.0.0.0:2377"
    advertise: str = "tcp://10.99.0.1:2377"
    node_name: str = "yard1"


class MemoryNet:
    """`Net` with one listener; a test connects to it as whoever it wants."""

    def __init__(self) -> None:
        self.accepted: trio.MemorySendChannel[Connection] | None = None
        self.credentials: Callable[[], Credentials] | None = None

    async def listen(
        self,
        address: str,
        credentials: Callable[[], Credentials] | None = None,
        *,
        socket_mode: int = 0o660,
        socket_group: str = "",
    ) -> MemoryListener:
        await trio.lowlevel.checkpoint()
        self.credentials = credentials
        self.accepted, connections = trio.open_memory_channel[Connection](10_000)
        return MemoryListener(address, connections)

    async def dial(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = 10.0
    ) -> Connection:
        raise AssertionError("a manager does not dial")


class MemoryListener:
    """`Listener` of MemoryNet."""

    def __init__(self, address: str, connections: trio.MemoryReceiveChannel[Connection]) -> None:
        self.address = address
        self._connections = connections

    async def serve(self, handler: Callable[[Connection], Awaitable[None]]) -> None:
        async def handle(connection: Connection) -> None:
            await handler(connection)
            await connection.stream.aclose()

        async with trio.open_nursery() as nursery:
            async for connection in self._connections:
                nursery.start_soon(handle, connection)

    async def aclose(self) -> None:
        self._connections.close()
        await trio.lowlevel.checkpoint()


class MemoryHost:
    """The part of `Host` that a manager's dispatcher and CA use."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.hostname = "kernel-name"
        self.rng = random.Random(1)
        self.net = MemoryNet()
        self.pki = RealPki()
        self.paused_until_s = 0.0
        self.wall_ahead_s = 0.0  # of trio's clock; a test moves it
        self._database = database

    def wall_now_s(self) -> float:
        return EPOCH_S + trio.current_time() + self.wall_ahead_s

    def new_id(self) -> str:
        return new_id(self.rng)

    async def running(self) -> None:
        await trio.sleep_until(self.paused_until_s)

    async def open_database(self, path: str) -> Database:
        await trio.lowlevel.checkpoint()
        return self._database


class Agent:
    """The agent's end of one connection."""

    def __init__(self, stream: trio.abc.Stream, node_id: str = "") -> None:
        self.stream = stream
        self.frames: FrameStream[FromManager] = FrameStream(stream, from_manager_decoder)
        self.node_id = node_id
        self.welcome: Welcome | None = None
        self.first: Assignments | None = None

    async def say(self, *messages: object) -> None:
        await self.frames.send(messages)

    async def hear(self, kind: type[M], timeout_s: float = 1.0) -> M:
        """The next message, which must be of this kind and come in time."""
        with trio.fail_after(timeout_s):
            message = await self.frames.receive()
        assert isinstance(message, kind), f"{kind.__name__} expected, got {message}"
        return message

    async def hear_nothing(self, for_s: float = 1.0) -> None:
        with trio.move_on_after(for_s):
            raise AssertionError(f"silence expected, got {await self.frames.receive()}")

    async def hear_refusal(self, timeout_s: float = 1.0) -> Refused:
        """A refusal, then the end of the connection."""
        refused = await self.hear(Refused, timeout_s)
        with trio.fail_after(timeout_s):
            assert await self.frames.receive() is None
        return refused

    async def report(self, number: int, *states: tuple[str, TaskState]) -> None:
        reports = tuple(TaskReport(task_id=i, status=TaskStatus(state=s, message=s.name)) for i, s in states)
        await self.say(StatusReport(number=number, reports=reports))

    async def beat(self, *, every_s: float = 5.0, number: int = 1) -> None:
        """Send heartbeats until cancelled or cut off; reads nothing."""
        while True:
            try:
                await self.say(Heartbeat(number=number))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            number += 1
            await trio.sleep(every_s)

    async def close(self) -> None:
        await self.stream.aclose()


class DispatchWorld:
    """A manager's store, CA and dispatcher."""

    def __init__(self, host: MemoryHost, store: Store, authority: ca.Authority, dispatcher: Dispatcher) -> None:
        self.host = host
        self.store = store
        self.authority = authority
        self.dispatcher = dispatcher

    async def connect(
        self, peer: PeerCertificate | None = None, *, remote: str = "tcp://10.99.0.2:41000", lockstep: bool = False
    ) -> Agent:
        """A connection of somebody who shows a verified certificate, or none. `lockstep`: nothing is buffered."""
        pair = trio.testing.lockstep_stream_pair() if lockstep else trio.testing.memory_stream_pair()
        assert self.host.net.accepted is not None
        await self.host.net.accepted.send(Connection(stream=pair[0], remote=remote, peer=peer))
        return Agent(pair[1], peer.node_id if peer else "")

    async def ask_to_join(self, token: str, hostname: str = "yard2", node_id: str = "") -> IdentityReply | Refused:
        """Join as an agent does it; what the manager says."""
        csr_pem, _ = self.host.pki.new_request()
        agent = await self.connect()
        await agent.say(JoinRequest(token=token, csr_pem=csr_pem, hostname=hostname, node_id=node_id))
        answer = await agent.hear(object)
        assert isinstance(answer, IdentityReply | Refused)
        return answer

    async def join(self, hostname: str = "yard2", role: Role = Role.WORKER) -> PeerCertificate:
        """A node that has joined, as its certificate shows it."""
        answer = await self.ask_to_join(self.authority.join_token(role), hostname)
        assert isinstance(answer, IdentityReply), answer
        return self.host.pki.inspect(answer.certificate_pem)

    async def say_hello(
        self,
        peer: PeerCertificate | None,
        description: NodeDescription = A_DESCRIPTION,
        *,
        lockstep: bool = False,
        answers_probes: bool = False,
    ) -> Agent:
        """Somebody who asks for a session; nothing of the answer has been read."""
        agent = await self.connect(peer, lockstep=lockstep)
        hello = Hello(protocol_version=PROTOCOL_VERSION, description=description, answers_probes=answers_probes)
        await agent.say(hello)
        return agent

    async def session(
        self,
        peer: PeerCertificate,
        description: NodeDescription = A_DESCRIPTION,
        *,
        answers_probes: bool = False,
    ) -> Agent:
        """An agent in its session, which has read its first assignments."""
        agent = await self.say_hello(peer, description, answers_probes=answers_probes)
        agent.welcome = await agent.hear(Welcome)
        agent.first = await agent.hear(Assignments)
        return agent

    async def put(self, *objects: Service | Task | Node) -> None:
        """Store objects as they are, in one transaction, whether new or not."""

        def build(tx: object) -> None:
            for obj in objects:
                if tx.get(type(obj), obj.id) is None:  # type: ignore[attr-defined]
                    tx.create(obj)  # type: ignore[attr-defined]
                else:
                    tx.update(obj)  # type: ignore[attr-defined]

        await self.store.commit(build)

    async def remove(self, kind: type, object_id: str) -> None:
        await self.store.commit(lambda tx: tx.delete(kind, object_id))

    def node(self, node_id: str) -> Node:
        return self.store.nodes[node_id]

    def task(self, task_id: str) -> Task:
        return self.store.tasks[task_id]

    async def want(self, task_id: str, desired_state: TaskState) -> None:
        await self.put(msgspec.structs.replace(self.task(task_id), desired_state=desired_state))


@asynccontextmanager
async def a_dispatch_world(database: MemoryDatabase | None = None) -> AsyncIterator[DispatchWorld]:
    """A running dispatcher; with the database of an earlier one it is a restart of that manager."""
    host = MemoryHost(database or MemoryDatabase())
    async with trio.open_nursery() as nursery:
        store = await Store.open(host, "/state/store.db")  # type: ignore[arg-type]
        await nursery.start(store.run)
        authority = await ca.bootstrap(host, store, Config())  # type: ignore[arg-type]
        dispatcher = Dispatcher(host, store, Config(), authority)  # type: ignore[arg-type]
        await nursery.start(dispatcher.run)
        yield DispatchWorld(host, store, authority, dispatcher)
        nursery.cancel_scope.cancel()
