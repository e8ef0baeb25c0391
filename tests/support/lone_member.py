"""A member of gossip like an agent's: `python -m tests.support.lone_member NAME DIRECTORY DIGEST PORT PEER`."""

from __future__ import annotations

import sys

import trio

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.self_discovery import ROLE_TAG, SelfDiscovery
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime import real


async def main(name: str, directory: str, digest: str, port: str, peer: str) -> None:
    """Gossip until it is killed."""
    host, _, peer_port = peer.rpartition(":")
    member = SelfDiscovery(
        real.host(),
        node_name=name,
        state_dir=f"{directory}/{name}",
        cluster=digest,
        tags=lambda own: {ROLE_TAG: "agent"},
        port=int(port),
        given=[Address(host, int(peer_port))],
        settings=DiscoverySettings(mdns="", scan=False),
    )
    await member.run()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
