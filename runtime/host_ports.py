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


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A multicast group to hear, on one interface by its name; "": the one that the kernel picks."""

    address: str
    interface: str = ""


class Multicast(msgspec.Struct, frozen=True, kw_only=True):
    """What a datagram socket does with multicast.

    `groups` are joined; whichever cannot be is left out and logged (an interface may have gone). What is sent to a group
    leaves by `interface` ("": the kernel picks) with `hops` as its TTL; programs on this machine hear it too. `share`: others
    on this machine may be bound to the same port, as several responders of mDNS are, and each hears what goes to a group.
    """

    groups: Sequence[Group] = ()
    interface: str = ""
    hops: int = 255  # Source: RFC 6762, 11: mDNS sends with an IP TTL of 255.
    share: bool = True


class Datagrams(Protocol):
    """A bound datagram socket. Addresses are (host, port): IPv4, or IPv6 without brackets and, where link-local, with %ZONE.

    Nothing that one peer does or lacks is felt with another: an ICMP error that comes back is dropped by both directions.
    """

    @property
    def address(self) -> tuple[str, int]:
        """Where it is bound, with the port that the kernel chose for port 0."""

    def send_nowait(self, to: tuple[str, int], data: bytes) -> bool:
        """Send one datagram, of which nobody promises that it arrives; no checkpoint.

        Returns:
            False when it was surely not sent: no route, too long, not permitted, or no room in the send buffer right now.
        """

    async def send(self, to: tuple[str, int], data: bytes) -> bool:
        """As `send_nowait`, but waits for room in the send buffer."""

    async def receive(self) -> tuple[bytes, tuple[str, int]]:
        """The next datagram, whole, and who sent it. Cancellation: nothing is lost.

        Raises:
            trio.ClosedResourceError: it is or was closed, perhaps meanwhile.
        """

    def receive_nowait(self) -> tuple[bytes, tuple[str, int]]:
        """As `receive`, for taking all that is there in one turn.

        Raises:
            trio.WouldBlock: there is none.
        """

    async def aclose(self) -> None:
        """Idempotent: yes."""


__all__ = ["Datagrams", "Firewall", "Forward", "Group", "Multicast", "Sockets"]
