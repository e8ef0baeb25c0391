"""Routes and permanent neighbours of a simulated namespace, with Linux's answers. See `runtime.fake_links`."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
from typing import TYPE_CHECKING

from beeyard.runtime.fake_refuse import refuse

if TYPE_CHECKING:
    from beeyard.runtime.fake_links import FakeLink

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network

# What Linux gives an IPv6 route without a metric.
_IPV6_METRIC = 1024
_IPV6_MTU_MIN = 1280


@dataclasses.dataclass(eq=False)
class FakeRoute:
    """A route of the main table."""

    link: FakeLink
    destination: Subnet
    gateway: Address | None
    metric: int
    protocol: int = 0
    source: Address | None = None

    @property
    def is_default(self) -> bool:
        """Whether it leads everywhere."""
        return self.destination.prefixlen == 0


class FakeRoutes:
    """What one namespace knows of the way to others."""

    def __init__(self) -> None:
        self.routes: list[FakeRoute] = []
        # (index of the link, address) → MAC address.
        self.neighbours: dict[tuple[int, Address], str] = {}
        # Rules in order of priority: (priority, source, table); and what leads out of tables of their own: (table, route).
        self.rules: list[tuple[int, Address, int]] = []
        self.other_tables: list[tuple[int, FakeRoute]] = []

    def add(self, route: FakeRoute, *, exclusive: bool, replace: bool) -> None:
        """A new route, or one in place of another with the same destination and metric."""
        link, version = route.link, route.destination.version
        if version == 6 and link.mtu < _IPV6_MTU_MIN:
            refuse(errno.ENODEV)
        if version == 6 and not route.metric:
            route.metric = _IPV6_METRIC
        self._check_gateway(route)
        if route.source is not None and not self._is_own(route.source, link):
            refuse(errno.EINVAL, "Invalid prefsrc address" if version == 4 else "Invalid source address")
        same = [r for r in self.routes if (r.destination, r.metric) == (route.destination, route.metric)]
        if same and (exclusive or not replace):
            refuse(errno.EEXIST)
        self.routes = [r for r in self.routes if r not in same[:1]]
        self.routes.append(route)

    def add_to_table(self, table: int, route: FakeRoute) -> None:
        """A route that only rules lead to."""
        self._check_gateway(route)
        if any(t == table and r.destination == route.destination for t, r in self.other_tables):
            refuse(errno.EEXIST)
        self.other_tables.append((table, route))

    def add_rule(self, priority: int, source: Address, table: int) -> None:
        """What is sent from an address looks into a table."""
        if (priority, source, table) in self.rules:
            refuse(errno.EEXIST)
        self.rules = sorted([*self.rules, (priority, source, table)], key=str)

    def delete(self, destination: Subnet, index: int, protocol: int, metric: int) -> None:
        """Delete the first route that fits; 0 stands for any metric or protocol."""
        for route in self.routes:
            fits = route.destination == destination and index in (0, route.link.index)
            if fits and protocol in (0, route.protocol) and metric in (0, route.metric):
                self.routes.remove(route)
                return
        refuse(errno.ESRCH)

    def link_gone(self, link: FakeLink) -> None:
        """A link went down or away: with it go its routes and neighbours."""
        self.routes = [route for route in self.routes if route.link is not link]
        self.other_tables = [(table, route) for table, route in self.other_tables if route.link is not link]
        self.neighbours = {key: mac for key, mac in self.neighbours.items() if key[0] != link.index}

    def address_gone(self, link: FakeLink, address: Address) -> None:
        """A link lost an address: so do routes whose gateway is out of reach now, or that speak in its name."""
        self.routes = [
            route
            for route in self.routes
            if not (route.link is link and route.gateway is not None and not reaches(link, route.gateway))
            and route.source != address
        ]

    def delete_neighbour(self, index: int, address: Address) -> None:
        """Forget a neighbour."""
        if self.neighbours.pop((index, address), None) is None:
            refuse(errno.ENOENT)

    @staticmethod
    def _check_gateway(route: FakeRoute) -> None:
        link, gateway = route.link, route.gateway
        reached = gateway is None or reaches(link, gateway)
        if route.destination.version == 4 and gateway is not None and not (link.up and reached):
            refuse(errno.ENETUNREACH, "Nexthop has invalid gateway")
        if not link.up:
            refuse(errno.ENETDOWN, "Device for nexthop is not up" if route.destination.version == 4 else "")
        if not reached:
            refuse(errno.EHOSTUNREACH)

    @staticmethod
    def _is_own(source: Address, link: FakeLink) -> bool:
        return any(source == address.ip for own in link.namespace.links.values() for address in own.addresses)


def reaches(link: FakeLink, gateway: Address) -> bool:
    """Whether a gateway is on the link's subnets."""
    return gateway.is_link_local or any(gateway in address.network for address in link.addresses)
