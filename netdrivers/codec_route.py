"""Requests to the kernel about routes and neighbours as bytes, and its routes as data. Pure. See `netdrivers.codec`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from beeyard.netdrivers.codec import Address
from beeyard.runtime import netlink_format as nl

Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network

_ACK = nl.NLM_F_REQUEST | nl.NLM_F_ACK
_CREATE = _ACK | nl.NLM_F_CREATE | nl.NLM_F_EXCL
_REPLACE = _ACK | nl.NLM_F_CREATE | nl.NLM_F_REPLACE
_DUMP = nl.NLM_F_REQUEST | nl.NLM_F_DUMP


class RouteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A unicast route of one namespace's main table."""

    destination: Subnet
    protocol: int  # who made it: RTPROT_…, or a number of our own
    index: int = 0  # of the link it leaves through; 0: several
    gateway: Address | None = None
    metric: int = 0


def add_default_route(index: int, gateway: Address | None, metric: int, *, version: int = 0) -> bytes:
    """Send everything without a better route through the gateway. The smaller metric wins among several.

    Without a gateway everything is taken to be on the link itself, which is so where no ARP is spoken (ipvlan l3).
    `version` is then that of the addresses to send, 4 or 6.
    """
    family = nl.AF_INET if (gateway.version if gateway else version) == 4 else nl.AF_INET6
    scope = nl.RT_SCOPE_LINK if gateway is None and family == nl.AF_INET else nl.RT_SCOPE_UNIVERSE
    attributes = nl.attribute(nl.RTA_GATEWAY, gateway.packed) if gateway else b""
    attributes += nl.u32(nl.RTA_OIF, index) + nl.u32(nl.RTA_PRIORITY, metric)
    return _route(nl.RTM_NEWROUTE, _CREATE, family, 0, nl.RTPROT_STATIC, scope, attributes)


def set_route(
    destination: Subnet,
    *,
    index: int,
    protocol: int,
    gateway: Address | None = None,
    source: Address | None = None,
    metric: int = 0,
) -> bytes:
    """A route to a subnet or a single address, in place of an earlier one with this destination and metric.

    Args:
        gateway: through whom; None: it is on the link itself.
        source: the own address that packets to there carry unless the sender chose one.
    """
    attributes = nl.attribute(nl.RTA_DST, destination.network_address.packed) + nl.u32(nl.RTA_OIF, index)
    if gateway is not None:
        attributes += nl.attribute(nl.RTA_GATEWAY, gateway.packed)
    if source is not None:
        attributes += nl.attribute(nl.RTA_PREFSRC, source.packed)
    if metric:
        attributes += nl.u32(nl.RTA_PRIORITY, metric)
    on_link = gateway is None and destination.version == 4
    scope = nl.RT_SCOPE_LINK if on_link else nl.RT_SCOPE_UNIVERSE
    family = _family(destination)
    return _route(nl.RTM_NEWROUTE, _REPLACE, family, destination.prefixlen, protocol, scope, attributes)


def delete_route(destination: Subnet, *, index: int, protocol: int, metric: int = 0) -> bytes:
    """Delete the route to a destination that leaves through a link and was made with this protocol number."""
    attributes = nl.attribute(nl.RTA_DST, destination.network_address.packed) + nl.u32(nl.RTA_OIF, index)
    if metric:
        attributes += nl.u32(nl.RTA_PRIORITY, metric)
    # Scope "nowhere" matches routes of any scope.
    scope = 255 if destination.version == 4 else nl.RT_SCOPE_UNIVERSE
    return _route(nl.RTM_DELROUTE, _ACK, _family(destination), destination.prefixlen, protocol, scope, attributes)


def dump_routes() -> bytes:
    """Every route of the namespace, both families."""
    return nl.message(nl.RTM_GETROUTE, _DUMP, nl.ROUTE_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0, 0))


def read_routes(replies: Iterable[bytes]) -> list[RouteInfo]:
    """The unicast routes of the main table among the messages of a reply."""
    messages = (m for reply in replies for m in nl.split(reply) if m.type == nl.RTM_NEWROUTE)
    return [route for message in messages if (route := _read_route(message.payload)) is not None]


def set_neighbour(index: int, address: Address, mac: str) -> bytes:
    """Know for good at which MAC address a neighbour lives, without asking the LAN."""
    return _neighbour(nl.RTM_NEWNEIGH, _REPLACE, index, address, nl.attribute(nl.NDA_LLADDR, nl.mac_bytes(mac)))


def delete_neighbour(index: int, address: Address) -> bytes:
    """Forget a neighbour."""
    return _neighbour(nl.RTM_DELNEIGH, _ACK, index, address, b"")


def _read_route(payload: bytes) -> RouteInfo | None:
    family, length, _, _, table, protocol, _, kind, _ = nl.ROUTE_BODY.unpack_from(payload)
    found = nl.attributes(payload, nl.ROUTE_BODY.size)
    if nl.RTA_TABLE in found:
        table = nl.as_u32(found[nl.RTA_TABLE])
    if table != nl.RT_TABLE_MAIN or kind != nl.RTN_UNICAST or family not in (nl.AF_INET, nl.AF_INET6):
        return None
    network = found.get(nl.RTA_DST, bytes(4 if family == nl.AF_INET else 16))
    return RouteInfo(
        destination=ipaddress.ip_network((network, length)),
        protocol=protocol,
        index=nl.as_u32(found[nl.RTA_OIF]) if nl.RTA_OIF in found else 0,
        gateway=ipaddress.ip_address(found[nl.RTA_GATEWAY]) if nl.RTA_GATEWAY in found else None,
        metric=nl.as_u32(found[nl.RTA_PRIORITY]) if nl.RTA_PRIORITY in found else 0,
    )


def _route(kind: int, flags: int, family: int, length: int, protocol: int, scope: int, attributes: bytes) -> bytes:
    body = nl.ROUTE_BODY.pack(family, length, 0, 0, nl.RT_TABLE_MAIN, protocol, scope, nl.RTN_UNICAST, 0)
    return nl.message(kind, flags, body + attributes)


def _neighbour(kind: int, flags: int, index: int, address: Address, attributes: bytes) -> bytes:
    body = nl.NEIGHBOUR_BODY.pack(_family(address), index, nl.NUD_PERMANENT, 0, 0)
    return nl.message(kind, flags, body + nl.attribute(nl.NDA_DST, address.packed) + attributes)


def _family(address: Address | Subnet) -> int:
    return nl.AF_INET if address.version == 4 else nl.AF_INET6
