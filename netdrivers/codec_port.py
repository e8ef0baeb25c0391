"""Requests to the kernel about port links as bytes: veth pairs, routes of a table of their own, rules. Pure.

See `netdrivers.codec` for the others. Source: Linux include/uapi/linux/veth.h, fib_rules.h.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from beeyard.netdrivers.codec import Address
from beeyard.runtime import netlink_format as nl

RTM_NEWRULE = 32
FRA_SRC, FRA_PRIORITY = 2, 6
FR_ACT_TO_TBL = 1
VETH_INFO_PEER = 1

_ACK = nl.NLM_F_REQUEST | nl.NLM_F_ACK
_CREATE = _ACK | nl.NLM_F_CREATE | nl.NLM_F_EXCL


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """A link of the host with what its maker wrote on it."""

    index: int
    name: str
    group: int
    alias: str
    mtu: int
    up: bool


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a pair."""

    name: str
    index: int
    mac: str


def create_veth(here: End, there: End, *, group: int, mtu: int, netns_fd: int) -> bytes:
    """Create a pair of links, down: one here, and its peer straight in another namespace.

    Both indices are chosen by us, for the kernel takes the peer's only when it is given the other one too.
    Source: veth_newlink in drivers/net/veth.c.
    """
    peer_body = nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, there.index, 0, 0)
    peer_body += _named(there, mtu) + nl.u32(nl.IFLA_NET_NS_FD, netns_fd)
    info = nl.text(nl.IFLA_INFO_KIND, "veth") + nl.attribute(nl.IFLA_INFO_DATA, nl.attribute(VETH_INFO_PEER, peer_body))
    attributes = _named(here, mtu) + nl.u32(nl.IFLA_GROUP, group) + nl.attribute(nl.IFLA_LINKINFO, info)
    return nl.message(nl.RTM_NEWLINK, _CREATE, nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, here.index, 0, 0) + attributes)


def _named(end: End, mtu: int) -> bytes:
    mac = nl.attribute(nl.IFLA_ADDRESS, nl.mac_bytes(end.mac))
    return nl.text(nl.IFLA_IFNAME, end.name) + mac + nl.u32(nl.IFLA_MTU, mtu)


def write_alias(index: int, alias: str) -> bytes:
    """Write on a link what it is for."""
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, 0, 0) + nl.attribute(nl.IFLA_IFALIAS, alias.encode())
    return nl.message(nl.RTM_SETLINK, _ACK, body)


def default_route(index: int, gateway: Address, *, table: int, metric: int = 0) -> bytes:
    """Send everything that looks into a table through a gateway."""
    family = nl.AF_INET if gateway.version == 4 else nl.AF_INET6
    body = nl.ROUTE_BODY.pack(family, 0, 0, 0, table, nl.RTPROT_STATIC, nl.RT_SCOPE_UNIVERSE, nl.RTN_UNICAST, 0)
    body += nl.attribute(nl.RTA_GATEWAY, gateway.packed) + nl.u32(nl.RTA_OIF, index)
    return nl.message(nl.RTM_NEWROUTE, _CREATE, body + (nl.u32(nl.RTA_PRIORITY, metric) if metric else b""))


def rule_from(source: Address, *, table: int, priority: int) -> bytes:
    """Look into a table for what is sent from an address."""
    family, bits = (nl.AF_INET, 32) if source.version == 4 else (nl.AF_INET6, 128)
    # struct fib_rule_hdr: family, dst length, src length, tos, table, two reserved, action, flags.
    body = nl.ROUTE_BODY.pack(family, 0, bits, 0, table, 0, 0, FR_ACT_TO_TBL, 0)
    body += nl.attribute(FRA_SRC, source.packed) + nl.u32(FRA_PRIORITY, priority)
    return nl.message(RTM_NEWRULE, _CREATE, body)


def read_marked(replies: Iterable[bytes]) -> list[Marked]:
    """The links among the messages of a reply, with group and alias."""
    return [_read(m.payload) for reply in replies for m in nl.split(reply) if m.type == nl.RTM_NEWLINK]


def _read(payload: bytes) -> Marked:
    _, arp_type, index, flags, _ = nl.LINK_BODY.unpack_from(payload)
    found = nl.attributes(payload, nl.LINK_BODY.size)
    return Marked(
        index=index,
        name=nl.as_text(found.get(nl.IFLA_IFNAME, b"")),
        group=nl.as_u32(found[nl.IFLA_GROUP]) if nl.IFLA_GROUP in found else 0,
        alias=nl.as_text(found.get(nl.IFLA_IFALIAS, b"")),
        mtu=nl.as_u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found and arp_type == nl.ARPHRD_ETHER else 0,
        up=bool(flags & nl.IFF_UP),
    )
