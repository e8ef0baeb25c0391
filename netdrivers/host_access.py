"""The way between this host and its own tasks on macvlan links, which the kernel keeps apart.

Theory of operation
-------------------
What a macvlan link sends to its parent's own address goes out to the LAN, never to the host below. A second macvlan link
on the same parent, in the host's namespace, is a neighbour of the tasks' links, so over it both reach each other.

Nothing of this may be seen on the LAN, where each address must have one answer:

* The host-side link has no address, speaks no ARP (NOARP: the host would else answer there for all its addresses), makes no
  IPv6 address of its own and hears no router.
* The host has a route for each single address of a task over the link, in the name of its own address on the parent, and a
  permanent neighbour, so nobody is asked where the task lives.
* The task has a permanent neighbour for each of the host's addresses on the parent: the host-side link's MAC address. So
  the task does not ask either.

The link is made with the first task that needs it and is marked as ours by its group; its routes carry a protocol number
of our own.
"""

from __future__ import annotations

import errno
import ipaddress
import zlib
from collections.abc import Callable, Collection

from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.netdrivers import codec, codec_route, own_links, refusal
from beeyard.netdrivers.changes import Change, make
from beeyard.netdrivers.codec import AddressInfo, LinkInfo
from beeyard.netdrivers.own_links import find
from beeyard.runtime.host import Netlink
from beeyard.runtime.link_groups import OWN_GROUP

# Who made a route, for `ip route`; from the range that is free. Source: /etc/iproute2/rt_protos.
ROUTE_PROTOCOL = 191
_KIND = "macvlan"  # as the kernel calls it
_NAME_MAX = 15
_WHAT = "give the host access over"
_GONE = (errno.ENODEV, errno.ENOENT, errno.ESRCH)


def link_name(parent: str) -> str:
    """The host-side link of a parent: "bee-eth0", or a number where that would be too long."""
    name = f"bee-{parent}"
    return name if len(name) <= _NAME_MAX else f"bee-{zlib.crc32(parent.encode()):08x}"


def check(grant: AddressGrant) -> None:
    """Refuse what cannot work, before anything is touched.

    Raises:
        NetlinkError: names the mode, or that there is no address.
    """
    if grant.driver != "macvlan" or grant.mode != "bridge":
        advice = (
            f"host access is for macvlan mode bridge and this is {grant.driver} mode {grant.mode}; "
            "leave beeyard.host_access out or use that mode"
        )
        raise NetlinkError(errno.EOPNOTSUPP, _WHAT, grant.parent, advice)
    if not grant.addresses:
        raise NetlinkError(errno.EINVAL, _WHAT, grant.parent, "a task without an address of its own has no host access")


async def connect(netlink: Netlink, netns: str, grant: AddressGrant, interface: str) -> None:
    """Let the host and a task that is attached reach each other; `interface` is the task's link.

    Idempotent: yes. Callers see to it that nobody does it twice at the same time for one parent.
    Cancellation: what was made stays until `disconnect`.

    Raises:
        NetlinkError: names the interface and says what to do.
    """
    check(grant)
    parent = await find(netlink, grant.parent)
    if parent is None:
        raise refusal.of_parent(OSError(errno.ENODEV, ""), grant)
    try:
        own = await _own_addresses(netlink, parent, grant)
        host_side = await _ensure(netlink, parent)
        (task_side,) = codec.read_links(await netlink.request(codec.get_link(name=interface), netns))
        await make(netlink, _on_host(grant, own, host_side, task_side), _refused(host_side.name))
        await make(netlink, _in_task(grant, own, host_side, task_side), _refused(interface), netns)
    except OSError as error:
        raise refusal.unexpected(error, _WHAT, grant.parent) from error


async def disconnect(netlink: Netlink, grant: AddressGrant) -> None:
    """Forget the way to a task. Idempotent: yes, whatever is gone already.

    Raises:
        NetlinkError: the kernel refused.
    """
    host_side = await find(netlink, link_name(grant.parent))
    if host_side is not None and is_ours(host_side):
        addresses = [codec.parse_address(address)[0] for address in grant.addresses]
        await _forget(netlink, host_side, addresses)


async def prune(netlink: Netlink, host_side: LinkInfo, wanted: Collection[str]) -> None:
    """Forget the ways to all addresses (without prefix length) but the wanted ones.

    Raises:
        NetlinkError: the kernel refused.
    """
    try:
        routes = codec_route.read_routes(await netlink.request(codec_route.dump_routes()))
    except OSError as error:
        raise refusal.of_host(error) from error
    of_link = [r for r in routes if r.index == host_side.index and r.protocol == ROUTE_PROTOCOL]
    gone = [r.destination.network_address for r in of_link if str(r.destination.network_address) not in wanted]
    await _forget(netlink, host_side, gone)


async def remove(netlink: Netlink, name: str) -> None:
    """Delete a host-side link with its routes and neighbours, if it is ours. See `own_links.remove`."""
    await own_links.remove(netlink, name, _KIND)


async def ours(netlink: Netlink) -> list[LinkInfo]:
    """All host-side links that we made. See `own_links.ours`."""
    return await own_links.ours(netlink, _KIND)


def is_ours(link: LinkInfo) -> bool:
    """Whether a link of the host is a host-side link that we made."""
    return own_links.is_ours(link, _KIND)


async def _own_addresses(netlink: Netlink, parent: LinkInfo, grant: AddressGrant) -> list[AddressInfo]:
    """The host's addresses on the parent, of the families that the task has."""
    versions = [codec.parse_address(address)[0].version for address in grant.addresses]
    found = codec.read_addresses(await netlink.request(codec.dump_addresses()))
    own = [a for a in found if a.index == parent.index and a.ip.version in versions and not a.ip.is_link_local]
    if not own:
        advice = (
            f"the host has no address on {parent.name} to which {' or '.join(grant.addresses)} could speak; "
            "give it one or leave beeyard.host_access out"
        )
        raise NetlinkError(errno.EADDRNOTAVAIL, _WHAT, parent.name, advice)
    return own


async def _ensure(netlink: Netlink, parent: LinkInfo) -> LinkInfo:
    """The host-side link of a parent, up."""
    name = link_name(parent.name)
    link = await find(netlink, name)
    if link is None:
        link = await _create(netlink, parent, name)
    if not is_ours(link) or link.parent != parent.index:
        advice = f"a link named {name} exists that somebody else made; rename it"
        raise NetlinkError(errno.EEXIST, _WHAT, parent.name, advice)
    if not link.up:
        await own_links.bring_up(netlink, link, f"beeyard host access to {parent.name}")
    return link


async def _create(netlink: Netlink, parent: LinkInfo, name: str) -> LinkInfo:
    try:
        await netlink.request(codec.create_host_side(name=name, parent=parent.index, group=OWN_GROUP))
        (link,) = codec.read_links(await netlink.request(codec.get_link(name=name)))
    except OSError as error:
        raise refusal.unexpected(error, "create", name) from error
    return link


def _on_host(grant: AddressGrant, own: list[AddressInfo], host_side: LinkInfo, task_side: LinkInfo) -> list[Change]:
    changes = []
    for text in grant.addresses:
        ip, _ = codec.parse_address(text)
        subnet = ipaddress.ip_interface(text).network
        speakers = [a.ip for a in own if a.ip.version == ip.version]
        if not speakers:
            continue  # the host has no address of this family there
        source = next((speaker for speaker in speakers if speaker in subnet), speakers[0])
        route = codec_route.set_route(
            ipaddress.ip_network(ip), index=host_side.index, protocol=ROUTE_PROTOCOL, source=source
        )
        # The neighbour first: with the route alone packets would go to nobody.
        neighbour = codec_route.set_neighbour(host_side.index, ip, task_side.mac)
        changes.append(Change(neighbour, f"know {ip} as a neighbour on"))
        changes.append(Change(route, f"route {ip} through"))
    return changes


def _in_task(grant: AddressGrant, own: list[AddressInfo], host_side: LinkInfo, task_side: LinkInfo) -> list[Change]:
    subnets = [ipaddress.ip_interface(address).network for address in grant.addresses]
    changes = []
    for ip in (address.ip for address in own):
        neighbour = codec_route.set_neighbour(task_side.index, ip, host_side.mac)
        changes.append(Change(neighbour, f"know {ip} as a neighbour on"))
        if not any(ip in subnet for subnet in subnets):
            route = codec_route.set_route(ipaddress.ip_network(ip), index=task_side.index, protocol=ROUTE_PROTOCOL)
            changes.append(Change(route, f"route {ip} through"))
    return changes


async def _forget(netlink: Netlink, host_side: LinkInfo, addresses: list[codec.Address]) -> None:
    changes = []
    for ip in addresses:
        route = codec_route.delete_route(ipaddress.ip_network(ip), index=host_side.index, protocol=ROUTE_PROTOCOL)
        changes.append(Change(route, f"take the route to {ip} from", _GONE))
        changes.append(Change(codec_route.delete_neighbour(host_side.index, ip), f"forget {ip} on", _GONE))
    await make(netlink, changes, _refused(host_side.name))


def _refused(interface: str) -> Callable[[OSError, str], NetlinkError]:
    return lambda error, what: refusal.unexpected(error, what, interface)


__all__ = ["ROUTE_PROTOCOL", "check", "connect", "disconnect", "is_ours", "link_name", "ours", "prune", "remove"]
