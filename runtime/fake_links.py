"""Links, addresses and routes of a simulated host, and what Linux says to each change of them.

The rules are those that matter to somebody who attaches macvlan links; error numbers are Linux's, checked against the
real kernel by the same conformance function. `runtime.fake_kernel` speaks netlink on top of this.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import os
import zlib
from typing import NoReturn

from beeyard.runtime.host import RequestRefused
from beeyard.runtime.netlink_format import MACVLAN_MODES

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MTU_MIN, _MTU_MAX, _IPV6_MTU_MIN = 68, 65535, 1280
_MODE_PASSTHRU, _MODE_SOURCE = MACVLAN_MODES["passthru"], MACVLAN_MODES["source"]


def refuse(code: int, said: str = "") -> NoReturn:
    """Answer with an error number, and an extended message when Linux has one."""
    raise RequestRefused(code, said or os.strerror(code))


@dataclasses.dataclass(eq=False)
class FakeRoute:
    """A default route."""

    link: FakeLink
    gateway: Address
    metric: int


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
    mode: int = 0  # macvlan's, as a number
    makes_own_addresses: bool = True
    taken_by: str = ""  # what receives its packets: "macvlan", "ipvlan" or another kind; "" when nothing does
    addresses: list[Interface] = dataclasses.field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether somebody on the LAN gets an answer from this link's addresses."""
        deaf = self.kind == "macvlan" and self.mode == _MODE_SOURCE
        return self.up and not self.loopback and not deaf and (self.parent is None or self.parent.up)


class FakeNamespace:
    """A network namespace: what `ip` would show in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.links: dict[int, FakeLink] = {}
        self.routes: list[FakeRoute] = []
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
        self._n_macs += 1
        return (bytes([2]) + (self._seed & 0xFFFFFF).to_bytes(3, "big") + self._n_macs.to_bytes(2, "big")).hex(":")

    def children(self, parent: FakeLink) -> list[FakeLink]:
        """The links that sit on one, in all namespaces."""
        return [link for n in self.namespaces.values() for link in n.links.values() if link.parent is parent]

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
        lists_senders: bool,
    ) -> FakeLink:
        """As `macvlan_common_newlink`: the order of the checks is the kernel's."""
        if mac and (int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00"):
            refuse(errno.EADDRNOTAVAIL)
        if mtu and not _MTU_MIN <= mtu <= _MTU_MAX:
            refuse(
                errno.EINVAL,
                f"mtu {'less' if mtu < _MTU_MIN else 'greater'} than device m{'in' if mtu < _MTU_MIN else 'ax'}imum",
            )
        if parent.kind == "macvlan" and parent.parent is not None:
            parent = parent.parent
        if mtu > parent.mtu or parent.loopback:
            refuse(errno.EINVAL)
        if parent.taken_by not in ("", "macvlan"):
            refuse(errno.EBUSY)
        siblings = self.children(parent)
        if any(s.mode == _MODE_PASSTHRU for s in siblings) or (mode == _MODE_PASSTHRU and siblings):
            refuse(errno.EINVAL)
        if lists_senders and mode != _MODE_SOURCE:
            refuse(errno.EINVAL)
        link = target.add(
            name or self._free_name(target), mac=mac or self.draw_mac(), mtu=mtu or parent.mtu, index=index
        )
        link.kind, link.parent, link.mode = "macvlan", parent, mode
        parent.taken_by = "macvlan"
        return link

    def delete(self, link: FakeLink) -> None:
        """Delete a link and what sits on it."""
        if link.loopback:
            refuse(errno.EOPNOTSUPP)
        for child in self.children(link):
            self.delete(child)
        del link.namespace.links[link.index]
        link.namespace.routes = [route for route in link.namespace.routes if route.link is not link]
        if link.parent is not None and not self.children(link.parent):
            link.parent.taken_by = ""  # the kernel's macvlan port goes with its last link

    def drop(self, namespace: FakeNamespace) -> None:
        """Delete a namespace with all its links."""
        for link in list(namespace.links.values()):
            if not link.loopback:
                self.delete(link)
        del self.namespaces[namespace.path]

    def set_up(self, link: FakeLink, up: bool) -> None:
        """Take a link up or down. Down loses its routes and its IPv6 addresses, as Linux does by default."""
        if up and not link.up and link.kind == "macvlan" and link.parent is not None:
            others = [link.parent, *(s for s in self.children(link.parent) if s.up)]
            if link.mac in [other.mac for other in others]:
                refuse(errno.EADDRINUSE)
        if up and link.loopback and not link.up:
            link.addresses = [ipaddress.ip_interface("127.0.0.1/8"), ipaddress.ip_interface("::1/128")]
        if not up:
            link.addresses = [a for a in link.addresses if a.version == 4]
            link.namespace.routes = [route for route in link.namespace.routes if route.link is not link]
        link.up = up

    def change_mode(self, link: FakeLink, mode: int) -> None:
        """Change a macvlan link's mode; passthru cannot be entered or left."""
        if (mode == _MODE_PASSTHRU) != (link.mode == _MODE_PASSTHRU):
            refuse(errno.EINVAL)
        link.mode = mode

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
        link.addresses.append(address)

    def delete_address(self, link: FakeLink, address: Interface) -> None:
        """Take an address from a link, and the routes whose gateway can no longer be reached."""
        if address not in link.addresses:
            refuse(errno.EADDRNOTAVAIL, "" if address.version == 6 else "ipv4: Address not found")
        link.addresses.remove(address)
        routes = link.namespace.routes
        link.namespace.routes = [r for r in routes if r.link is not link or _reaches(link, r.gateway)]

    def add_default_route(self, link: FakeLink, gateway: Address, metric: int) -> None:
        """A default route through a gateway that must be on the link's subnet."""
        if gateway.version == 6 and link.mtu < _IPV6_MTU_MIN:
            refuse(errno.ENODEV)
        if gateway.version == 4 and not (link.up and _reaches(link, gateway)):
            refuse(errno.ENETUNREACH, "Nexthop has invalid gateway")
        if gateway.version == 6 and not link.up:
            refuse(errno.ENETDOWN)
        if gateway.version == 6 and not _reaches(link, gateway):
            refuse(errno.EHOSTUNREACH)
        if any(r.metric == metric and r.gateway.version == gateway.version for r in link.namespace.routes):
            refuse(errno.EEXIST)
        link.namespace.routes.append(FakeRoute(link, gateway, metric))

    def _free_name(self, target: FakeNamespace) -> str:
        number = 0
        while target.by_name(f"macvlan{number}") is not None:
            number += 1
        return f"macvlan{number}"


def _reaches(link: FakeLink, gateway: Address) -> bool:
    return gateway.is_link_local or any(gateway in address.network for address in link.addresses)
