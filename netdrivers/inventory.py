"""What this host offers for networking: its links, and the kinds of link its kernel can create."""

from __future__ import annotations

import errno

from beeyard.core.model import Link
from beeyard.netdrivers import codec, refusal
from beeyard.runtime.host import Netlink

# Kinds that a network driver may want; all need a parent, so a creation without one tells whether the kind is known.
_KINDS = ("ipvlan", "macvlan")


async def host_links(netlink: Netlink) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """This host's links except its loopback, and the kinds of link that its kernel can create.

    `Link.child_kind` is "ipvlan" for every link on which macvlan is impossible because something else receives its
    packets already (its children may live in namespaces that cannot be seen from here, so it is found out by asking for
    the impossible, see `codec.doomed_macvlan`): also for ports of a bridge or bond. It is "macvlan" when such links sit
    on it in this namespace; those in other namespaces are not seen, and exclude ipvlan alone. Kinds are probed each time,
    so a module that was loaded meanwhile counts; all of it takes half a millisecond.

    Raises:
        NetlinkError: the kernel refused to tell.
    """
    try:
        links = codec.read_links(await netlink.request(codec.dump_links()))
        addresses = codec.read_addresses(await netlink.request(codec.dump_addresses()))
        kinds = tuple([kind for kind in _KINDS if await _knows(netlink, kind)])
        children = {c.parent: c.kind for c in links if c.kind in _KINDS and not c.parent_elsewhere}
        described = [
            Link(
                name=link.name,
                mac=link.mac,
                mtu=link.mtu,
                up=link.up,
                addresses=tuple(str(a) for a in addresses if a.index == link.index),
                child_kind=await _child_kind(netlink, link, children.get(link.index, ""), "macvlan" in kinds),
            )
            for link in links
            if not link.loopback
        ]
    except OSError as error:
        raise refusal.of_host(error) from error
    return tuple(described), kinds


async def _knows(netlink: Netlink, kind: str) -> bool:
    """Whether the kernel has this kind; loads its module when it can."""
    try:
        await netlink.request(codec.orphan(kind))
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
        return error.errno != errno.EOPNOTSUPP
    raise AssertionError(f"the kernel created a {kind} link without a parent")


async def _child_kind(netlink: Netlink, link: codec.LinkInfo, seen: str, has_macvlan: bool) -> str:
    if seen or not has_macvlan or not link.ethernet:
        return seen
    if link.master:
        return "ipvlan"
    try:
        await netlink.request(codec.doomed_macvlan(link.index))
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
        return "ipvlan" if error.errno == errno.EBUSY else ""
    raise AssertionError(f"the kernel created a macvlan link on {link.name} that it should have refused")
