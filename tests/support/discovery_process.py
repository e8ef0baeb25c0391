"""Self-discovery of one host as a process: prints, as JSON lines, when it began and which living members it sees then.

python -m tests.support.discovery_process NAME STATE_DIR '{"cluster": ..., "given": [...], "mdns": ...}'
"""

from __future__ import annotations

import json
import sys
import time

import trio

from beeyard.discovery.peers.url import parse_peer
from beeyard.discovery.self_discovery import ROLE_TAG, SelfDiscovery
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime import real

PORT = 3388


def say(**line: object) -> None:
    print(json.dumps({"at_s": time.monotonic(), **line}), flush=True)


async def main(name: str, state_dir: str, options: dict[str, object]) -> None:
    """Until it is killed."""
    given = options.pop("given", [])
    assert isinstance(given, list)
    discovery = SelfDiscovery(
        real.host(hostname=name),
        node_name=name,
        state_dir=state_dir,
        cluster=str(options.pop("cluster", "a" * 50)),
        tags=lambda _: {ROLE_TAG: "agent"},
        port=PORT,
        given=[parse_peer(peer, PORT) for peer in given],
        advertise=str(options.pop("advertise", "")),
        settings=DiscoverySettings(**options),  # type: ignore[arg-type]
    )
    async with trio.open_nursery() as nursery:
        say(event="began")
        await nursery.start(discovery.run)
        while True:
            say(members=[member.name for member in discovery.node.members() if member.status == "alive"])
            await discovery.changed()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
