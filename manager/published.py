"""Published lists as a part of the manager: its own list goes to a discovery URL, and all that is there is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import trio

from beeyard.discovery.gossip.serf.event import Member
from beeyard.discovery.published.backend import OTHERS, Contents, LocalMembers
from beeyard.discovery.published.places import open_backend
from beeyard.discovery.published.publisher import Publisher
from beeyard.discovery.published.union import Union
from beeyard.discovery.published.url import DiscoveryUrl, parse_url
from beeyard.discovery.self_discovery import ROLE_TAG
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.host import Host


class Gossip(Protocol):
    """What of self-discovery matters here."""

    def members(self) -> Sequence[Member]:
        """All members that are known, whatever their status."""

    async def changed(self) -> None:
        """Wait until `members` gives something else than at the moment of the call."""


class GossipMembers:
    """`LocalMembers` of a gossip cluster."""

    def __init__(self, gossip: Gossip) -> None:
        self._gossip = gossip
        self.changed = gossip.changed

    def members(self) -> Sequence[str] | None:
        """See `LocalMembers.members`: the hosts that run tasks. A manager is no node, and gossips beside its host's agent."""
        alive = [member for member in self._gossip.members() if member.status == "alive"]
        return [str(member.address) for member in alive if member.tags.get(ROLE_TAG) != "manager"] if alive else None


def owner_name(node_name: str, manager_node_id: str) -> str:
    """Under which a manager publishes: for people to know it by, and the only one of it anywhere."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", node_name).strip(".-_")[:64] or "manager"
    return f"{readable}-{manager_node_id[:10]}"


class PublishedLists:
    """See the module.

    Args:
        owner: see `owner_name`.
        members: what to publish; None: this manager only reads what others publish.

    Raises:
        InvalidSpec: the discovery URL is none.
        HostError: files of its TLS cannot be read.
    """

    def __init__(self, host: Host, config: ManagerConfig, owner: str, members: LocalMembers | None) -> None:
        self.url: DiscoveryUrl = parse_url(config.discovery_url, config.discovery_options)
        name, ttl_s = self.url.shown, config.discovery_ttl_s
        self._backend = open_backend(self.url, host, ttl_s=ttl_s)
        self._union = Union(self._backend, name, host.rng, grace_s=ttl_s)
        self.publisher: Publisher | None = None
        if members is not None and self.url.can_publish:
            self.publisher = Publisher(self._backend, name, members, owner, host.rng, ttl_s=ttl_s)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; the own list is taken away then. Nobody waits for a server: it is started at once."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._union.run)
                if self.publisher is not None:
                    nursery.start_soon(self.publisher.run)
                task_status.started()
        finally:
            with trio.move_on_after(1.0, shield=True):
                await self._backend.aclose()

    @property
    def union(self) -> Union:
        """What all managers have published."""
        return self._union

    @property
    def lists(self) -> Contents:
        """Owner to its list; `OTHERS`: what no manager of Beeyard wrote."""
        return self._union.lists

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator should know now."""
        found = []
        if self._union.error:
            n_nodes = len(self._union.entries())
            kept = f"the {n_nodes} nodes known are kept" if self._union.is_known else "nothing is known yet"
            found.append(f"cannot read {self.url.shown}: {self._union.error}; {kept}")
        if self.publisher is not None and self.publisher.error:
            found.append(f"cannot publish at {self.url.shown}: {self.publisher.error}")
        return found


__all__ = ["OTHERS", "Gossip", "GossipMembers", "PublishedLists", "owner_name"]
