"""Hosts on a simulated LAN that find each other, without the daemons around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import trio

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.self_discovery import ROLE_TAG, SelfDiscovery
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_gate import MachineParts
from beeyard.runtime.sim_parts import FakeParts

OURS = "a" * 50  # digest of a CA
STATE_DIR = "/var/lib/beeyard/agent"


@dataclasses.dataclass
class Member:
    """One daemon's self-discovery. `discovery` is that of its newest life."""

    name: str
    discovery: SelfDiscovery | None = None
    started_at_s: float = 0.0

    def seen(self) -> list[str]:
        """Names of the living members of its cluster, as it sees them."""
        if self.discovery is None or self.discovery._node is None:
            return []
        return [member.name for member in self.discovery.members() if member.status == "alive"]


class GossipWorld(SimWorld):
    """A world of hosts with a kernel each, where any number of members can be started."""

    def __init__(self, seed: int, *, parts: Callable[[SimMachine], MachineParts] = FakeParts) -> None:
        super().__init__(seed, parts=parts)
        self.members: dict[str, Member] = {}

    def begin(
        self,
        name: str,
        *,
        machine: str = "",
        called: str = "",
        cluster: str = OURS,
        given: Sequence[Address] = (),
        advertise: str = "",
        port: int = 3388,
        settings: DiscoverySettings | None = None,
        tags: Callable[[str], dict[str, str]] = lambda _: {ROLE_TAG: "agent"},
    ) -> Member:
        """Start a member on a machine of its own name, or on another, also with a member's name that is not its own."""
        member = self.members[name] = Member(name)

        async def daemon(host: Host) -> None:
            discovery = SelfDiscovery(
                host,
                node_name=called or name,
                state_dir=f"{STATE_DIR}/{called or name}",
                cluster=cluster,
                tags=tags,
                port=port,
                given=given,
                advertise=advertise,
                settings=settings,
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(discovery.run)
                member.discovery = discovery
                member.started_at_s = trio.current_time()

        self.start(name, daemon, machine=machine)
        return member

    def are_one(self, *names: str) -> bool:
        """Whether each of these sees exactly these."""
        return all(self.members[name].seen() == sorted(names) for name in names)

    async def until_one(self, *names: str, within_s: float) -> None:
        """Wait until they are one cluster."""
        await self.until(lambda: self.are_one(*names), timeout_s=within_s, every_s=0.01)
