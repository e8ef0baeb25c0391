"""The ports to what this host does with ports of its own. See `runtime.host`, which has the whole list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from beeyard.core.model import HostPort


class Forward(msgspec.Struct, frozen=True, kw_only=True, gc=False, order=True):
    """A port of this host in one family, and the port of the task to which it leads."""

    protocol: str  # "tcp", "udp" or "sctp"
    published: int
    address: str  # the task's, IPv4 or IPv6
    target: int


class Firewall(Protocol):
    """Translation of addresses on this host. `table` names what belongs to one agent; nothing else is ever touched."""

    async def fault(self) -> str:
        """Why this host cannot forward ports, such as a package that is missing; "" when it can."""

    async def forwards(self, table: str) -> list[Forward]:
        """What a table forwards now, sorted; empty when there is no such table.

        Raises:
            FirewallError
        """

    async def apply(self, table: str, forwards: Iterable[Forward], links: str) -> None:
        """Forward exactly these, keeping the client's address, in one step: nobody sees half of it.

        With the first the host begins to forward packets to links whose names begin with `links`, and only what was
        translated for them; with none left it is as it was before.

        Raises:
            FirewallError: says why. The table is what it was, or, when a setting of the host could not be changed, what it
                was to be: whoever gets this does not know, and applies again what is right by then.
        """

    async def intact(self, table: str) -> bool:
        """Whether what a table restricts is as `apply` left it, beside its forwards; True before the first `apply`.

        False is said once; then the table has to be applied anew.

        Raises:
            FirewallError
        """

    async def changed(self, table: str) -> None:
        """Wait until somebody else has changed or removed a table, or may have; for ever where a host cannot tell."""

    async def answer_from(self, netns: str, interface: str, addresses: Sequence[str]) -> None:
        """Have a task's datagrams answer from the address at which they were asked, though its socket has none.

        Raises:
            FirewallError
        """

    async def forget(self, forwards: Sequence[Forward]) -> None:
        """Forget flows that began before these forwards: they would go on to where they went, or nowhere. Never raises."""


class Sockets(Protocol):
    """Sockets on this host that are not the cluster's business, but take ports."""

    async def listening(self) -> list[HostPort]:
        """Ports on which something accepts connections or datagrams, sorted.

        Datagram sockets with a port that the kernel chooses for clients are left out: those come and go.
        """

    async def probe(self, port: HostPort) -> str:
        """Who has a port of this host: "" when it is free, else words such as "nginx (pid 812)"."""


__all__ = ["Firewall", "Forward", "Sockets"]
