"""Clusters of real Serf agents and members of ours, on addresses of the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from beeyard.core.errors import NameConflict
from beeyard.discovery.gossip.config import GossipConfig
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.gossip.serf.event import Event, MemberEvent, QueryAsked, UserEventCame
from beeyard.runtime import real
from beeyard.runtime.sim_gate import NoParts
from tests.support.serf_agent import SerfAgent, serf_agent

PORT = 7946
# Nothing of it takes longer than ten seconds; the rest is for a machine that does much else.
PATIENCE_S = 60.0


class MixedCluster:
    """Members of both kinds by name. `subnet`: "127.73.0", of which nobody else has an address."""

    def __init__(self, subnet: str, nursery: trio.Nursery, stack: AsyncExitStack) -> None:
        self.real: dict[str, SerfAgent] = {}
        self.ours: dict[str, GossipNode] = {}
        self.seen: list[tuple[str, str, str]] = []  # who saw it, what kind of event, about whom
        self.events: list[tuple[str, Event]] = []
        self.ended: list[str] = []  # members of ours whose name was taken
        self._subnet = subnet
        self._nursery = nursery
        self._stack = stack
        self._scopes: dict[str, trio.CancelScope] = {}
        self._addresses: dict[str, str] = {}

    def address(self, name: str) -> str:
        """HOST:PORT of a member."""
        if name not in self._addresses:
            self._addresses[name] = f"{self._subnet}.{len(self._addresses) + 1}:{PORT}"
        return self._addresses[name]

    async def start_real(self, name: str, *flags: str, key: str = "", called: str = "") -> SerfAgent:
        """A Serf agent; `called`: its name, when it is to be another one's."""
        flags = (*flags, *([f"-encrypt={key}"] if key else []))
        agent = serf_agent(called or name, self.address(name), *flags, seen=self._note)
        self.real[name] = await self._stack.enter_async_context(agent)
        return self.real[name]

    async def start_ours(self, name: str, *, called: str = "", **config: Any) -> GossipNode:
        """A member of ours."""
        host, _, port = self.address(name).rpartition(":")
        wanted = GossipConfig(name=called or name, bind=host, port=int(port), **config)
        node = GossipNode(real.host(netlink=NoParts().netlink(), hostname=name), wanted)
        await self._nursery.start(self._run, name, node)
        self.ours[name] = node
        return node

    async def _run(self, name: str, node: GossipNode, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as scope:
            self._scopes[name] = scope
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._live, node)
                    nursery.start_soon(self._watch, node, name)
                    task_status.started()
            except* NameConflict:
                self.ended.append(name)
        self.ours.pop(name, None)

    async def _live(self, node: GossipNode, task_status: trio.TaskStatus[Any]) -> None:
        await node.run(task_status=task_status)

    async def _watch(self, node: GossipNode, name: str) -> None:
        async for event in node.events():
            self.events.append((name, event))
            if isinstance(event, MemberEvent):
                self._note(name, type(event).__name__.removeprefix("Member").lower(), event.member.name)
            elif isinstance(event, UserEventCame):
                self._note(name, "event", event.name)
            elif isinstance(event, QueryAsked):
                node.answer(event.query_id, b"answer of " + name.encode())

    def _note(self, observer: str, kind: str, about: str) -> None:
        self.seen.append((observer, kind, about))

    def kill(self, name: str) -> None:
        """A member is gone without a word."""
        if name in self.real:
            self.real.pop(name).kill()
        else:
            self.ours.pop(name)
            self._scopes.pop(name).cancel()

    async def join(self, name: str, other: str) -> None:
        """One member joins another."""
        if name in self.real:
            assert await self.real[name].join(self.address(other)) == 1
        else:
            host, _, port = self.address(other).rpartition(":")
            assert await self.ours[name].join([Address(host, int(port))]) == 1

    async def agree(self, **statuses: str) -> None:
        """Wait until every member has exactly these members with these statuses."""
        views: dict[str, Mapping[str, str]] = {}

        async def all_do() -> bool:
            views.clear()
            views.update({name: {n: s for n, (s, _) in (await a.members()).items()} for name, a in self.real.items()})
            views.update({name: {m.name: m.status for m in node.members()} for name, node in self.ours.items()})
            return all(view == statuses for view in views.values())

        deadline = trio.current_time() + PATIENCE_S
        while not await all_do():
            assert trio.current_time() < deadline, f"members do not agree on {statuses}: {views}"
            await trio.sleep(0.1)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = trio.current_time() + PATIENCE_S
        while not condition():
            assert trio.current_time() < deadline, f"not within {PATIENCE_S:g} s, seen: {self.seen[-40:]}"
            await trio.sleep(0.05)

    def seen_kinds(self, kind: str) -> list[tuple[str, str, str]]:
        """All that was seen of one kind."""
        return [seen for seen in self.seen if seen[1] == kind]

    async def all_see(self, kind: str, about: str) -> None:
        """Wait until every living member has seen something."""
        await self.until(lambda: {*self.real, *self.ours} <= {who for who, *what in self.seen if what == [kind, about]})


@asynccontextmanager
async def mixed_cluster(subnet: str) -> AsyncIterator[MixedCluster]:
    """A cluster that is taken down whatever happens."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        stack.callback(nursery.cancel_scope.cancel)
        yield MixedCluster(subnet, nursery, stack)


__all__ = ["MixedCluster", "mixed_cluster"]
