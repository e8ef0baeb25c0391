"""The host routes of this host: single addresses of tasks on other hosts, each through the host that it is on.

All carry a protocol number of our own, so that they are found again by whoever comes later, and nobody else's route is
touched: one that an operator has made to the same address is another route, with another metric.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from beeyard.core.wire import HostRoute
from beeyard.netdrivers import codec, codec_route
from beeyard.runtime.host import Netlink, RequestRefused

# Of the numbers that are free for programs; shown by `ip route` as "proto 190". Source: linux/rtnetlink.h, RTPROT_*.
PROTOCOL = 190
# Any would do that nobody else is likely to use: it tells our routes from others to the same address.
METRIC = 190


class Way(NamedTuple):
    """Where a route leads."""

    link: int  # its index
    gateway: str


async def links(netlink: Netlink) -> dict[str, int]:
    """The indices of the host's links by their names. Raises OSError."""
    return {link.name: link.index for link in codec.read_links(await netlink.request(codec.dump_links()))}


async def present(netlink: Netlink) -> dict[str, list[Way]]:
    """Our routes as the kernel has them, by destination. Raises OSError."""
    found: dict[str, list[Way]] = {}
    for route in codec_route.read_routes(await netlink.request(codec_route.dump_routes())):
        if route.protocol == PROTOCOL:
            gateway = str(route.gateway) if route.gateway is not None else ""
            found.setdefault(str(route.destination), []).append(Way(route.index, gateway))
    return found


async def put(netlink: Netlink, route: HostRoute, indices: Mapping[str, int]) -> Way:
    """Have a route, in place of an earlier one to the same destination.

    Raises:
        OSError: the kernel does not take it: its parent is not there, or its next hop cannot be reached.
    """
    index = indices.get(route.parent)
    if index is None:
        raise RequestRefused(errno.ENODEV, f"there is no interface {route.parent}")
    if not route.via:
        raise RequestRefused(errno.EHOSTUNREACH, f"node {route.node} has no address of that family")
    destination, gateway = ipaddress.ip_network(route.destination), ipaddress.ip_address(route.via)
    request = codec_route.set_route(destination, index=index, protocol=PROTOCOL, gateway=gateway, metric=METRIC)
    await netlink.request(request)
    return Way(index, str(gateway))


async def take_away(netlink: Netlink, destination: str, index: int) -> None:
    """Be without a route; one that is gone is fine. Raises OSError."""
    request = codec_route.delete_route(ipaddress.ip_network(destination), index=index, protocol=PROTOCOL, metric=METRIC)
    try:
        await netlink.request(request)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.ENODEV):
            raise


__all__ = ["METRIC", "PROTOCOL", "Way", "links", "present", "put", "take_away"]
