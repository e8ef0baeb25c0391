"""Gossip nodes on simulated machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from beeyard.core.errors import HostError, NameConflict
from beeyard.discovery.gossip.config import GossipConfig
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.gossip.serf.event import Event, MemberEvent
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimWorld

PORT = 7946


class NodeWorld:
    """Nodes by name, each on the machine of its name; what each saw of members is noted."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.nodes: dict[str, GossipNode] = {}
        self.seen: list[tuple[str, str, str]] = []  # who saw it, what kind of event, about whom
        self.events: list[tuple[str, Event]] = []

    async def start(self, name: str, *, called: str = "", **config: Any) -> GossipNode:
        """Start a node and wait until it runs. `called`: its member's name, when it is not the node's."""

        async def daemon(host: Host) -> None:
            node = GossipNode(host, GossipConfig(name=called or name, port=PORT, **config))
            async with trio.open_nursery() as nursery:
                await nursery.start(self._run, node, nursery.cancel_scope)
                self.nodes[name] = node
                nursery.start_soon(self._note, name, node)

        self.nodes.pop(name, None)
        self.world.start(name, daemon)
        await self.world.until(lambda: name in self.nodes)
        return self.nodes[name]

    async def restart(self, name: str) -> GossipNode:
        """Start a node again that crashed."""
        self.nodes.pop(name, None)
        self.world.restart(name)
        await self.world.until(lambda: name in self.nodes)
        return self.nodes[name]

    async def start_all(self, n_members: int, **config: Any) -> list[GossipNode]:
        """Nodes n1, n2, ... that have joined n1 and know each other."""
        nodes = [await self.start(f"n{number}", **config) for number in range(1, n_members + 1)]
        for node in nodes[1:]:
            assert await node.join([self.address("n1")]) == 1
        await self.agree({node.me.name: "alive" for node in nodes})
        return nodes

    def address(self, machine: str) -> Address:
        """Where the node of a machine is reached."""
        return Address(self.world.machines[machine].ip, PORT)

    async def agree(self, statuses: Mapping[str, str], *, among: Iterable[str] = (), timeout_s: float = 90.0) -> None:
        """Wait until all living nodes, or those of these names, have exactly these members with these statuses."""
        names = list(among) or [name for name in self.nodes if self.world.alive(name)]
        await self.until(lambda: all(status_of(self.nodes[name]) == statuses for name in names), timeout_s=timeout_s)

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 90.0) -> None:
        """Wait until something holds."""
        await self.world.until(condition, timeout_s=timeout_s)

    def n_seen(self, kind: str, about: str = "") -> int:
        """How often nodes saw something."""
        return sum(what == kind and about in ("", whom) for _, what, whom in self.seen)

    async def _run(self, node: GossipNode, scope: trio.CancelScope, task_status: trio.TaskStatus[Any]) -> None:
        await node.run(task_status=task_status)
        scope.cancel()

    async def _note(self, name: str, node: GossipNode) -> None:
        async for event in node.events():
            self.events.append((name, event))
            if isinstance(event, MemberEvent):
                self.seen.append((name, type(event).__name__.removeprefix("Member").lower(), event.member.name))


def status_of(node: GossipNode) -> dict[str, str]:
    """What a node believes of all."""
    return {member.name: member.status for member in node.members()}


@asynccontextmanager
async def node_world(seed: int = 1) -> AsyncIterator[NodeWorld]:
    """A world of nodes, and no bug that a listener swallowed."""
    async with SimWorld(seed, tolerated=(HostError, NameConflict)) as world:
        yield NodeWorld(world)
        assert world.handler_errors == []


__all__ = ["PORT", "NodeWorld", "node_world", "status_of"]
