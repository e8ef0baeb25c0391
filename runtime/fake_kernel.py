"""A simulated host's kernel behind the `Netlink` port: it reads and writes the same bytes as Linux does.

It lives outside the daemons, so it survives their crashes as a kernel does. `FakeKernel.live_addresses` is what the LAN
would see; simulations check with it that no address is on the LAN twice.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from beeyard.core.model import Link
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.fake_links import Address, FakeHostLinks, FakeLink, FakeNamespace, Interface, refuse
from beeyard.runtime.host import RequestRefused

_DEFAULT_LINKS = (Link(name="eth0", mtu=1500, up=True),)
# What a task's namespace calls the host's in IFLA_LINK_NETNSID; any number would do.
_NSID_OF_HOST = 0


class LiveAddress(NamedTuple):
    """An address that answers on the LAN."""

    netns: str  # "": the host itself
    interface: str
    address: str  # without prefix length
    mac: str


class SentFrame(NamedTuple):
    """A frame that left through `send_frame`."""

    netns: str
    interface: str
    frame: bytes


class FakeKernel:
    """The `Netlink` port of one simulated host.

    Args:
        links: the host's own links besides its loopback; one with `child_kind` "ipvlan" refuses macvlan children.
        kinds: the kinds of link that this kernel can create.
        seed: what makes the MAC addresses that it draws differ from those of other hosts.
    """

    def __init__(
        self, links: Sequence[Link] = _DEFAULT_LINKS, kinds: tuple[str, ...] = ("macvlan",), *, seed: str = ""
    ) -> None:
        self.frames: list[SentFrame] = []
        self._links = FakeHostLinks(kinds, seed)
        self._host = self._links.namespaces[""]
        self._links.set_up(self._host.links[1], True)
        self._n_namespaces = itertools.count(1)
        self._fds: dict[int, FakeNamespace] = {}
        self._next_fd = itertools.count(100)
        for link in links:
            self.add_link(link)

    # --- the port ---

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        """See `Netlink.request`."""
        await trio.lowlevel.checkpoint()
        namespace = self._namespace(netns)
        replies: list[bytes] = []
        for position, part in enumerate(nl.split(message)):
            try:
                handler = _HANDLERS.get(part.type)
                if handler is None:
                    refuse(errno.EOPNOTSUPP)
                replies += handler(self, namespace, part)
            except RequestRefused as error:
                error.position = position
                raise
        return replies

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        """See `Netlink.send_frame`."""
        await trio.lowlevel.checkpoint()
        link = self._namespace(netns).by_name(interface)
        if link is None:
            refuse(errno.ENODEV)
        if not link.up:
            refuse(errno.ENETDOWN)
        self.frames.append(SentFrame(netns, interface, frame))

    @contextlib.asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        """See `Netlink.netns_fd`."""
        await trio.lowlevel.checkpoint()
        namespace = self._namespace(netns)
        namespace.settings.update(settings)
        fd = next(self._next_fd)
        self._fds[fd] = namespace
        try:
            yield fd
        finally:
            del self._fds[fd]

    # --- the host's own hands: what executors, operators and a power switch do ---

    def create_netns(self) -> str:
        """A new namespace; gives its path."""
        path = f"/fake/netns/{next(self._n_namespaces)}"
        self._links.namespaces[path] = FakeNamespace(path)
        return path

    def drop_netns(self, netns: str) -> None:
        """Drop a namespace with its links; one that is gone is fine."""
        if netns and netns in self._links.namespaces:
            self._links.drop(self._links.namespaces[netns])

    def links_down(self, netns: str) -> None:
        """Take every link of a task's namespace down, as its shim does; a namespace that is gone is fine."""
        for link in self._links.namespaces[netns].links.values() if netns in self._links.namespaces else ():
            if not link.loopback:
                self._links.set_up(link, False)

    def add_link(self, link: Link) -> None:
        """Plug a link of the host itself in."""
        added = self._host.add(link.name, mac=link.mac or self._links.draw_mac(), mtu=link.mtu or 1500)
        added.taken_by = link.child_kind
        added.addresses = [ipaddress.ip_interface(address) for address in link.addresses]
        self._links.set_up(added, link.up)

    def set_link_up(self, name: str, up: bool) -> None:
        """Take a link of the host itself up or down."""
        self._links.set_up(self._own(name), up)

    def remove_link(self, name: str) -> None:
        """Unplug a link of the host itself; what sits on it goes too."""
        self._links.delete(self._own(name))

    def reboot(self) -> None:
        """Lose what a power cut loses: every namespace with its links."""
        for path in [path for path in self._links.namespaces if path]:
            self.drop_netns(path)

    # --- inspection ---

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Paths of the namespaces that exist, without the host's own."""
        return tuple(path for path in self._links.namespaces if path)

    def links_of(self, netns: str) -> list[FakeLink]:
        """The links of a namespace, loopback included, by index."""
        return [link for _, link in sorted(self._namespace(netns).links.items())]

    def routes_of(self, netns: str) -> list[tuple[str, str, int]]:
        """Default routes of a namespace: (interface, gateway, metric)."""
        return [(r.link.name, str(r.gateway), r.metric) for r in self._namespace(netns).routes]

    def live_addresses(self) -> list[LiveAddress]:
        """Every address of this host that answers on the LAN, in order of namespace and link."""
        return [
            LiveAddress(path, link.name, str(address.ip), link.mac)
            for path, namespace in self._links.namespaces.items()
            for link in namespace.links.values()
            if link.answers
            for address in link.addresses
        ]

    # --- requests ---

    def _new_link(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        index, found, kind, data = _read_link_request(part)
        name = _name(found)
        existing = namespace.find(index, name) if index or name else None
        if existing is not None:
            if part.flags & nl.NLM_F_EXCL:
                refuse(errno.EEXIST)
            return self._change_link(existing, kind, data)
        if not part.flags & nl.NLM_F_CREATE:
            refuse(errno.ENODEV)
        if kind not in self._links.kinds:
            refuse(errno.EOPNOTSUPP, "Unknown device type")
        if kind != "macvlan":
            refuse(errno.EINVAL)  # known, but nobody has asked this fake to create one yet
        target = self._target(namespace, found)
        parent = namespace.links.get(nl.as_u32(found[nl.IFLA_LINK])) if nl.IFLA_LINK in found else None
        if parent is None:
            refuse(errno.ENODEV if nl.IFLA_LINK in found else errno.EINVAL)
        self._links.create_macvlan(
            target,
            parent,
            name=name,
            index=index,
            mac=nl.as_mac(found[nl.IFLA_ADDRESS]) if nl.IFLA_ADDRESS in found else "",
            mtu=nl.as_u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found else 0,
            mode=nl.as_u32(data.get(nl.IFLA_MACVLAN_MODE, nl.U32.pack(nl.MACVLAN_MODES["vepa"]))),
            lists_senders=nl.IFLA_MACVLAN_MACADDR_MODE in data,
        )
        return []

    def _change_link(self, link: FakeLink, kind: str, data: dict[int, bytes]) -> list[bytes]:
        if kind != link.kind:
            refuse(errno.EOPNOTSUPP)
        if nl.IFLA_MACVLAN_MODE in data:
            self._links.change_mode(link, nl.as_u32(data[nl.IFLA_MACVLAN_MODE]))
        return []

    def _set_link(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        link, found = self._existing(namespace, part)
        _, _, _, flags, change = nl.LINK_BODY.unpack_from(part.payload)
        if nl.IFLA_AF_SPEC in found:
            inet6 = nl.attributes(nl.attributes(found[nl.IFLA_AF_SPEC]).get(nl.AF_INET6, b""))
            if nl.IFLA_INET6_ADDR_GEN_MODE in inet6:
                mode = inet6[nl.IFLA_INET6_ADDR_GEN_MODE][0]
                self._links.make_own_addresses(link, mode != nl.IN6_ADDR_GEN_MODE_NONE)
        if change & nl.IFF_UP:
            self._links.set_up(link, bool(flags & nl.IFF_UP))
        return []

    def _delete_link(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        self._links.delete(self._existing(namespace, part)[0])
        return []

    def _get_link(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        if part.flags & nl.NLM_F_DUMP == nl.NLM_F_DUMP:
            return [_describe(link) for _, link in sorted(namespace.links.items())]
        return [_describe(self._existing(namespace, part)[0])]

    def _new_address(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        self._links.add_address(*self._addressed(namespace, part))
        return []

    def _delete_address(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        self._links.delete_address(*self._addressed(namespace, part))
        return []

    def _get_address(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        links = [link for _, link in sorted(namespace.links.items())]
        return [
            _describe_address(link, address)
            for version in (4, 6)
            for link in links
            for address in link.addresses
            if address.version == version
        ]

    def _new_route(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        found = nl.attributes(part.payload, nl.ROUTE_BODY.size)
        if nl.ROUTE_BODY.unpack_from(part.payload)[1] or nl.RTA_GATEWAY not in found or nl.RTA_OIF not in found:
            refuse(errno.EINVAL)  # only default routes through a gateway are played here
        link = namespace.links.get(nl.as_u32(found[nl.RTA_OIF]))
        if link is None:
            refuse(errno.ENODEV)
        gateway: Address = ipaddress.ip_address(found[nl.RTA_GATEWAY])
        metric = nl.as_u32(found[nl.RTA_PRIORITY]) if nl.RTA_PRIORITY in found else 0
        self._links.add_default_route(link, gateway, metric)
        return []

    # --- small help ---

    def _namespace(self, netns: str) -> FakeNamespace:
        if netns not in self._links.namespaces:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), netns)
        return self._links.namespaces[netns]

    def _own(self, name: str) -> FakeLink:
        link = self._host.by_name(name)
        assert link is not None, f"the host has no link {name}"
        return link

    def _target(self, namespace: FakeNamespace, found: dict[int, bytes]) -> FakeNamespace:
        if nl.IFLA_NET_NS_FD not in found:
            return namespace
        target = self._fds.get(nl.as_u32(found[nl.IFLA_NET_NS_FD]))
        if target is None or target.path not in self._links.namespaces:
            refuse(errno.EBADF)
        return target

    def _existing(self, namespace: FakeNamespace, part: nl.Message) -> tuple[FakeLink, dict[int, bytes]]:
        index, found, _, _ = _read_link_request(part)
        link = namespace.find(index, _name(found))
        if link is None:
            refuse(errno.ENODEV)
        return link, found

    def _addressed(self, namespace: FakeNamespace, part: nl.Message) -> tuple[FakeLink, Interface]:
        _, prefix_length, _, _, index = nl.ADDRESS_BODY.unpack_from(part.payload)
        found = nl.attributes(part.payload, nl.ADDRESS_BODY.size)
        link = namespace.links.get(index)
        if link is None:
            refuse(errno.ENODEV)
        address = ipaddress.ip_address(found.get(nl.IFA_LOCAL) or found[nl.IFA_ADDRESS])
        return link, ipaddress.ip_interface(f"{address}/{prefix_length}")


_Handler = Callable[[FakeKernel, FakeNamespace, nl.Message], list[bytes]]
_HANDLERS: dict[int, _Handler] = {
    nl.RTM_NEWLINK: FakeKernel._new_link,
    nl.RTM_SETLINK: FakeKernel._set_link,
    nl.RTM_DELLINK: FakeKernel._delete_link,
    nl.RTM_GETLINK: FakeKernel._get_link,
    nl.RTM_NEWADDR: FakeKernel._new_address,
    nl.RTM_DELADDR: FakeKernel._delete_address,
    nl.RTM_GETADDR: FakeKernel._get_address,
    nl.RTM_NEWROUTE: FakeKernel._new_route,
}


def _read_link_request(part: nl.Message) -> tuple[int, dict[int, bytes], str, dict[int, bytes]]:
    """Index, attributes, kind and the kind's own attributes."""
    index = nl.LINK_BODY.unpack_from(part.payload)[2]
    found = nl.attributes(part.payload, nl.LINK_BODY.size)
    info = nl.attributes(found.get(nl.IFLA_LINKINFO, b""))
    return (
        index,
        found,
        nl.as_text(info.get(nl.IFLA_INFO_KIND, b"")),
        nl.attributes(info.get(nl.IFLA_INFO_DATA, b"")),
    )


def _name(found: dict[int, bytes]) -> str:
    name = nl.as_text(found.get(nl.IFLA_IFNAME, b""))
    if len(name) > 15:
        refuse(errno.ERANGE, "Attribute failed policy validation")
    return name


def _describe(link: FakeLink) -> bytes:
    arp_type = nl.ARPHRD_LOOPBACK if link.loopback else nl.ARPHRD_ETHER
    carrier = link.up and (link.parent is None or link.parent.up)
    flags = (nl.IFF_UP if link.up else 0) | (nl.IFF_LOWER_UP if carrier else 0)
    flags |= nl.IFF_LOOPBACK if link.loopback else 0
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, arp_type, link.index, flags, 0) + nl.text(nl.IFLA_IFNAME, link.name)
    body += nl.u32(nl.IFLA_MTU, link.mtu) + nl.attribute(nl.IFLA_ADDRESS, nl.mac_bytes(link.mac))
    if link.parent is not None:
        body += nl.u32(nl.IFLA_LINK, link.parent.index)
        if link.parent.namespace is not link.namespace:
            body += nl.u32(nl.IFLA_LINK_NETNSID, _NSID_OF_HOST)
    if link.kind:
        data = nl.attribute(nl.IFLA_INFO_DATA, nl.u32(nl.IFLA_MACVLAN_MODE, link.mode))
        body += nl.attribute(nl.IFLA_LINKINFO, nl.text(nl.IFLA_INFO_KIND, link.kind) + data)
    return nl.message(nl.RTM_NEWLINK, 0, body)


def _describe_address(link: FakeLink, address: Interface) -> bytes:
    family = nl.AF_INET if address.version == 4 else nl.AF_INET6
    body = nl.ADDRESS_BODY.pack(family, address.network.prefixlen, 0, 0, link.index)
    return nl.message(nl.RTM_NEWADDR, 0, body + nl.attribute(nl.IFA_ADDRESS, address.ip.packed))
