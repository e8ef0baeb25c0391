"""`ListServers` in memory: servers that are played, and machines whose link to them can be cut."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import trio

from beeyard.core.errors import PeerError
from beeyard.runtime.host_lists import ClientTls, HttpAnswer, Unreachable
from tests.support.fake_zookeeper import FakeZooKeeper, FakeZooKeeperServer

TICK_S = 0.1


class HttpServerPlayed(Protocol):
    """An HTTP server that is played."""

    async def answer(self, method: str, target: str, body: bytes) -> HttpAnswer: ...

    def lines(self, method: str, target: str, body: bytes) -> AsyncGenerator[bytes, None]: ...

    def tick(self) -> None: ...


class Link:
    """Whether something reaches the servers; of one machine, or of one server."""

    def __init__(self) -> None:
        self.up = True
        self._broken = trio.Event()

    def cut(self) -> None:
        """Break what stands and let nothing through."""
        self.up = False
        self.drop()

    def drop(self) -> None:
        """Break what stands."""
        self._broken.set()
        self._broken = trio.Event()

    def mend(self) -> None:
        """Let everything through again."""
        self.up = True

    async def broken(self) -> None:
        """Wait until what stands now is broken."""
        await self._broken.wait()


class FakeWorld:
    """Servers by "HOST:PORT", files by path, and machines that reach them."""

    def __init__(self) -> None:
        self.http: dict[str, HttpServerPlayed] = {}
        self.zookeepers: dict[str, FakeZooKeeperServer] = {}
        self.files: dict[str, bytes] = {}
        self.down = Link()  # of all servers
        self.n_requests = 0

    async def run(self) -> None:
        """Let the servers' clocks run."""
        while True:
            await trio.sleep(TICK_S)
            if self.down.up:
                for server in [*self.http.values(), *self.zookeepers.values()]:
                    server.tick()

    def machine(self) -> FakeMachine:
        """Another machine."""
        return FakeMachine(self)


class FakeMachine:
    """`Ports` of one machine."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self.link = Link()
        self.wall_ahead_s = 0.0
        self.files = _FakeFiles(world)
        self.lists = self

    def wall_now_s(self) -> float:
        return 1_800_000_000.0 + trio.current_time() + self.wall_ahead_s

    def cut(self) -> None:
        """Nothing is heard of this machine any more."""
        self.link.cut()

    # --- as ListServers

    def http(self, tls: ClientTls | None = None) -> FakeHttpClient:
        return FakeHttpClient(self.world, self.link)

    def zookeeper(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> FakeZooKeeper:
        server = self.world.zookeepers[servers[0]]
        return FakeZooKeeper(server, session_s, lambda: self.link.up and self.world.down.up)

    async def change_file(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        await trio.lowlevel.checkpoint()
        self.world.files[path] = change(self.world.files.get(path))


class _FakeFiles:
    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    async def read(self, path: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self._world.files.get(path)


class FakeHttpClient:
    """`HttpClient` of a machine."""

    def __init__(self, world: FakeWorld, link: Link) -> None:
        self._world = world
        self._link = link

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        server, target = self._reach(url)
        self._world.n_requests += 1
        answer: HttpAnswer | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, self._link, nursery.cancel_scope)
            nursery.start_soon(_cancel_when, self._world.down, nursery.cancel_scope)
            with trio.move_on_after(timeout_s):
                answer = await server.answer(method, target, body or b"")
            nursery.cancel_scope.cancel()
        if answer is None:
            raise PeerError(f"{urlsplit(url).netloc}: no answer in time")
        return answer

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[_FakeLines]:
        server, target = self._reach(url)
        sender, receiver = trio.open_memory_channel[bytes | None](1000)

        async def pump() -> None:
            async with aclosing(server.lines(method, target, body)) as lines:
                async for line in lines:
                    await sender.send(line)
            sender.close()

        async def watch(link: Link) -> None:
            await link.broken()
            await sender.send(None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump)
            nursery.start_soon(watch, self._link)
            nursery.start_soon(watch, self._world.down)
            failure = None
            try:
                yield _FakeLines(urlsplit(url).netloc, receiver)
            except PeerError as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def _reach(self, url: str) -> tuple[HttpServerPlayed, str]:
        parts = urlsplit(url)
        server = self._world.http.get(parts.netloc)
        if server is None or not self._link.up or not self._world.down.up:
            raise Unreachable(f"cannot reach {parts.netloc}: connection refused")
        return server, f"{parts.path}?{parts.query}" if parts.query else parts.path


class _FakeLines:
    def __init__(self, server: str, lines: trio.MemoryReceiveChannel[bytes | None]) -> None:
        self._server = server
        self._lines = lines

    async def next_line(self) -> bytes | None:
        try:
            line = await self._lines.receive()
        except trio.EndOfChannel:
            return None
        if line is None:
            raise PeerError(f"{self._server}: connection reset by peer")
        return line


async def _cancel_when(link: Link, scope: trio.CancelScope) -> None:
    await link.broken()
    scope.cancel()


class Members:
    """`LocalMembers` as a test says."""

    def __init__(self, *entries: str) -> None:
        self._entries: tuple[str, ...] | None = entries or None
        self._changed = trio.Event()

    def members(self) -> Sequence[str] | None:
        return self._entries

    async def changed(self) -> None:
        await self._changed.wait()

    def set(self, *entries: str) -> None:
        """Have these members from now on."""
        self._entries = entries
        self._changed.set()
        self._changed = trio.Event()
