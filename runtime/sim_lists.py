"""Servers of published lists as a simulated machine reaches them: none, or those that a test has put there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from beeyard.core.errors import DiskError, HostError, PeerError
from beeyard.runtime.host_lists import ClientTls, HttpAnswer, HttpClient, Lines, ListServers, Znode, ZooKeeper
from beeyard.runtime.sim_life import Life


class NoListServers:
    """`ListServers` of a machine from which none can be reached."""

    def http(self, tls: ClientTls | None = None) -> HttpClient:
        """See `ListServers.http`."""
        raise HostError("this simulated machine reaches no servers")

    def zookeeper(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> ZooKeeper:
        """See `ListServers.zookeeper`."""
        raise HostError("this simulated machine reaches no servers")

    async def change_file(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """See `ListServers.change_file`."""
        raise DiskError("change", path, "this simulated machine shares no files")


class GatedListServers:
    """`ListServers` of one life: each call waits while the machine is paused, and fails once the daemon has crashed."""

    def __init__(self, life: Life, servers: ListServers) -> None:
        self._life = life
        self._servers = servers

    def http(self, tls: ClientTls | None = None) -> HttpClient:
        """See `ListServers.http`."""
        return _GatedHttp(self._life, self._servers.http(tls))

    def zookeeper(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> ZooKeeper:
        """See `ListServers.zookeeper`."""
        return _GatedZooKeeper(self._life, self._servers.zookeeper(servers, session_s, tls))

    async def change_file(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """See `ListServers.change_file`."""
        await _pass(self._life)
        await self._servers.change_file(path, change)


async def _pass(life: Life) -> None:
    if not await life.gate():
        raise PeerError("the daemon has crashed")


class _GatedHttp:
    def __init__(self, life: Life, http: HttpClient) -> None:
        self._life = life
        self._http = http
        self.aclose = http.aclose

    async def request(self, method: str, url: str, body: bytes | None = None, *, timeout_s: float = 5.0) -> HttpAnswer:
        await _pass(self._life)
        answer = await self._http.request(method, url, body, timeout_s=timeout_s)
        await _pass(self._life)
        return answer

    @asynccontextmanager
    async def lines(
        self, method: str, url: str, body: bytes, *, connect_timeout_s: float = 5.0
    ) -> AsyncIterator[Lines]:
        await _pass(self._life)
        async with self._http.lines(method, url, body, connect_timeout_s=connect_timeout_s) as lines:
            yield _GatedLines(self._life, lines)


class _GatedLines:
    def __init__(self, life: Life, lines: Lines) -> None:
        self._life = life
        self._lines = lines

    async def next_line(self) -> bytes | None:
        line = await self._lines.next_line()
        await _pass(self._life)
        return line


class _GatedZooKeeper:
    def __init__(self, life: Life, zookeeper: ZooKeeper) -> None:
        self._life = life
        self._zookeeper = zookeeper
        self.changed = zookeeper.changed

    async def session(self) -> int:
        await _pass(self._life)
        return await self._zookeeper.session()

    async def children(self, paths: Sequence[str]) -> list[dict[str, Znode]]:
        await _pass(self._life)
        return await self._zookeeper.children(paths)

    async def put_ephemeral(self, path: str, data: bytes) -> None:
        await _pass(self._life)
        await self._zookeeper.put_ephemeral(path, data)

    async def delete(self, path: str) -> None:
        await _pass(self._life)
        await self._zookeeper.delete(path)

    async def aclose(self) -> None:
        if self._life.alive:  # else its session is for the servers to end
            await self._zookeeper.aclose()


__all__ = ["GatedListServers", "NoListServers"]
