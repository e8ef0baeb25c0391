"""Lists in ZooKeeper: ephemeral znodes, which go with their manager's session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from beeyard.discovery.published.backend import GATHER_S, OTHERS, RELIST_S, Contents, Lease, LeaseLost
from beeyard.discovery.published.entries import legible, written
from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.runtime.host_lists import ZooKeeper


class ZooKeeperBackend:
    """`Backend` on ZooKeeper. One session carries the watches and the list; its time is the lease's."""

    def __init__(self, url: DiscoveryUrl, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._lists = f"/{url.lists_path}"
        self._others = f"/{url.path}"

    async def read(self) -> Contents:
        """See `Backend.read`."""
        lists, others = await self._zookeeper.children([self._lists, self._others])
        contents = {owner: legible(node.data) for owner, node in lists.items()}
        entries = tuple(sorted({entry for node in others.values() for entry in legible(node.data)}))
        return contents | ({OTHERS: entries} if entries else {})

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`. A session that was interrupted has all read anew."""
        while True:
            seen(await self.read())
            with trio.move_on_after(RELIST_S):
                await self._zookeeper.changed()
                await trio.sleep(GATHER_S)

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`."""
        return _ZooKeeperLease(self._zookeeper, await self._zookeeper.session(), f"{self._lists}/{owner}")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await self._zookeeper.aclose()


class _ZooKeeperLease:
    def __init__(self, zookeeper: ZooKeeper, session: int, path: str) -> None:
        self._zookeeper = zookeeper
        self._session = session
        self._path = path
        self._is_put = False

    async def put(self, entries: Sequence[str]) -> None:
        await self.renew()
        await self._zookeeper.put_ephemeral(self._path, written(entries))
        self._is_put = True

    async def renew(self) -> None:
        # Threads of the port keep the session alive; what is to be found out is whether they could.
        if await self._zookeeper.session() != self._session:
            raise LeaseLost("the session with ZooKeeper has ended")

    async def revoke(self) -> None:
        if self._is_put:
            await self._zookeeper.delete(self._path)


__all__ = ["ZooKeeperBackend"]
