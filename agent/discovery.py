"""Self-discovery of an agent: a member of the gossip cluster that tells of its node and learns where managers are."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from beeyard.agent.config import AgentConfig
from beeyard.agent.describe import Describer
from beeyard.agent.manager_list import ManagerList
from beeyard.discovery.gossip.control import offer_control
from beeyard.discovery.gossip.membership import MembershipReport
from beeyard.discovery.peers.url import parse_peer, parse_search
from beeyard.discovery.self_discovery import NODE_TAG, ROLE_TAG, SelfDiscovery
from beeyard.runtime.host import Host


class AgentDiscovery:
    """Gossip beside the agent's other work. Without `self://` or `serf://` among the managers it does nothing."""

    def __init__(self, host: Host, config: AgentConfig, cluster: str, node_id: str) -> None:
        search = parse_search(config.managers)
        peers = [] if search is None else [parse_peer(peer, search.port) for peer in config.discovery.peers]
        self._host = host
        self._control_socket = config.gossip_socket
        self.gossip: SelfDiscovery | None = None
        if search is not None:
            self.gossip = SelfDiscovery(
                host,
                node_name=config.node_name or host.hostname,
                state_dir=config.state_dir,
                cluster=cluster,
                tags=lambda _: _tags(node_id),
                port=search.port,
                given=[*search.given, *peers],
                advertise=config.advertise,
                settings=config.discovery,
            )

    async def start(self, nursery: trio.Nursery, managers: ManagerList, describer: Describer) -> None:
        """Gossip from now on; the managers that it tells of are tried too, and it is part of what the host is.

        Raises:
            InvalidSpec: there are several addresses to be known by.
            HostError: there is no port.
        """
        if self.gossip is not None:
            await nursery.start(self.gossip.run)
            managers.also(self.gossip.managers, self.gossip.changed)
            node = self.gossip.node
            describer.membership = MembershipReport(node)
            await nursery.start(offer_control, self._host.net, node, self._control_socket)

    async def joined(self, node_id: str) -> None:
        """This host has become a node."""
        if self.gossip is not None:
            await self.gossip.set_tags(_tags(node_id))

    async def leave(self) -> None:
        """Say farewell, for a few seconds at most."""
        if self.gossip is not None:
            await self.gossip.leave()

    def summary(self) -> str:
        """How many hosts are found, in words; "" without self-discovery."""
        if self.gossip is None:
            return ""
        n_alive = sum(member.status == "alive" for member in self.gossip.members())
        return f"{n_alive} member{'' if n_alive == 1 else 's'} by gossip"


def _tags(node_id: str) -> Mapping[str, str]:
    return {ROLE_TAG: "agent", NODE_TAG: node_id} if node_id else {ROLE_TAG: "agent"}


__all__ = ["AgentDiscovery"]
