"""What every place where lists are published offers, and what publishing needs of others.

A *list* is what one manager has published under its own key with a lease, or one entry that classic Swarm wrote. Contents are
always whole: whoever follows gets all lists each time, never differences, so a lost notice costs time and not truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from beeyard.core.errors import PeerError

# Owner to its entries. Owners of lists are managers; what classic Swarm or a person wrote stands under `OTHERS`.
Contents = Mapping[str, tuple[str, ...]]
OTHERS = ""


class LeaseLost(PeerError):
    """The lease ran out, or somebody took it away: what was written with it is gone; take another one."""


class Lease(Protocol):
    """The right to one key for a while. It ends by itself when it is not renewed."""

    async def put(self, entries: Sequence[str]) -> None:
        """Write our list, whole. Idempotent: yes.

        Raises:
            LeaseLost, PeerError, HostError
        """

    async def renew(self) -> None:
        """Stay for another full time; called at least each third of it. Idempotent: yes.

        Raises:
            LeaseLost, PeerError, HostError
        """

    async def revoke(self) -> None:
        """End it, and the list with it, at once. Idempotent: yes.

        Raises:
            PeerError, HostError: it ends by itself after its time.
        """

    async def aclose(self) -> None:
        """Give up what we hold of it here, as when we are killed: the list stays until the lease has run out."""


class Backend(Protocol):
    """One place where lists are published."""

    async def read(self) -> Contents:
        """All that is published now.

        Raises:
            PeerError, HostError
        """

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """Call `seen` with what is published now, and again within 1 s of each change, until cancelled.

        Raises:
            PeerError, HostError: nothing more is known; what was seen last is not wrong for that.
        """

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """Take the key of `owner`, also from an earlier life of it, which changes nothing that is written there.

        Raises:
            PeerError, HostError
            Unsupported: nothing can be published here.
        """

    async def aclose(self) -> None:
        """Close connections. Leases that were not revoked run out."""


class LocalMembers(Protocol):
    """The members of the local cluster, as gossip knows them: what a manager publishes."""

    def members(self) -> Sequence[str]:
        """HOST:PORT of the gossip of each member that is alive, this host's own included."""

    async def changed(self) -> None:
        """Return when `members` may have changed since it was called last; at once if that is so already."""


class PeerSource(Protocol):
    """Somewhere to learn addresses of peers from; `published.peers` makes one from a discovery URL."""

    async def peers(self) -> Sequence[str]:
        """HOST:PORT of the gossip of members, as far as known.

        Raises:
            PeerError, HostError
        """


__all__ = ["OTHERS", "Backend", "Contents", "Lease", "LeaseLost", "LocalMembers", "PeerSource"]
