"""What nodes are (labels, platform, links, images) as columns of interned numbers, and which demands that rules out.

None of this changes when a task is placed, so the answer for a kind of demand is worked out once, as one code for each row of
the kernel's table, and kept until a node or a network changes. A predicate is evaluated once for each distinct *value* of a
property and spread over the rows by indexing; a cluster of 100,000 nodes has a handful of racks and platforms.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import constraint
from beeyard.core.demand import PoolColumn
from beeyard.core.errors import InvalidSpec
from beeyard.core.interned_column import SHAPES_MAX, Codes, Column, Read
from beeyard.core.model import Node, Platform
from beeyard.core.mounts import NO_LOG
from beeyard.core.network_options import KIND_ALONE, vlan_of
from beeyard.core.parent_links import LinkUse, ParentLinks
from beeyard.core.reasons import Reason
from beeyard.core.rtt_rows import RttRows

# 190: what is left of a byte above the kernel's own verdicts (filters.pxd).
CODES_MAX = 190

# What an agent's report says of a parent.
USABLE, MISSING, NO_VLAN, BY_MACVLAN, BY_IPVLAN = range(5)

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Pool(msgspec.Struct, frozen=True):
    """A pool as one network uses it."""

    name: str
    parent: str
    nodes: str  # constraints separated by commas; "": all nodes
    row: int  # in the kernel's column of free addresses
    kind: str = "macvlan"  # of the links that the network makes on the parent
    subnets: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: PoolColumn, row: int) -> Pool:
        """A pool that has got its row."""
        return cls(column.name, column.parent, column.nodes, row, column.kind, column.subnets)

    def has(self, addresses: tuple[str, ...]) -> bool:
        """Whether its subnets have all of some addresses."""
        subnets = [ipaddress.ip_network(subnet) for subnet in self.subnets]
        return all(any(ipaddress.ip_address(a) in subnet for subnet in subnets) for a in addresses)


class NetworkShape(msgspec.Struct, frozen=True):
    """A network as placement sees it; pools in order of their names."""

    network_id: str
    name: str
    driver: str
    pools: tuple[Pool, ...]

    def link_in(self, row: int) -> LinkUse:
        """The link of a task that gets its address in the pool of this row."""
        return next((pool.parent, pool.kind) for pool in self.pools if pool.row == row)


class Fit(msgspec.Struct):
    """What a kind of demand meets on each row: a code (0: fits) and the pools that may serve it."""

    epoch: int
    codes: Codes
    reasons: list[tuple[Reason, str]]  # by code, from 1
    pools: NDArray[np.int32]  # (rows, columns): pool rows, the networks side by side; -1: none
    network_begin: NDArray[np.int32]
    links: list[
        dict[int, LinkUse]
    ]  # for each network with pools: the link of a task that gets its address in a pool's row
    contested: tuple[NDArray[np.int32], NDArray[np.int32]] | None  # the same as the kernel reads it, where it has to
    # Rows with code 0 in the index of the table's rows, as it was in this generation; None: all rows.
    passing: NDArray[np.uint64] | None = None
    generation: int = 0


class NodeColumns:
    """The nodes by row, and the fits derived from them. `epoch` rises with every change that may alter a fit."""

    def __init__(self, links: ParentLinks) -> None:
        self.epoch = 0
        self._links = links
        self.nodes: list[Node | None] = []
        self.ids: list[str] = []  # of the nodes; "" where none is
        self._columns: dict[str, Column] = {}
        self._rtt = RttRows()
        self._fits: dict[Hashable, Fit] = {}

    def copy(self, links: ParentLinks) -> NodeColumns:
        """One of its own to try things on; what was derived is shared."""
        twin = NodeColumns(links)
        twin.epoch, twin.nodes, twin.ids = self.epoch, list(self.nodes), list(self.ids)
        twin._columns = {name: column.copy() for name, column in self._columns.items()}
        twin._rtt, twin._fits = self._rtt.copy(), dict(self._fits)
        return twin

    def set(self, row: int, node: Node) -> None:
        """Store a node. Nothing is derived anew when no property that was ever asked for has changed."""
        if row >= len(self.nodes):
            self.ids.extend([""] * (row + 1 - len(self.nodes)))
            self.nodes.extend([None] * (row + 1 - len(self.nodes)))
            self.epoch += 1
        self.nodes[row], self.ids[row] = node, node.id
        # Every column must take the node, so this is no any() over a generator, which would stop at the first change.
        changed = [column.set(row, node) for column in self._columns.values()]
        self.epoch += self._rtt.set(row, node) or any(changed)

    def remove(self, row: int) -> None:
        """Forget the row's node; its codes do not matter until the row is used again."""
        self.nodes[row], self.ids[row] = None, ""
        self.epoch += self._rtt.set(row, None)  # others may have to be near this one

    def touch(self) -> None:
        """A network changed: derive everything anew."""
        self.epoch += 1

    def rows_where(self, name: str, question: Hashable, answer: Callable[[Any], int]) -> NDArray[np.bool_]:
        """By row: whether a property of the nodes, such as "node.labels.rack", passes; the question stands for the answer."""
        rows: NDArray[np.bool_] = self._ask(name, question, answer) != 0
        return rows

    def fit(
        self,
        image: str,
        constraints: tuple[str, ...],
        platforms: tuple[Platform, ...],
        networks: tuple[tuple[str, NetworkShape | None], ...],
        *,
        pins: tuple[str, ...] = (),
        forwards_ports: bool = False,
        plugins: tuple[tuple[str, str], ...] = (),
    ) -> Fit:
        """The fit for a kind of demand. Networks are given by id with what is known of them, plugins by kind and name."""
        network_ids = tuple(network_id for network_id, _ in networks)
        key = (image, constraints, platforms, network_ids, pins, forwards_ports, plugins)
        fit = self._fits.pop(key, None)
        if fit is None or fit.epoch != self.epoch:
            fit = self._derive(image, constraints, platforms, networks, pins, forwards_ports, plugins)
            while len(self._fits) >= SHAPES_MAX:
                self._fits.pop(next(iter(self._fits)))
        self._fits[key] = fit  # last in the dict: used most recently
        return fit

    def _derive(
        self,
        image: str,
        constraints: tuple[str, ...],
        platforms: tuple[Platform, ...],
        networks: tuple[tuple[str, NetworkShape | None], ...],
        pins: tuple[str, ...],
        forwards_ports: bool,
        plugins: tuple[tuple[str, str], ...],
    ) -> Fit:
        build = _Build(len(self.nodes))
        if image:
            build.rule_out(
                self._ask("image", ("image", image), lambda images: _runs(images, image)) == 0, Reason.IMAGE, image
            )
        if forwards_ports:
            build.rule_out(self._ask("forwards_ports", "forwards_ports", int) == 0, Reason.NO_FORWARDING)
        for kind, name in plugins:
            has_plugin = self._ask(f"{kind} plugins", ("plugin", name), partial(_HAS_PLUGIN[kind], name))
            build.rule_out(has_plugin == 0, Reason.PLUGIN, f"{kind} driver {name}")
        for network_id, network in networks:
            self._add_network(build, network_id, network, pins)
        for expression in constraints:
            build.rule_out(~self._matches((expression,)), Reason.CONSTRAINT)
        if platforms:
            fits = self._ask("platform", ("platform", platforms), lambda platform: _runs_on(platform, platforms))
            build.rule_out(fits == 0, Reason.PLATFORM)
        width = sum(part.shape[1] for part in build.pools)
        pools = np.concatenate(build.pools, axis=1) if width else np.full((len(self.nodes), 0), -1, dtype=np.int32)
        begin = np.cumsum([0, *(part.shape[1] for part in build.pools)], dtype=np.int32)
        shapes = [shape for _, shape in networks if shape and shape.driver != "host"]
        links = [{pool.row: (pool.parent, pool.kind) for pool in shape.pools} for shape in shapes]
        pools = np.ascontiguousarray(pools)
        return Fit(self.epoch, build.codes, build.reasons, pools, begin, links, self._contested_links(links))

    def _contested_links(
        self, links: Sequence[dict[int, LinkUse]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
        """Parent and kind by network and pool row, None when nobody could be in the way of any of these links."""
        if all(self._links.index(parent) < 0 for of_network in links for parent, _ in of_network.values()):
            return None
        shape = (len(links), 1 + max(max(of_network, default=0) for of_network in links))
        parents, kinds = np.full(shape, -1, dtype=np.int32), np.zeros(shape, dtype=np.int32)
        for number, of_network in enumerate(links):
            for row, (parent, kind) in of_network.items():
                parents[number, row] = self._links.index(parent)
                kinds[number, row] = self._links.number(kind)
        return parents, kinds

    def _add_network(self, build: _Build, network_id: str, network: NetworkShape | None, pins: tuple[str, ...]) -> None:
        """Rule out rows that cannot attach, and add the pools that serve the others."""
        size = len(self.nodes)
        if network is None:
            build.rule_out(np.ones(size, dtype=bool), Reason.UNKNOWN_NETWORK, network_id)
            return
        if network.driver == "host":
            return
        has_driver = self._ask("links", ("driver", network.driver), lambda links: network.driver in links[0])
        build.rule_out(has_driver == 0, Reason.PLUGIN, f"network driver {network.driver}")
        pools = [pool for pool in network.pools if not pins or pool.has(pins)]
        part = np.full((size, 1), -1, dtype=np.int32)
        used = np.zeros(size, dtype=np.int32)
        states = {of: self._parent(*of) for of in dict.fromkeys((pool.kind, pool.parent) for pool in pools)}
        for pool in pools:
            rows = np.flatnonzero(self._serves(pool) & (states[pool.kind, pool.parent] == USABLE))
            if len(rows) and used[rows].max() == part.shape[1]:
                part = np.concatenate([part, np.full((size, 1), -1, dtype=np.int32)], axis=1)
            part[rows, used[rows]] = pool.row
            used[rows] += 1
        for pool in pools if not used.all() else ():
            without, state = self._serves(pool) & (used == 0), states[pool.kind, pool.parent]
            where = f"{pool.parent} for network {network.name}"
            build.rule_out(without & (state == MISSING), Reason.PARENT_MISSING, where)
            build.rule_out(without & (state == NO_VLAN), Reason.PLUGIN, "network driver vlan")
            for taken, by in ((BY_MACVLAN, "macvlan"), (BY_IPVLAN, "ipvlan")):
                build.rule_out(without & (state == taken), Reason.PARENT_TAKEN, f"{where} is used by {by}")
        if pins:
            build.rule_out(used == 0, Reason.NO_PINNED_POOL, f"{', '.join(pins)} in network {network.name}")
        build.rule_out(used == 0, Reason.NO_POOL, network.name)
        build.pools.append(part)

    def _serves(self, pool: Pool) -> NDArray[np.bool_]:
        return self._matches(constraint.split(pool.nodes))

    def _parent(self, kind: str, parent: str) -> Codes:
        """The `_parent_state` of each row."""
        return self._ask("links", ("parent", kind, parent), partial(_parent_state, parent=parent, kind=kind))

    def _matches(self, expressions: tuple[str, ...]) -> NDArray[np.bool_]:
        """Rows whose nodes satisfy all constraints. One that does not parse is satisfied by none."""
        matching = np.ones(len(self.nodes), dtype=bool)
        for expression in expressions:
            try:
                parsed = constraint.parse(expression)
            except InvalidSpec:
                return np.zeros(len(self.nodes), dtype=bool)
            if parsed.rtt_limit_s is not None:
                matching &= self._rtt.compare(self.nodes, parsed.rtt_target, parsed.rtt_limit_s, near=parsed.equal)
            else:
                matching &= self._ask(parsed.key, ("constraint", parsed), parsed.accepts) != 0
        return matching

    def values(self, name: str) -> tuple[NDArray[np.int32], list[Any]]:
        """A property by row, as numbers in a list of its values."""
        column = self._column(name)
        return column.ids[: len(self.nodes)], column.values

    def _ask(self, name: str, question: Hashable, answer: Callable[[Any], int]) -> Codes:
        return self._column(name).answers(question, answer, len(self.nodes))

    def _column(self, name: str) -> Column:
        if name not in self._columns:
            read = _READ.get(name) or (lambda node: constraint.node_property(name, node))
            self._columns[name] = Column(read, self.nodes)
        return self._columns[name]


class _Build:
    """A fit in the making."""

    def __init__(self, size: int) -> None:
        self.codes: Codes = np.zeros(size, dtype=np.uint8)
        self.reasons: list[tuple[Reason, str]] = []
        self.pools: list[NDArray[np.int32]] = []

    def rule_out(self, rows: NDArray[np.bool_], reason: Reason, detail: str = "") -> None:
        """Give a code to the rows that have none yet."""
        rows = rows & (self.codes == 0)
        if not rows.any():
            return
        if (reason, detail) not in self.reasons:
            # The last code is kept for everything that a demand with very many parents could not tell apart otherwise.
            if len(self.reasons) == CODES_MAX:
                self.codes[rows] = CODES_MAX
                return
            self.reasons.append((reason, detail))
        self.codes[rows] = self.reasons.index((reason, detail)) + 1


def _runs(images: tuple[str, ...], image: str) -> int:
    """Whether a node with these images runs one. "*" stands for all, a missing tag for `latest`; a digest is not compared."""
    name = image.partition("@")[0].removesuffix(":latest")
    return "*" in images or name in images or f"{name}:latest" in images


def _has_log_driver(name: str, listed: tuple[str, ...]) -> int:
    """Whether a node can send output there: it lists none when it does not say what it has."""
    return name == NO_LOG or not listed or _has_driver(name, listed)


def _has_driver(name: str, listed: tuple[str, ...]) -> int:
    return name in listed or f"{name}:latest" in listed


_HAS_PLUGIN: dict[str, Callable[[str, tuple[str, ...]], int]] = {"log": _has_log_driver, "volume": _has_driver}


def _platform(node: Node) -> tuple[str, str]:
    platform = node.description.platform
    return _ARCHITECTURES.get(platform.architecture, platform.architecture), platform.os


def _runs_on(actual: tuple[str, str], platforms: tuple[Platform, ...]) -> int:
    """Whether one of the wanted platforms is the node's, which must be known; empty wanted fields match any."""
    architecture, os = actual
    return any(
        (architecture or os)
        and _ARCHITECTURES.get(wanted.architecture, wanted.architecture) in ("", architecture)
        and wanted.os in ("", os)
        for wanted in platforms
    )


def _links(node: Node) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What attaching depends on: kinds that the kernel can create; names of links with the kind of their children."""
    description = node.description
    return description.link_kinds, tuple(sorted((link.name, link.child_kind) for link in description.links))


def _parent_state(links: tuple[tuple[str, ...], tuple[tuple[str, str], ...]], parent: str, kind: str) -> int:
    """Whether a link of a kind can be put on a parent, as far as the agent says."""
    link_kinds, child_kinds = links[0], dict(links[1])
    if parent not in child_kinds:
        vlan = vlan_of(parent)
        if vlan is None or vlan.is_nested or vlan.base not in child_kinds:
            return MISSING
        # The agent makes the sub-interface when the first task needs it.
        return USABLE if "vlan" in link_kinds else NO_VLAN
    child_kind = child_kinds[parent]
    if child_kind == "" or (child_kind == kind.partition(" ")[0] and kind != KIND_ALONE):
        return USABLE
    return BY_MACVLAN if child_kind == "macvlan" else BY_IPVLAN


_READ: dict[str, Read] = {
    "image": lambda node: node.description.images,
    "platform": _platform,
    "links": _links,
    "forwards_ports": lambda node: node.description.forwards_ports,
    "log plugins": lambda node: node.description.log_drivers,
    "volume plugins": lambda node: node.description.volume_drivers,
}

__all__ = ["Fit", "NetworkShape", "NodeColumns", "Pool"]
