"""The addresses that this host has on networks where peers may be."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec
import structlog

from beeyard.core.errors import PeerError
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.host import Host
from beeyard.runtime.link_groups import OWN_GROUP, PORT_GROUP

_DUMP = nl.NLM_F_REQUEST | nl.NLM_F_DUMP
_LINKS = nl.message(nl.RTM_GETLINK, _DUMP, nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0))
_ADDRESSES = nl.message(nl.RTM_GETADDR, _DUMP, nl.ADDRESS_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0))
_RUNS = nl.IFF_UP | nl.IFF_LOWER_UP
# Source: <linux/if_addr.h> IFA_F_SECONDARY (of IPv6: temporary), IFA_F_DEPRECATED, IFA_F_TENTATIVE.
_UNFIT = 0x01 | 0x20 | 0x40
_SCOPE_GLOBAL = 0
# Any address outside: nothing is sent there, the routes are asked. Source: RFC 5737, for documentation.
_OUTSIDE = "192.0.2.1"

log = structlog.get_logger(__name__)


class OwnAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address of this host and the network that it is in."""

    interface: str
    address: str
    prefix_length: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network on that interface."""
        return ipaddress.ip_network(f"{self.address}/{self.prefix_length}", strict=False)

    def __str__(self) -> str:
        return f"{self.address} on {self.interface}" if self.interface else self.address


async def own_addresses(host: Host) -> list[OwnAddress]:
    """Those by which others may reach this host, IPv4 first: global, primary, on a link that has a carrier.

    Loopback and the links that tasks got are left out. Where the kernel tells nothing, it is the one that leads outside.
    """
    found = await _listed(host, _RUNS)
    if not found:
        try:
            found = [OwnAddress(interface="", address=await host.net.source_to(_OUTSIDE), prefix_length=32)]
        except PeerError:
            return []
    return sorted(found, key=lambda own: (":" in own.address, own.interface, own.address))


async def configured_addresses(host: Host) -> list[str]:
    """The same with those on links that have no carrier now; none where the kernel tells nothing."""
    return [own.address for own in await _listed(host, 0)]


async def _listed(host: Host, flags: int) -> list[OwnAddress]:
    """Those on links that have these flags, as the kernel lists them."""
    try:
        links = _usable_links(await host.netlink.request(_LINKS), flags)
        return _addresses_on(links, await host.netlink.request(_ADDRESSES))
    except OSError as error:
        log.debug("the addresses of this host cannot be listed", reason=str(error))
        return []


def candidates(addresses: Sequence[OwnAddress]) -> list[OwnAddress]:
    """Those that a daemon may be known by: IPv4, and IPv6 on a host that has nothing else."""
    return [own for own in addresses if ":" not in own.address] or list(addresses)


def _usable_links(replies: Sequence[bytes], wanted: int) -> dict[int, str]:
    """Names of links by index, of those that have all flags of `wanted`."""
    links = {}
    for part in (part for reply in replies for part in nl.split(reply) if part.type == nl.RTM_NEWLINK):
        _, _, index, flags, _ = nl.LINK_BODY.unpack_from(part.payload)
        found = nl.attributes(part.payload, nl.LINK_BODY.size)
        group = nl.as_u32(found[nl.IFLA_GROUP]) if nl.IFLA_GROUP in found else 0
        if flags & wanted == wanted and not flags & nl.IFF_LOOPBACK and group not in (OWN_GROUP, PORT_GROUP):
            links[index] = nl.as_text(found.get(nl.IFLA_IFNAME, b""))
    return links


def _addresses_on(links: dict[int, str], replies: Sequence[bytes]) -> list[OwnAddress]:
    addresses = []
    for part in (part for reply in replies for part in nl.split(reply) if part.type == nl.RTM_NEWADDR):
        _, prefix_length, flags, scope, index = nl.ADDRESS_BODY.unpack_from(part.payload)
        found = nl.attributes(part.payload, nl.ADDRESS_BODY.size)
        packed = found.get(nl.IFA_LOCAL) or found.get(nl.IFA_ADDRESS) or b""
        if index in links and scope == _SCOPE_GLOBAL and not flags & _UNFIT and len(packed) in (4, 16):
            address = ipaddress.ip_address(packed)
            if not (address.is_link_local or address.is_loopback or address.is_multicast or address.is_unspecified):
                addresses.append(OwnAddress(interface=links[index], address=str(address), prefix_length=prefix_length))
    return addresses


__all__ = ["OwnAddress", "candidates", "configured_addresses", "own_addresses"]
