"""ZooKeeper in memory, at its port: sessions that end when nobody is heard of, ephemeral znodes, one-shot watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from beeyard.core.errors import PeerError
from beeyard.runtime.host_lists import Znode


class FakeZooKeeperServer:
    """What is stored, and the sessions."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.clients: list[FakeZooKeeper] = []
        self._n_sessions = 0

    def tick(self) -> None:
        """Hear from the clients that can be heard; end the sessions of the others in time."""
        now_s = trio.current_time()
        for client in self.clients:
            if client.reaches():
                client.heard_at_s = now_s
            elif client.number and now_s - client.heard_at_s > client.session_s:
                self.end(client.number)
                client.number = 0

    def put(self, path: str, value: str) -> None:
        """What another program writes."""
        self.nodes[path] = Znode(value.encode(), 0)
        self.tell()

    def new_session(self) -> int:
        self._n_sessions += 1
        return self._n_sessions

    def end(self, session: int) -> None:
        """A session ends, and what goes with it."""
        for path in [path for path, node in self.nodes.items() if node.session == session]:
            del self.nodes[path]
        self.tell()

    def tell(self) -> None:
        """All watches fire."""
        for client in self.clients:
            client.fire()


class FakeZooKeeper:
    """`ZooKeeper` of one machine."""

    def __init__(self, server: FakeZooKeeperServer, session_s: float, reaches: Callable[[], bool]) -> None:
        self._server = server
        self.session_s = session_s
        self.reaches = reaches
        self.number = 0
        self.heard_at_s = 0.0
        self._changed = trio.Event()
        self._reached = True

    def fire(self) -> None:
        if self.reaches():
            self._changed.set()

    async def session(self) -> int:
        await self._reach()
        return self.number

    async def children(self, paths: Sequence[str]) -> list[dict[str, Znode]]:
        await self._reach()
        self._changed = trio.Event()
        found = []
        for path in paths:
            below = {name.removeprefix(f"{path}/"): node for name, node in self._server.nodes.items()}
            found.append({name: node for name, node in below.items() if name and "/" not in name})
        return found

    async def changed(self) -> None:
        while not self._changed.is_set():
            if not self.reaches():
                return
            with trio.move_on_after(0.1):
                await self._changed.wait()

    async def put_ephemeral(self, path: str, data: bytes) -> None:
        await self._reach()
        self._server.nodes[path] = Znode(data, self.number)
        self._server.tell()

    async def delete(self, path: str) -> None:
        await self._reach()
        self._server.nodes.pop(path, None)
        self._server.tell()

    async def aclose(self) -> None:
        if self.number and self.reaches():
            self._server.end(self.number)
        if self in self._server.clients:
            self._server.clients.remove(self)
        await trio.lowlevel.checkpoint()

    async def _reach(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self.reaches():
            await trio.sleep(5.0)
            if not self.reaches():
                raise PeerError("cannot reach ZooKeeper at z1:2181: no connection in 5 s")
        if self not in self._server.clients:
            self._server.clients.append(self)
        if not self.number:
            self.number = self._server.new_session()
        self.heard_at_s = trio.current_time()
