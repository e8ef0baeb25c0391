"""Which host must know a way to which task: for networks whose addresses nobody on the LAN answers for. Pure.

A task on an ipvlan network in mode l3 or l3s is reached through its host: whoever sends to it needs a route to its address
through that host's own address on the network's parent interface. Every host that runs a task of such a network gets routes
to the tasks of that network on all other hosts.

The table follows tasks and nodes one by one, and tells through `touch` whose routes may have become others: a change costs as
much as there are hosts on the network, whatever the number of its tasks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from beeyard.core.grant import AddressGrant
from beeyard.core.model import Node, Task
from beeyard.core.network_options import is_routed
from beeyard.core.wire import HostRoute

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class _Place(NamedTuple):
    """Where one address is."""

    destination: str
    network_id: str
    node_id: str
    parent: str


class RouteTable:
    """Args:
    nodes: all nodes as they are now, by id.
    touch: called with a node and a destination whose route there may have changed, None for all of them.
    """

    def __init__(self, nodes: Mapping[str, Node], touch: Callable[[str, str | None], None]) -> None:
        self._nodes = nodes
        self._touch = touch
        self._places: dict[str, tuple[_Place, ...]] = {}  # by task
        self._owners: dict[str, dict[str, _Place]] = {}  # by destination and task
        self._members: dict[str, dict[str, dict[str, str]]] = {}  # by network, node and task: the parent interface
        self._networks: dict[str, dict[str, None]] = {}  # by node: the networks that it has tasks of

    def set_task(self, task_id: str, task: Task | None) -> None:
        """Take over what became of a task; None: it is gone."""
        before, now = self._places.get(task_id, ()), _places(task)
        if before == now:
            return
        for place in before:
            self._drop(task_id, place)
        self._places.pop(task_id, None)
        if now:
            self._places[task_id] = now
        for place in now:
            self._add(task_id, place)

    def set_node(self, old: Node | None, new: Node | None) -> None:
        """Take over what became of a node: others reach its tasks through its own addresses."""
        node = new or old
        if node is None or node.id not in self._networks:
            return
        if old is not None and new is not None and _ways(old) == _ways(new):
            return
        self._touch(node.id, None)
        for network_id in self._networks[node.id]:
            tasks = self._members[network_id][node.id]
            for place in (place for task_id in tasks for place in self._places[task_id]):
                self._touch_others(place)

    def route(self, node_id: str, destination: str) -> HostRoute | None:
        """How a node gets to a destination; None when it needs no route there."""
        mine = self._networks.get(node_id, {})
        owners = [p for p in self._owners.get(destination, {}).values() if p.network_id in mine]
        if not owners or any(place.node_id == node_id for place in owners):
            return None
        place = owners[0]
        parent = next(iter(self._members[place.network_id][node_id].values()))
        other = self._nodes.get(place.node_id)
        via = next_hop(other, place.parent, self._nodes.get(node_id), parent, 6 if ":" in destination else 4)
        name = (other.description.hostname if other is not None else "") or place.node_id
        return HostRoute(destination=destination, via=via, parent=parent, node=name)

    def routes(self, node_id: str) -> Iterator[HostRoute]:
        """All routes of a node."""
        seen: dict[str, None] = {}
        for network_id in self._networks.get(node_id, ()):
            for tasks in self._members[network_id].values():
                seen.update((p.destination, None) for task_id in tasks for p in self._places[task_id])
        for destination in seen:
            route = self.route(node_id, destination)
            if route is not None:
                yield route

    def _add(self, task_id: str, place: _Place) -> None:
        self._owners.setdefault(place.destination, {})[task_id] = place
        nodes = self._members.setdefault(place.network_id, {})
        if place.node_id not in nodes:
            nodes[place.node_id] = {}
            self._networks.setdefault(place.node_id, {})[place.network_id] = None
            self._touch(place.node_id, None)
        nodes[place.node_id][task_id] = place.parent
        self._touch(place.node_id, place.destination)
        self._touch_others(place)

    def _drop(self, task_id: str, place: _Place) -> None:
        owners = self._owners[place.destination]
        owners.pop(task_id, None)
        if not owners:
            del self._owners[place.destination]
        nodes = self._members.get(place.network_id, {})
        tasks = nodes.get(place.node_id, {})
        tasks.pop(task_id, None)
        self._touch_others(place)
        self._touch(place.node_id, place.destination)
        if place.node_id in nodes and not tasks:
            del nodes[place.node_id]
            networks = self._networks[place.node_id]
            del networks[place.network_id]
            if not networks:
                del self._networks[place.node_id]
            if not nodes:
                del self._members[place.network_id]
            self._touch(place.node_id, None)

    def _touch_others(self, place: _Place) -> None:
        for node_id in self._members.get(place.network_id, ()):
            if node_id != place.node_id:
                self._touch(node_id, place.destination)


def next_hop(other: Node | None, parent: str, own: Node | None, own_parent: str, version: int) -> str:
    """The address of another node through which this one reaches tasks on its parent interface; "" when there is none.

    An address on a subnet that both have on their parents goes first, then a link-local one, which can be reached when the
    parents are on one LAN; then any other one of that interface, and last the one that the manager knows the node by.
    """
    if other is None:
        return ""
    theirs = [interface for interface in _addresses(other, parent) if interface.version == version]
    known = _known_address(other, version)
    candidates = [i.ip for i in theirs if not i.ip.is_link_local] + known
    subnets = [i.network for i in _addresses(own, own_parent)] if own is not None else []
    near = [ip for ip in candidates if any(ip in subnet for subnet in subnets)]
    local = [i.ip for i in theirs if i.ip.is_link_local]
    return next((str(ip) for ip in (*near, *local, *candidates)), "")


def _known_address(node: Node, version: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        ip = ipaddress.ip_address(node.status.address)
    except ValueError:
        return []
    return [ip] if ip.version == version else []


def _addresses(node: Node, parent: str) -> list[Interface]:
    links = [link for link in node.description.links if link.name == parent]
    return [ipaddress.ip_interface(text) for link in links for text in link.addresses]


def _ways(node: Node) -> tuple[object, ...]:
    """All of a node that routes depend on."""
    return node.status.address, [(link.name, link.addresses) for link in node.description.links]


def _places(task: Task | None) -> tuple[_Place, ...]:
    if task is None or not task.grants or not task.holds_room:
        return ()
    return tuple(
        _Place(_destination(text), grant.network_id, task.node_id, grant.parent)
        for grant in task.grants
        if isinstance(grant, AddressGrant) and is_routed(grant.driver, grant.mode)
        for text in grant.addresses
    )


def _destination(text: str) -> str:
    address = text.partition("/")[0]
    return f"{address}/{128 if ':' in address else 32}"


__all__ = ["RouteTable", "next_hop"]
