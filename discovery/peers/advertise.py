"""By which of its addresses this host is known to its peers.

In this order: the one that was named; the only one there is; the one that leads to a peer, be it given, known from earlier
or found by asking around. Several and no peer is an error: a wrong guess would make a member that nobody reaches, later.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence

from beeyard.core.errors import HostError, InvalidSpec, PeerError
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers.own_addresses import OwnAddress, candidates
from beeyard.discovery.peers.url import parse_peer
from beeyard.runtime.host import Net

AskAround = Callable[[], Awaitable[Sequence[Address]]]


async def named(net: Net, text: str, port: int) -> Address:
    """The address that `advertise` names, HOST or HOST:PORT; `port` where it has none.

    Raises:
        InvalidSpec: it is not one by which others can reach this host.
    """
    try:
        wanted = parse_peer(text, port)
        host = (await net.resolve(wanted.host))[0]
    except (InvalidSpec, PeerError) as error:
        raise InvalidSpec("advertise", f"{text!r} is no address of this host: {error}") from error
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified or address.is_loopback or address.is_multicast:
        raise InvalidSpec("advertise", f"{text!r} is {host}, at which no other host reaches this one")
    return Address(host, wanted.port)


async def chosen(
    net: Net, own: Sequence[OwnAddress], peers: Sequence[Address], ask_around: AskAround, *, must_lead: bool = False
) -> str:
    """One of the host's own addresses.

    Args:
        peers: given or known ones, which need not answer; the first to which a route leads decides.
        ask_around: gives those that are found by asking, when nothing else tells.
        must_lead: the only one there is has to lead to a peer as well.

    Raises:
        InvalidSpec: there are several, or one that must lead, and nothing tells which does; lists them.
        HostError: there is none.
    """
    fit = candidates(own)
    if not fit:
        raise HostError("this host has no address at which others could reach it: give it one, or name it in advertise")
    if len(fit) == 1 and not must_lead:
        return fit[0].address
    known = {address.address for address in own}
    if found := await _towards(net, peers, known):
        return found
    if found := await _towards(net, await ask_around(), known):
        return found
    listed = ", ".join(str(address) for address in fit)
    raise InvalidSpec(
        "advertise",
        f"this host has {'several addresses' if fit[1:] else 'one address'} and no peer was found to which "
        f"{'one of them' if fit[1:] else 'it'} leads: {listed}; name one",
    )


async def _towards(net: Net, peers: Sequence[Address], known: set[str]) -> str:
    """The own address from which the first of the peers is reached; "" when none is."""
    for peer in peers:
        try:
            for host in await net.resolve(peer.host):
                source = await net.source_to(host)
                # The way to an address of this host itself says nothing about others.
                if source in known and host not in known:
                    return source
        except PeerError:
            continue
    return ""


__all__ = ["AskAround", "chosen", "named"]
