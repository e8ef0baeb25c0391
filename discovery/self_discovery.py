"""Self-discovery as one part of a daemon: a gossip node that finds its peers and remembers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from beeyard.discovery.gossip.message import Address, MemberRecord
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime.host import Host

if TYPE_CHECKING:
    from beeyard.discovery.gossip.node import GossipNode

# Tags of a member. The cluster's is the digest of its CA, as in a join token: what keeps clusters apart, and no secret.
CLUSTER_TAG = "cluster"
ROLE_TAG = "role"  # "agent" or "manager"
MANAGER_TAG = "manager"  # of a manager: HOST:PORT at which agents reach it
NODE_TAG = "node"  # of an agent: the id of its node once it has one


class SelfDiscovery:
    """See the module. `node` and what asks it are there once `run` has started.

    Args:
        node_name: the member's name, one in the cluster.
        state_dir: where the peers that are known are kept.
        cluster: digest of the cluster's CA; members of another cluster are neither merged nor shown.
        tags: more of this member's tags.
        port: where to gossip, by UDP and TCP. When another daemon of this host has it, the next free one is taken, and that
            daemon is joined.
        given: HOST:PORT of peers to begin with.
        advertise: the address to be known by, HOST or HOST:PORT; "": the one that leads to a peer.
    """

    def __init__(
        self,
        host: Host,
        *,
        node_name: str,
        state_dir: str,
        cluster: str,
        tags: Mapping[str, str],
        port: int,
        given: Sequence[str] = (),
        advertise: str = "",
        settings: DiscoverySettings = DiscoverySettings(),
    ) -> None: ...

    @property
    def node(self) -> GossipNode:
        """The running gossip node: events, queries, keys."""
        raise NotImplementedError

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Gossip and look for peers until cancelled; started, with the advertised address, once others can find this one.

        It waits for no peer. Being cancelled is no leave: `leave` first.

        Raises:
            InvalidSpec: several addresses could be advertised and none was named; lists them.
            HostError: no port can be bound.
        """

    def members(self) -> Sequence[MemberRecord]:
        """All members of this cluster by name, this one included, whatever their status (1 alive, 3 left, 4 failed)."""
        raise NotImplementedError

    def managers(self) -> list[str]:
        """ "tcp://HOST:PORT" of every living manager that gossip tells of, in an order of this member's own.

        Nobody vouches for them: whoever connects checks the CA.
        """
        raise NotImplementedError

    async def changed(self) -> None:
        """Wait until `members` or `managers` gives something else than at the moment of the call."""

    async def set_tags(self, tags: Mapping[str, str]) -> None:
        """Have these tags instead of those given at the start; the cluster's stays."""

    async def leave(self) -> None:
        """Tell the others that this member leaves on purpose; returns when they know, after seconds at most."""


__all__ = ["CLUSTER_TAG", "MANAGER_TAG", "NODE_TAG", "ROLE_TAG", "SelfDiscovery"]
