"""Self-discovery of a manager: the member of the gossip cluster by which agents learn where it is."""

from __future__ import annotations

from collections.abc import Mapping

from beeyard.discovery.peers.url import parse_peer
from beeyard.discovery.self_discovery import MANAGER_TAG, ROLE_TAG, SelfDiscovery
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Host

_EVERYWHERE = ("0.0.0.0", "::")


def manager_gossip(host: Host, config: ManagerConfig, cluster: str, listens_at: str) -> SelfDiscovery:
    """The gossip of a manager, not yet started.

    Args:
        cluster: digest of the cluster's CA.
        listens_at: where agents connect, "tcp://0.0.0.0:2377".

    Raises:
        InvalidSpec: one of `discovery.peers` is no address.
    """
    advertised = parse_address(config.advertise) if config.advertise else None
    port = config.self_discovery_port
    return SelfDiscovery(
        host,
        # Beside the agent of the same host, which goes by the node's name.
        node_name=f"{config.node_name or host.hostname}.manager",
        state_dir=config.state_dir,
        cluster=cluster,
        tags=lambda own: _tags(config.advertise or listens_at, own),
        port=port,
        given=[parse_peer(peer, port) for peer in config.discovery.peers],
        advertise=_bracketed(advertised.host) if isinstance(advertised, TcpAddress) else "",
        settings=config.discovery,
    )


class GossipDoubts:
    """What gossip doubts, as the dispatcher wants it: see `dispatch.doubt.Doubts`."""

    def __init__(self, discovery: SelfDiscovery) -> None:
        self._discovery = discovery

    def doubted(self) -> Mapping[str, bool]:
        """Members that are suspected, or have failed (True), by name."""
        node, doubted = self._discovery.node, dict[str, bool]()
        if self._discovery.rests:
            return doubted
        for member in self._discovery.members():
            if member.status == "failed":
                doubted[member.name] = True
            elif member.status == "alive" and node.is_suspect(member.name):
                doubted[member.name] = False
        return doubted


def _tags(address: str, own_host: str) -> Mapping[str, str]:
    """Where the manager is: one that listens on every address is at the one by which gossip knows it."""
    found = parse_address(address)
    assert isinstance(found, TcpAddress)
    host = own_host if found.host in _EVERYWHERE else found.host
    return {ROLE_TAG: "manager", MANAGER_TAG: f"{_bracketed(host)}:{found.port}"}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


__all__ = ["GossipDoubts", "manager_gossip"]
