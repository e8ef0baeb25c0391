"""Links and addresses of a simulated host, and what Linux says to each change of them.

The rules are those that matter to somebody who attaches macvlan and ipvlan links and makes VLAN sub-interfaces; error
numbers are Linux's, checked against the real kernel by the same conformance function. `runtime.fake_kernel` speaks netlink
on top of this; routes are in `runtime.fake_routes`.

A *port* is what a parent becomes for its macvlan or ipvlan links: it receives the parent's packets for them, of one kind
only. All ipvlan links of a port have the mode and flag of the one that was made last.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import zlib

from beeyard.runtime.fake_refuse import refuse
from beeyard.runtime.fake_routes import FakeRoutes
from beeyard.runtime.netlink_format import IPVLAN_MODES, MACVLAN_MODES

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_MTU_MIN, _MTU_MAX, _IPV6_MTU_MIN = 68, 65535, 1280
_MODE_PASSTHRU, _MODE_SOURCE = MACVLAN_MODES["passthru"], MACVLAN_MODES["source"]
_PORT_KINDS = ("macvlan", "ipvlan")
_VLAN_ID_END = 4095


@dataclasses.dataclass(eq=False)
class FakeLink:
    """A link of one namespace."""

    namespace: FakeNamespace
    index: int
    name: str
    mac: str
    mtu: int
    kind: str = ""
    up: bool = False
    loopback: bool = False
    parent: FakeLink | None = None
    own_mode: int = 0  # macvlan's, as a number
    port_mode: int = 0  # of the ipvlan links that sit on it, as a number
    port_flag: int = 0
    vlan_id: int = 0
    group: int = 0
    alias: str = ""
    arp: bool = True  # as an operator set it
    makes_own_addresses: bool = True
    arp_announce: int = 0
    arp_ignore: int = 0
    taken_by: str = ""  # what receives its packets: "macvlan", "ipvlan" or another kind; "" when nothing does
    captured: bool = False  # whether that is a single link, to which all goes
    peer: FakeLink | None = None  # the other end of a veth pair
    addresses: list[Interface] = dataclasses.field(default_factory=list)

    @property
    def mode(self) -> int:
        """A macvlan or ipvlan link's mode, as a number."""
        return self.parent.port_mode if self.kind == "ipvlan" and self.parent is not None else self.own_mode

    @property
    def carrier(self) -> bool:
        """Whether it is up and so is all that it sits on."""
        return self.up and (self.parent is None or self.parent.carrier)

    @property
    def answers(self) -> bool:
        """Whether somebody on the LAN gets an answer from this link's addresses."""
        deaf = self.kind == "macvlan" and self.mode == _MODE_SOURCE
        return self.carrier and not self.loopback and not deaf and not self.captured and self.peer is None

    @property
    def speaks_arp(self) -> bool:
        """Whether it says on the LAN where its addresses live."""
        return self.arp and not (self.kind == "ipvlan" and self.mode != IPVLAN_MODES["l2"])

    @property
    def vlan(self) -> int:
        """The VLAN through which it is reached; 0: none."""
        return self.vlan_id or (self.parent.vlan if self.parent is not None else 0)


class FakeNamespace:
    """A network namespace: what `ip` would show in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.links: dict[int, FakeLink] = {}
        self.way = FakeRoutes()
        self.settings: dict[str, str] = {}
        self._last_index = 0
        self.add("lo", mac="00:00:00:00:00:00", mtu=65536).loopback = True

    def add(self, name: str, *, mac: str, mtu: int, index: int = 0) -> FakeLink:
        """A new link, down. Its name must be free, as must its index when one is given."""
        if not name or name in (".", "..") or any(c.isspace() or c in "/:" for c in name):
            refuse(errno.EINVAL)
        if self.by_name(name) is not None:
            refuse(errno.EEXIST)
        if index in self.links:
            refuse(errno.EEXIST)  # EBUSY before Linux 6.15
        while not index:
            self._last_index += 1
            index = self._last_index if self._last_index not in self.links else 0
        self.links[index] = FakeLink(self, index, name, mac, mtu)
        return self.links[index]

    def by_name(self, name: str) -> FakeLink | None:
        """The link of that name."""
        return next((link for link in self.links.values() if link.name == name), None)

    def find(self, index: int, name: str) -> FakeLink | None:
        """The link that a request is about: by index if it has one, else by name."""
        return self.links.get(index) if index else self.by_name(name)


class FakeHostLinks:
    """All links of one host, over all its namespaces."""

    def __init__(self, kinds: tuple[str, ...], seed: str) -> None:
        self.kinds = kinds
        self.namespaces: dict[str, FakeNamespace] = {"": FakeNamespace("")}
        self._seed = zlib.crc32(seed.encode())
        self._n_macs = 0

    def draw_mac(self) -> str:
        """A MAC address that no other host with another seed draws (up to collisions of a 24-bit hash)."""
        taken = {link.mac for namespace in self.namespaces.values() for link in namespace.links.values()}
        while True:
            self._n_macs += 1
            mac = (bytes([2]) + (self._seed & 0xFFFFFF).to_bytes(3, "big") + self._n_macs.to_bytes(2, "big")).hex(":")
            if mac not in taken:
                return mac

    def children(self, parent: FakeLink) -> list[FakeLink]:
        """The links that sit on one, in all namespaces."""
        return [link for n in self.namespaces.values() for link in n.links.values() if link.parent is parent]

    def on_port(self, parent: FakeLink) -> list[FakeLink]:
        """The links for which a parent's packets are received: all that sit on it but VLANs."""
        return [link for link in self.children(parent) if link.kind in _PORT_KINDS]

    def create_macvlan(
        self,
        target: FakeNamespace,
        parent: FakeLink,
        *,
        name: str,
        index: int,
        mac: str,
        mtu: int,
        mode: int,
        lists_senders: bool = False,
    ) -> FakeLink:
        """As `macvlan_common_newlink`: the order of the checks is the kernel's."""
        if mac and (int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00"):
            refuse(errno.EADDRNOTAVAIL)
        _check_mtu(mtu)
        parent = _real_parent(parent, "macvlan")
        if mtu > parent.mtu or parent.loopback:
            refuse(errno.EINVAL)
        if parent.taken_by not in ("", "macvlan"):
            refuse(errno.EBUSY)
        siblings = self.on_port(parent)
        if parent.captured or (mode == _MODE_PASSTHRU and siblings):
            refuse(errno.EINVAL)
        if lists_senders and mode != _MODE_SOURCE:
            refuse(errno.EINVAL)
        if mode == _MODE_PASSTHRU:
            mac = parent.mac
        name = name or self._free_name(target, "macvlan")
        link = target.add(name, mac=mac or self.draw_mac(), mtu=mtu or parent.mtu, index=index)
        link.kind, link.parent, link.own_mode = "macvlan", parent, mode
        parent.taken_by = "macvlan"
        parent.captured = mode == _MODE_PASSTHRU
        return link

    def create_ipvlan(
        self, target: FakeNamespace, parent: FakeLink, *, name: str, index: int, mtu: int, mode: int, flag: int
    ) -> FakeLink:
        """As `ipvlan_link_new`: no MAC address of its own, and the last one decides on the mode of all."""
        _check_mtu(mtu)
        parent = _real_parent(parent, "ipvlan")
        if parent.loopback:
            refuse(errno.EINVAL)
        if parent.taken_by not in ("", "ipvlan"):
            refuse(errno.EBUSY)
        name = name or self._free_name(target, "ipvlan")
        link = target.add(name, mac=parent.mac, mtu=mtu or parent.mtu, index=index)
        link.kind, link.parent = "ipvlan", parent
        parent.taken_by, parent.port_mode, parent.port_flag = "ipvlan", mode, flag
        return link

    def create_vlan(self, target: FakeNamespace, parent: FakeLink, *, name: str, index: int, vlan_id: int) -> FakeLink:
        """As `vlan_newlink`."""
        if vlan_id >= _VLAN_ID_END:
            refuse(errno.ERANGE, "Invalid VLAN id")
        if parent.loopback:
            refuse(errno.EOPNOTSUPP, "VLANs not supported on device")
        if any(link.vlan_id == vlan_id for link in self.children(parent) if link.kind == "vlan"):
            refuse(errno.EEXIST, "VLAN device already exists")
        name = name or self._free_name(target, "vlan")
        link = target.add(name, mac=parent.mac, mtu=parent.mtu, index=index)
        link.kind, link.parent, link.vlan_id = "vlan", parent, vlan_id
        return link

    def delete(self, link: FakeLink) -> None:
        """Delete a link and what sits on it."""
        if link.loopback:
            refuse(errno.EOPNOTSUPP)
        for child in self.children(link):
            self.delete(child)
        del link.namespace.links[link.index]
        link.namespace.way.link_gone(link)
        if link.peer is not None and link.peer.index in link.peer.namespace.links:
            self.delete(link.peer)
        # The kernel's port goes with its last link.
        if link.kind in _PORT_KINDS and link.parent is not None and not self.on_port(link.parent):
            link.parent.taken_by, link.parent.captured = "", False

    def drop(self, namespace: FakeNamespace) -> None:
        """Delete a namespace with all its links."""
        for link in list(namespace.links.values()):
            if not link.loopback:
                self.delete(link)
        del self.namespaces[namespace.path]

    def set_up(self, link: FakeLink, up: bool) -> None:
        """Take a link up or down. Down loses its routes and its IPv6 addresses, as Linux does by default."""
        if up and not link.up and link.parent is not None:
            self._check_raise(link, link.parent)
        if up and link.loopback and not link.up:
            link.addresses = [ipaddress.ip_interface("127.0.0.1/8"), ipaddress.ip_interface("::1/128")]
        if not up:
            link.addresses = [a for a in link.addresses if a.version == 4]
            link.namespace.way.link_gone(link)
        link.up = up

    def change_mode(self, link: FakeLink, mode: int) -> None:
        """Change a macvlan link's mode; passthru cannot be entered or left."""
        if (mode == _MODE_PASSTHRU) != (link.mode == _MODE_PASSTHRU):
            refuse(errno.EINVAL)
        link.own_mode = mode

    def change_mtu(self, link: FakeLink, mtu: int) -> None:
        """Change a link's MTU; those of links that sit on it follow it downwards alone."""
        _check_mtu(mtu)
        if link.parent is not None and mtu > link.parent.mtu and link.kind in ("vlan", "macvlan"):
            refuse(errno.ERANGE if link.kind == "vlan" else errno.EINVAL)
        link.mtu = mtu
        for child in self.children(link):
            if child.mtu > mtu:
                self.change_mtu(child, mtu)

    def make_own_addresses(self, link: FakeLink, wanted: bool) -> None:
        """Whether the kernel gives the link an IPv6 address of its own."""
        if link.mtu < _IPV6_MTU_MIN:
            refuse(errno.EAFNOSUPPORT)
        link.makes_own_addresses = wanted

    def add_address(self, link: FakeLink, address: Interface) -> None:
        """Give a link an address. Two links of a namespace may have the same one, as in Linux."""
        if address.version == 6 and link.mtu < _IPV6_MTU_MIN:
            refuse(errno.EINVAL)
        if address.version == 6 and link.namespace.settings.get("ipv6/conf/default/disable_ipv6") == "1":
            refuse(errno.EACCES, "IPv6 is disabled on this device")
        same = [a for a in link.addresses if a.ip == address.ip and (a.version == 6 or a.network == address.network)]
        if same:
            refuse(errno.EEXIST, "" if address.version == 6 else "ipv4: Address already assigned")
        siblings = self.on_port(link.parent) if link.kind == "ipvlan" and link.parent is not None else ()
        if any(address.ip == other.ip for sibling in siblings for other in sibling.addresses):
            refuse(errno.EADDRINUSE, "Address already assigned to an ipvlan device")
        link.addresses.append(address)

    def delete_address(self, link: FakeLink, address: Interface) -> None:
        """Take an address from a link, and the routes that need it."""
        if address not in link.addresses:
            refuse(errno.EADDRNOTAVAIL, "" if address.version == 6 else "ipv4: Address not found")
        link.addresses.remove(address)
        link.namespace.way.address_gone(link, address.ip)

    def _check_raise(self, link: FakeLink, parent: FakeLink) -> None:
        if link.kind == "vlan" and not parent.up:
            refuse(errno.ENETDOWN)
        if link.kind == "macvlan" and link.mode != _MODE_PASSTHRU:
            others = [parent, *(s for s in self.on_port(parent) if s.up)]
            if link.mac in [other.mac for other in others]:
                refuse(errno.EADDRINUSE)

    @staticmethod
    def _free_name(target: FakeNamespace, kind: str) -> str:
        number = 0
        while target.by_name(f"{kind}{number}") is not None:
            number += 1
        return f"{kind}{number}"


def _check_mtu(mtu: int) -> None:
    if mtu and not _MTU_MIN <= mtu <= _MTU_MAX:
        word, end = ("less", "minimum") if mtu < _MTU_MIN else ("greater", "maximum")
        refuse(errno.EINVAL, f"mtu {word} than device {end}")


def _real_parent(parent: FakeLink, kind: str) -> FakeLink:
    """A link of the same kind is no parent: what it sits on is."""
    return parent.parent if parent.kind == kind and parent.parent is not None else parent
