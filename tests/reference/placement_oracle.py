"""The rule of placement in plain Python, one task and one node at a time: slow, short, and written from the rule.

A task goes to the node in the least loaded branches, if it has preferences, then with the fewest tasks of its service, then
the fewest tasks, then the smallest tie-break, among those that pass every filter. A node counts under the first filter that
it fails.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from beeyard.core import constraint
from beeyard.core.model import Node
from beeyard.core.placement import Demand, PoolColumn
from beeyard.core.resources import Resources
from beeyard.core.states import Availability, NodeState
from tests.reference.volume_oracle import VolumeOracle

AMD64 = {"x86_64": "amd64", "aarch64": "arm64"}


class Held:
    def __init__(
        self,
        demand: Demand,
        node_id: str,
        plans: tuple[str, ...],
        *,
        placed: bool,
        links: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.demand, self.node_id, self.plans, self.placed, self.links = demand, node_id, plans, placed, links
        self.volume_ids: list[str] = []  # one for each mount of the demand


class PlacementOracle:
    """Same calls as `PlacementIndex`; `tie_break` gives the number that decides between equal nodes."""

    def __init__(self, tie_break: dict[str, int]) -> None:
        self.tie_break = tie_break
        self.nodes: dict[str, Node] = {}
        self.networks: dict[str, tuple[str, list[PoolColumn]]] = {}
        self.free: dict[str, int] = {}
        self.holds: dict[str, Held] = {}
        self.volumes = VolumeOracle()
        self.failures: list[tuple[str, int, str, float]] = []  # (service, spec version, node, when)
        self.now_s = 0.0

    def set_network(self, network_id: str, driver: str, pools: Sequence[PoolColumn]) -> None:
        self.networks[network_id] = (driver, sorted(pools, key=lambda pool: (pool.name, pool.pool_id)))
        self.free.update({pool.pool_id: pool.free for pool in pools})

    def place(
        self, demand: Demand, task_ids: Sequence[str], masked: Collection[str] = ()
    ) -> list[tuple[str, tuple[str, ...]]]:
        placed = []
        for task_id in task_ids:
            fitting = [n for n in self.may_go_to(demand) if self.refusal(demand, n, masked) is None]
            if not fitting:
                break
            best = min(fitting, key=lambda n: self.rank(demand, n))
            pools = self.pools_for(demand, best)
            assert isinstance(pools, list)
            chosen, links = tuple(pool.pool_id for pool in pools), [(pool.parent, pool.kind) for pool in pools]
            volumes = self.choose_volumes(demand, best)
            assert volumes is not None
            self.holds[task_id] = Held(demand, best, () if demand.pins else chosen, placed=True, links=links)
            self.holds[task_id].volume_ids = volumes
            placed.append((best, chosen))
        return placed

    def rank(self, demand: Demand, node_id: str) -> tuple[Any, ...]:
        """The smaller, the better. Branches come first, outermost first; then five failures of the service in the last five
        minutes; then counts.
        """
        key = demand.service_id, demand.spec_version, node_id
        failures = sum(key == (*of,) and at_s > self.now_s - 300 for *of, at_s in self.failures)
        faulty = failures if failures >= 5 and not demand.node_id else 0
        counts = self.on(node_id, demand.service_id), self.on(node_id), self.tie_break[node_id]
        return *self.loads(demand, node_id), faulty, *counts

    def loads(self, demand: Demand, node_id: str) -> list[tuple[bool, Fraction]]:
        """Of the branches that a node is in: the service's tasks there, the next one included, for each of its weight."""
        loads = []
        for level, preference in enumerate(demand.preferences, 1):
            path = self.path(demand, node_id, level)
            others = [n for n in self.nodes if self.path(demand, n, level) == path]
            n_tasks = 1 + sum(self.on(n, demand.service_id) for n in others)
            weight = dict(preference.weights).get(path[-1], 1)
            loads.append((preference.unlabelled_last and not path[-1], Fraction(n_tasks, weight)))
        return loads

    def path(self, demand: Demand, node_id: str, n_levels: int) -> list[str]:
        descriptors = [preference.descriptor for preference in demand.preferences[:n_levels]]
        return [constraint.node_property(descriptor, self.nodes[node_id]) for descriptor in descriptors]

    def may_go_to(self, demand: Demand) -> list[str]:
        return [node_id for node_id in self.nodes if demand.node_id in ("", node_id)]

    def choose_volumes(self, demand: Demand, node_id: str) -> list[str] | None:
        uses = [
            (volume_id, held.node_id, mount.read_only)
            for held in self.holds.values()
            for volume_id, mount in zip(held.volume_ids, held.demand.volumes, strict=False)
        ]
        return self.volumes.choose(demand.volumes, self.nodes[node_id], uses)

    def on(self, node_id: str, service_id: str = "") -> int:
        """Tasks on a node, of one service or of all."""
        held = [h for h in self.holds.values() if h.node_id == node_id]
        return sum(not service_id or h.demand.service_id == service_id for h in held)

    def reasons(self, demand: Demand, masked: Collection[str] = ()) -> Counter[tuple[str, str]]:
        refusals = [self.refusal(demand, node_id, masked) for node_id in self.may_go_to(demand)]
        return Counter(refusal for refusal in refusals if refusal is not None)

    def feasible(self, demand: Demand, node_id: str, task_id: str) -> tuple[str, str] | None:
        """The task's own hold does not count; one that has its addresses needs none."""
        own = self.holds.get(task_id)
        if own is None or own.node_id != node_id:
            return self.refusal(demand, node_id)
        index = list(self.holds).index(task_id)
        del self.holds[task_id]
        try:
            return self.refusal(demand, node_id, need_addresses=bool(own.plans))
        finally:
            items = list(self.holds.items())
            items.insert(index, (task_id, own))
            self.holds = dict(items)

    def refusal(
        self, demand: Demand, node_id: str, masked: Collection[str] = (), need_addresses: bool = True
    ) -> tuple[str, str] | None:
        """The first filter that the node fails, with its detail, or None."""
        node = self.nodes[node_id]
        held = [h.demand for h in self.holds.values() if h.node_id == node_id]
        if node.status.state != "ready" or node.spec.availability != "active":
            return "not_ready", ""
        offered, used = amounts(node.description.resources), Counter[str]()
        offered.subtract(amounts(node.description.reserved))
        for other in held:
            used.update(amounts(other))
        if any(0 < amount > max(0, offered[kind]) - used[kind] for kind, amount in amounts(demand).items()):
            return "resources", ""
        if demand.image and demand.image not in node.description.images:
            return "image", demand.image
        if demand.forwards_ports and not node.description.forwards_ports:
            return "no_forwarding", ""
        for driver in demand.volume_drivers:
            if not has_plugin(driver, node.description.volume_drivers):
                return "plugin", f"volume driver {driver}"
        logs = node.description.log_drivers
        if demand.log_driver not in ("", "none") and logs and not has_plugin(demand.log_driver, logs):
            return "plugin", f"log driver {demand.log_driver}"
        for network_id in demand.network_ids:
            refusal = self.cannot_attach(network_id, node, demand.pins)
            if refusal is not None:
                return refusal
        nodes = self.nodes.values()
        if not all(constraint.matches([constraint.parse(text)], node, nodes) for text in demand.constraints):
            return "constraint", ""
        if demand.platforms and not any(self.runs_on(node, p.architecture, p.os) for p in demand.platforms):
            return "platform", ""
        taken = {port for d in held for port in d.host_ports} | set(node.description.listening)
        if any(port in taken for port in demand.host_ports):
            return "host_port", ""
        if 0 < demand.max_replicas_per_node <= self.on(node_id, demand.service_id):
            return "max_replicas", ""
        pools = self.pools_for(demand, node_id) if need_addresses else []
        if isinstance(pools, tuple):
            return pools
        if self.choose_volumes(demand, node_id) is None:
            return "volumes", ""
        return ("refused", "") if node_id in masked or demand.node_id not in ("", node_id) else None

    def failing(self, demand: Demand, node_id: str) -> set[str]:
        """All filters that the node fails: what is refused when each thing is asked for alone, by a node that is ready."""
        service = demand.service_id
        parts = [
            Demand(service, demand.cpu_nano, demand.memory_bytes, generic=demand.generic),
            Demand(service, image=demand.image),
            Demand(service, forwards_ports=demand.forwards_ports),
            Demand(service, log_driver=demand.log_driver),
            *(Demand(service, volume_drivers=(driver,)) for driver in demand.volume_drivers),
            *(Demand(service, network_ids=(id_,), pins=demand.pins) for id_ in demand.network_ids),
            Demand(service, constraints=demand.constraints),
            Demand(service, platforms=demand.platforms),
            Demand(service, host_ports=demand.host_ports),
            Demand(service, max_replicas_per_node=demand.max_replicas_per_node),
            Demand(service, volumes=demand.volumes),
            Demand(service, network_ids=demand.network_ids, pins=demand.pins),
            Demand(service, node_id=demand.node_id),
        ]
        node = self.nodes[node_id]
        ready = node.status.state == "ready" and node.spec.availability == "active"
        if not ready:
            # The state hides all else; the same node as if it were ready shows it.
            status = msgspec.structs.replace(node.status, state=NodeState.READY)
            spec = msgspec.structs.replace(node.spec, availability=Availability.ACTIVE)
            self.nodes[node_id] = msgspec.structs.replace(node, status=status, spec=spec)
        refusals = [self.refusal(part, node_id) for part in parts]
        self.nodes[node_id] = node
        return {refusal[0] for refusal in refusals if refusal is not None} | ({"not_ready"} if not ready else set())

    def runs_on(self, node: Node, architecture: str, os: str) -> bool:
        actual = node.description.platform
        if not actual.architecture and not actual.os:
            return False
        same = AMD64.get(architecture, architecture) == AMD64.get(actual.architecture, actual.architecture)
        return (not architecture or same) and os in ("", actual.os)

    def serving(self, network_id: str, node: Node, pins: tuple[str, ...]) -> list[PoolColumn]:
        """Pools whose constraints the node satisfies, and which have the addresses that are asked for."""
        pools = self.networks[network_id][1]
        pools = [p for p in pools if all(any(has(subnet, pin) for subnet in p.subnets) for pin in pins)]
        return [p for p in pools if constraint.matches([constraint.parse(c) for c in constraint.split(p.nodes)], node)]

    def parent(self, pool: PoolColumn, node: Node) -> str:
        """Why the agent's report rules a parent out: "missing", "vlan", or the kind of the links on it; "" when nothing."""
        links = {link.name: link.child_kind for link in node.description.links}
        if pool.parent in links:
            other = links[pool.parent]
            alone = pool.kind == "macvlan in mode passthru"
            return other if alone or not pool.kind.startswith(other) else ""
        base, _, number = pool.parent.partition(".")
        if not number or base not in links:
            return "missing"
        return "" if "vlan" in node.description.link_kinds else "vlan"

    def cannot_attach(self, network_id: str, node: Node, pins: tuple[str, ...]) -> tuple[str, str] | None:
        if network_id not in self.networks:
            return "unknown_network", network_id
        driver = self.networks[network_id][0]
        if driver == "host":
            return None
        if driver not in node.description.link_kinds:
            return "plugin", f"network driver {driver}"
        pools = self.serving(network_id, node, pins)
        if any(not self.parent(pool, node) for pool in pools):
            return None
        for pool in pools:
            where, fault = f"{pool.parent} for network {network_id}", self.parent(pool, node)
            if fault == "missing":
                return "parent_missing", where
            return (
                ("plugin", "network driver vlan")
                if fault == "vlan"
                else ("parent_taken", f"{where} is used by {fault}")
            )
        if pins:
            return "no_pinned_pool", f"{', '.join(pins)} in network {network_id}"
        return "no_pool", network_id

    def clash(self, pool: PoolColumn, on_parent: Sequence[str]) -> str:
        """The first kind of link on a pool's parent that excludes the pool's; "" when they go together."""
        alone = "macvlan in mode passthru"
        return next((kind for kind in on_parent if kind != pool.kind or kind == alone), "")

    def pools_for(self, demand: Demand, node_id: str) -> list[PoolColumn] | tuple[str, str]:
        """A pool with a free address for each network, or why there is none."""
        chosen: list[PoolColumn] = []
        for network_id in demand.network_ids:
            if self.networks[network_id][0] == "host":
                continue
            node = self.nodes[node_id]
            pools = [p for p in self.serving(network_id, node, demand.pins) if not self.parent(p, node)]
            others = [link for h in self.holds.values() if h.node_id == node_id for link in h.links]
            links = [*others, *((pool.parent, pool.kind) for pool in chosen)]
            on = {pool.parent: [kind for parent, kind in links if parent == pool.parent] for pool in pools}
            for pool in pools:
                planned = sum(h.plans.count(pool.pool_id) for h in self.holds.values())
                planned += sum(other.pool_id == pool.pool_id for other in chosen)
                free = demand.pins or self.free[pool.pool_id] - planned > 0
                if free and not self.clash(pool, on[pool.parent]):
                    chosen.append(pool)
                    break
            else:
                if not all(self.clash(pool, on[pool.parent]) for pool in pools):
                    return "pool_exhausted", ", ".join(pool.name for pool in pools)
                parent = pools[0].parent
                kind = self.clash(pools[0], [kind for of, kind in others if of == parent])
                other_driver = kind.split()[:1] != pools[0].kind.split()[:1]
                by = (kind.split()[0] if other_driver else kind) if kind else "another network of the task"
                return "parent_taken", f"{parent} for network {network_id} is used by {by}"
        return chosen


def amounts(of: Demand | Resources) -> Counter[str]:
    """How much of each kind, generic ones by their names."""
    generic = of.generic if isinstance(of, Demand) else of.generic_amounts
    return Counter({"cpu": of.cpu_nano, "memory": of.memory_bytes, **{f"generic {kind}": n for kind, n in generic}})


def has_plugin(name: str, listed: Sequence[str]) -> bool:
    return name in listed or f"{name}:latest" in listed


def has(subnet: str, address: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(subnet)
