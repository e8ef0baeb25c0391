"""A gossip member as a process of its own, for `gossip_side_by_side`: orders come in on stdin, what it sees goes to stdout.

    python -m benchmarks.gossip_member NAME HOST:PORT

Orders, a line each: `join HOST:PORT`, `event NAME`, `leave`, `figures`. What it says: `KIND NAME`, a line each.
"""

from __future__ import annotations

import sys

import trio

from beeyard.core.errors import PeerError
from beeyard.discovery.gossip.config import GossipConfig
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.gossip.serf.event import MemberEvent, UserEventCame
from beeyard.runtime import real


def say(*words: object) -> None:
    """One line, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def tell(node: GossipNode) -> None:
    """What happens, as it happens."""
    async for event in node.events():
        if isinstance(event, MemberEvent):
            say(type(event).__name__.removeprefix("Member").lower(), event.member.name)
        elif isinstance(event, UserEventCame):
            say("event", event.name)


async def obey(node: GossipNode, scope: trio.CancelScope) -> None:
    """Orders, until there are no more."""
    async with trio.open_nursery() as nursery:
        rest = b""
        stdin = trio.lowlevel.FdStream(0)
        async for data in stdin:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                nursery.start_soon(do, node, scope, line.decode().split())
    scope.cancel()


async def do(node: GossipNode, scope: trio.CancelScope, words: list[str]) -> None:
    """One order."""
    match words:
        case ["join", address]:
            host, _, port = address.rpartition(":")
            try:
                await node.join([Address(host, int(port))])
            except PeerError as error:
                say("trouble", error)
        case ["event", name]:
            node.send_event(name, coalesce=False)
        case ["leave"]:
            await node.leave()
            scope.cancel()
        case ["figures"]:
            say("figures", node.figures())


async def main() -> None:
    """Be a member until told to leave."""
    name, address = sys.argv[1:]
    host, _, port = address.rpartition(":")
    async with trio.open_nursery() as nursery:
        node = GossipNode(real.host(hostname=name), GossipConfig(name=name, bind=host, port=int(port)))
        await nursery.start(node.run)
        nursery.start_soon(tell, node)
        say("started", name)
        nursery.start_soon(obey, node, nursery.cancel_scope)


if __name__ == "__main__":
    trio.run(main)
