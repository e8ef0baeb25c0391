"""What this host offers for networking: its links, and the kinds of link its kernel can create."""

from __future__ import annotations

import errno

from beeyard.core.model import Link
from beeyard.netdrivers import codec, host_access, refusal
from beeyard.runtime.host import Netlink
from beeyard.runtime.link_groups import PORT_GROUP

# Kinds that a network driver may want; all need a parent, so a creation without one tells whether the kind is known.
_KINDS = ("ipvlan", "macvlan", "vlan")
# Of these, the ones that receive all packets of their parent, so that they exclude each other. A VLAN sub-interface does
# not: what carries its tag goes to it, before anybody else is asked.
_EXCLUSIVE = ("ipvlan", "macvlan")


async def link_indices(netlink: Netlink) -> dict[str, int]:
    """The index of each link of this host, by name: one that was removed and made anew has another. {}: cannot be read."""
    try:
        return {link.name: link.index for link in codec.read_links(await netlink.request(codec.dump_links()))}
    except OSError:
        return {}


async def host_links(netlink: Netlink) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """This host's links except its loopback, and the kinds of link that its kernel can create.

    `Link.child_kind` says what receives the packets of a link, so that nothing else can:

    * "ipvlan" when macvlan is impossible on it. The links that sit on it may live in namespaces that cannot be seen from
      here, so it is found out by asking for the impossible, see `codec.doomed_macvlan`.
    * the kind of its master ("bridge", "bond", …) for a port of one.
    * "macvlan" when such links sit on it in this namespace. Those in other namespaces are not seen, those in mode passthru
      included: whoever put them there knows.

    Kinds are probed each time, so a module that was loaded meanwhile counts; all of it takes half a millisecond. Host-side
    links of our own (`netdrivers.host_access`) are left out: they are nobody's parent.

    Raises:
        NetlinkError: the kernel refused to tell.
    """
    try:
        links = codec.read_links(await netlink.request(codec.dump_links()))
        addresses = codec.read_addresses(await netlink.request(codec.dump_addresses()))
        kinds = tuple([kind for kind in _KINDS if await _knows(netlink, kind)])
        seen = {c.parent: c.kind for c in links if c.kind in _EXCLUSIVE and not c.parent_elsewhere}
        masters = {link.index: link.kind for link in links}
        seen |= {link.index: masters.get(link.master) or "bridge" for link in links if link.master}
        described = [
            Link(
                name=link.name,
                mac=link.mac,
                mtu=link.mtu,
                up=link.up,
                addresses=tuple(str(a) for a in addresses if a.index == link.index),
                child_kind=seen.get(link.index) or await _child_kind(netlink, link, "macvlan" in kinds),
            )
            for link in links
            if not link.loopback and not host_access.is_ours(link) and link.group != PORT_GROUP
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


async def _child_kind(netlink: Netlink, link: codec.LinkInfo, has_macvlan: bool) -> str:
    if not has_macvlan or not link.ethernet:
        return ""
    try:
        await netlink.request(codec.doomed_macvlan(link.index))
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
        return "ipvlan" if error.errno == errno.EBUSY else ""
    raise AssertionError(f"the kernel created a macvlan link on {link.name} that it should have refused")
