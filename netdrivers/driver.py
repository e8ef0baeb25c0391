"""Put a task's link on the LAN and take it off again, and describe this host's links.

Theory of operation
-------------------
*Attach* creates the link straight in the task's namespace, deaf to the world until its last step takes it up: no address
answers on the LAN unless the whole attachment worked. Whatever fails after the creation deletes the link again, also
under cancellation. The order is: the namespace is told to ignore router advertisements (they would bring addresses that
nobody granted); the link, which is told to answer for its own addresses alone; its addresses; up; default routes;
announcement. What the kinds and modes of links have of their own is in `netdrivers.kind`: where the host routes (ipvlan l3,
l3s) the default route leads to the link itself and nothing is announced.

*Detach* makes every link of the namespace deaf and takes its addresses away, see `runtime.silence`.

*Names of links*: the parent is the host's interface, the link is the task's. An error names the one it is about.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import zlib
from functools import partial

import msgspec
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import is_routed
from beeyard.netdrivers import codec, codec_route, kind, refusal
from beeyard.netdrivers.announce import announcement
from beeyard.netdrivers.changes import Change, make
from beeyard.netdrivers.inventory import host_links, link_indices
from beeyard.runtime import silence
from beeyard.runtime.host import Netlink, RequestRefused
from beeyard.runtime.netlink_format import mac_bytes

__all__ = ["AttachedLink", "attach", "detach", "host_links", "link_indices"]

LOOPBACK_INDEX = 1
# Linux numbers links from 1 upwards in each namespace and would need years of churn to get here.
_INDEX_BASE = 0x40000000
# What Linux gives an IPv6 route without one; used for both families so that eth0 is preferred to eth1 in both.
_METRIC_BASE = 1024
# Written to the namespace of each task.
_SETTINGS = {
    # A router advertisement on the LAN would add addresses and routes of its own. The default is what new links start with.
    "ipv6/conf/default/accept_ra": "0",
}


class AttachedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is up in a task's namespace."""

    interface: str
    index: int
    mac: str
    mtu: int
    addresses: tuple[str, ...]  # with prefix length


async def attach(netlink: Netlink, netns: str, grant: AddressGrant, interface: str) -> AttachedLink:
    """Create, configure, raise and announce the link that a grant describes, named `interface`, in a namespace.

    Cancellation: all or nothing; when cancelled or failed there is no link.

    Raises:
        NetlinkError: names the interface and says what to do.
    """
    kind.check(grant, interface)
    try:
        async with netlink.netns_fd(netns, settings=_SETTINGS, frames=True) as netns_fd:
            parent = await _usable_parent(netlink, grant)
            await _check_addresses(netlink, netns, grant, interface)
            index = await _create(netlink, netns_fd, grant, interface, parent)
            try:
                return await _configure(netlink, netns, grant, interface, index, parent)
            except BaseException:
                await _delete(netlink, netns, index)
                raise
    except OSError as error:
        raise refusal.of_namespace(error, netns, interface) from error


async def detach(netlink: Netlink, netns: str) -> None:
    """Silence every link of a namespace except its loopback: on return no address of it answers.

    Idempotent: yes. A namespace that is gone is fine. The links themselves go with the namespace.

    Raises:
        NetlinkError: the kernel refused.
    """
    try:
        async with netlink.netns_fd(netns):
            await _silence(netlink, netns)
    except FileNotFoundError:
        return
    except OSError as error:
        raise refusal.of_namespace(error, netns, "links") from error


async def _usable_parent(netlink: Netlink, grant: AddressGrant) -> codec.LinkInfo:
    """The parent as it is now.

    The kernel would take a parent that is down and leave the task without a network, so this is checked here.
    """
    try:
        (parent,) = codec.read_links(await netlink.request(codec.get_link(name=grant.parent)))
    except OSError as error:
        raise refusal.of_parent(error, grant) from error
    if not parent.up:
        raise refusal.parent_down(grant)
    if grant.mtu > parent.mtu:
        raise refusal.mtu_too_large(grant, parent.mtu)
    if kind.is_passthru(grant):
        await _check_passthru(netlink, grant, parent)
    return parent


async def _check_passthru(netlink: Netlink, grant: AddressGrant, parent: codec.LinkInfo) -> None:
    """The link will take the parent's packets and MAC address: refuse what would cut the host off, or rename it."""
    if grant.mac and grant.mac.lower() != parent.mac:
        raise refusal.mac_of_passthru(grant, parent)
    for own in codec.read_addresses(await netlink.request(codec.dump_addresses())):
        if own.index == parent.index and not own.ip.is_link_local:
            raise refusal.host_would_be_cut_off(grant, str(own))


async def _check_addresses(netlink: Netlink, netns: str, grant: AddressGrant, interface: str) -> None:
    """Refuse an address that another link of the namespace has: the kernel would take it, and answer on either."""
    wanted = [codec.parse_address(address)[0] for address in grant.addresses]
    for present in codec.read_addresses(await netlink.request(codec.dump_addresses(), netns)):
        if present.ip in wanted:
            raise refusal.address_in_use(str(present), interface)


async def _create(netlink: Netlink, netns_fd: int, grant: AddressGrant, interface: str, parent: codec.LinkInfo) -> int:
    index = _INDEX_BASE | zlib.crc32(interface.encode()) & 0xFFFFFF
    request = kind.creation(grant, name=interface, index=index, parent=parent.index, netns_fd=netns_fd)
    try:
        await netlink.request(request)
    except OSError as error:
        raise refusal.of_creation(error, grant, interface, parent) from error
    return index


async def _configure(
    netlink: Netlink, netns: str, grant: AddressGrant, interface: str, index: int, parent: codec.LinkInfo
) -> AttachedLink:
    """Addresses, up, routes, announcement: in this order, so that what is announced can be reached."""
    addresses = [codec.parse_address(address) for address in grant.addresses]
    steps = [
        Change(codec.set_link_up(LOOPBACK_INDEX), "raise the loopback of"),
        # A link without IPv6 makes no addresses of its own.
        Change(codec.forbid_own_addresses(index), "forbid addresses of its own to", (errno.EAFNOSUPPORT,)),
        # A task on two segments would answer on one of them for an address that is another task's there. IPv6 never does.
        Change(codec.answer_for_own_addresses(index), "keep the addresses of other links from"),
    ]
    for text, address in zip(grant.addresses, addresses, strict=True):
        steps.append(Change(codec.add_address(index, *address), f"add address {text} to"))
    steps.append(Change(codec.set_link_up(index), "raise"))
    steps += _default_routes(grant, interface, index)
    mac, mtu = parent.mac if kind.shares_mac(grant) else grant.mac.lower(), grant.mtu or parent.mtu
    refused = partial(refusal.of_configuration, grant, interface)
    if mac:
        await make(netlink, steps, refused, netns)
    else:  # the kernel has drawn one
        steps.append(Change(codec.get_link(index=index), "describe"))
        (link,) = codec.read_links(await make(netlink, steps, refused, netns))
        mac = link.mac
    if not is_routed(grant.driver, grant.mode):
        for ip, _ in addresses:
            await _announce(netlink, netns, interface, ip, mac_bytes(mac))
    return AttachedLink(interface=interface, index=index, mac=mac, mtu=mtu, addresses=grant.addresses)


def _default_routes(grant: AddressGrant, interface: str, index: int) -> list[Change]:
    """One for each family in which the link has an address; on the link itself where the host routes."""
    if grant.internal or not grant.addresses:
        return []
    metric = _METRIC_BASE + _number(interface)
    if is_routed(grant.driver, grant.mode):
        versions = sorted({codec.parse_address(address)[0].version for address in grant.addresses})
        return [
            Change(codec_route.add_default_route(index, None, metric, version=version), "route everything through")
            for version in versions
        ]
    return [
        Change(
            codec_route.add_default_route(index, ipaddress.ip_address(gateway), metric),
            f"route through gateway {gateway} from",
        )
        for gateway in grant.gateways
    ]


async def _announce(netlink: Netlink, netns: str, interface: str, address: codec.Address, mac: bytes) -> None:
    for frame in announcement(address, mac):
        try:
            await netlink.send_frame(netns, interface, frame)
        except OSError as error:
            raise refusal.of_announcement(error, interface, address) from error


async def _delete(netlink: Netlink, netns: str, index: int) -> None:
    """Undo a creation. Nothing can be done about a failure here, and the first error is the one that matters."""
    # Safety: bounded, as the kernel answers each request while it is sent.
    with trio.CancelScope(shield=True), contextlib.suppress(OSError):
        await netlink.request(codec.delete_link(index), netns)


async def _silence(netlink: Netlink, netns: str) -> None:
    conversation = silence.conversation()
    with contextlib.suppress(StopIteration):  # all is said
        message = next(conversation)
        while True:
            try:
                replies = await netlink.request(message, netns)
            except RequestRefused as error:
                message = conversation.throw(error)
            else:
                message = conversation.send(replies)


def _number(interface: str) -> int:
    """The number at the end of an interface's name: 1 for eth1; 0 without one."""
    digits = interface[len(interface.rstrip("0123456789")) :]
    return int(digits or "0") % _METRIC_BASE
