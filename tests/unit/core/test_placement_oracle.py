"""The compiled kernel against plain Python, on random clusters and random histories."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core import reasons
from beeyard.core.demand import Findings
from beeyard.core.model import HostPort, Node, Platform
from beeyard.core.placement import Demand, PlacementIndex, PoolColumn
from beeyard.core.preference import Preference
from beeyard.core.resources import Resources
from beeyard.core.states import Availability, NodeState
from tests.reference.placement_oracle import Held, PlacementOracle
from tests.support.builders import a_link, a_node, some_generic
from tests.support.examples import examples

NODE_IDS = [f"n{number}" for number in range(8)]
RACKS = ["r1", "R2", "r3"]
UNATTACHED = {"plugin", "no_pool", "no_pinned_pool", "parent_missing", "parent_taken"}

links = st.sampled_from(
    [
        (),
        (a_link("eth0"),),
        (a_link("eth0", child_kind="macvlan"),),
        (a_link("eth0", child_kind="ipvlan"), a_link("eth1")),
        (a_link("eth0"), a_link("eth0.7", child_kind="macvlan")),
    ]
    + [(a_link("eth0"), a_link("eth1"))] * 4
)


@st.composite
def nodes(draw: st.DrawFn, node_id: str) -> Node:
    """Mostly a node that can take tasks."""
    rarely = st.sampled_from([False] * 6 + [True])
    return a_node(
        node_id,
        labels={"rack": draw(st.sampled_from(RACKS))} if not draw(rarely) else {},
        engine_labels={"zone": draw(st.sampled_from(["z1", "z2"]))} if not draw(rarely) else {},
        cpu_nano=draw(st.integers(0, 6)),
        memory_bytes=draw(st.integers(0, 6)),
        state=NodeState.DOWN if draw(rarely) else NodeState.READY,
        availability=Availability.DRAIN if draw(rarely) else Availability.ACTIVE,
        architecture=draw(st.sampled_from(["x86_64", "amd64", "aarch64", ""])),
        os=draw(st.sampled_from(["linux", "linux", "windows", ""])),
        images=("host",) if not draw(rarely) else ("other",),
        link_kinds=draw(
            st.sampled_from([("macvlan", "ipvlan", "vlan")] * 6 + [("macvlan", "ipvlan"), ("macvlan",), ()])
        ),
        links=draw(links),
        listening=[HostPort(protocol="udp", port=58)] if draw(rarely) else [],
        forwards_ports=not draw(rarely),
        log_drivers=draw(st.sampled_from([(), ("local",), ("local", "syslog:latest")])),
        volume_drivers=draw(st.sampled_from([(), ("nfs",), ("nfs:latest", "ceph")])),
        generic=draw(st.sampled_from([{}, {"gpu": 2}, {"gpu": ("g0", "g1", "g2"), "apple": 1}, {"slot": 4}])),
        reserved=draw(st.sampled_from([None, None, Resources(cpu_nano=1, generic=some_generic({"gpu": 1}))])),
    )


demands = st.builds(
    Demand,
    service_id=st.sampled_from(["s1", "s2"]),
    cpu_nano=st.integers(0, 3),
    memory_bytes=st.integers(0, 3),
    constraints=st.sampled_from(
        [
            (),
            (),
            (),
            ("node.labels.rack==r1",),
            ("node.labels.rack!=r2", "node.hostname!=n3"),
            ("node.labels.rack in (r1, r3)", "node.hostname !~ n[67]"),
            ("node.none==1",),
            ("node.id==N2",),
        ]
    ),
    platforms=st.sampled_from(
        [
            (),
            (),
            (Platform(architecture="amd64", os="linux"),),
            (Platform(os="windows"), Platform(architecture="arm64")),
        ]
    ),
    image=st.sampled_from(["host", "host", "host", "", "nginx"]),
    network_ids=st.sampled_from(
        [(), (), ("lan",), ("lan",), ("host",), ("lan", "wan"), ("wan", "lan"), ("wan",), ("gone",)]
    ),
    pins=st.sampled_from([()] * 6 + [("10.1.0.9",), ("10.2.0.9",), ("10.1.0.9", "fd00::9")]),
    host_ports=st.sampled_from(
        [(), (), (), (HostPort(port=58),), (HostPort(protocol="udp", port=58), HostPort(port=58))]
    ),
    max_replicas_per_node=st.sampled_from([0, 0, 0, 1, 2]),
    forwards_ports=st.sampled_from([False, False, True]),
    log_driver=st.sampled_from([""] * 6 + ["local", "syslog", "none"]),
    volume_drivers=st.sampled_from([()] * 6 + [("nfs",), ("ceph", "nfs")]),
    preferences=st.sampled_from(
        [()] * 6
        + [
            (Preference(descriptor="node.labels.rack"),),
            (
                Preference(descriptor="engine.labels.zone", unlabelled_last=True),
                Preference(descriptor="node.labels.rack"),
            ),
            (Preference(descriptor="node.labels.rack", weights=(("r1", 2), ("R2", 3))),),
        ]
    ),
    generic=st.sampled_from([()] * 5 + [(("gpu", 1),), (("apple", 1), ("gpu", 2)), (("slot", 3),), (("none", 1),)]),
)

KINDS = {
    "macvlan": ["macvlan", "macvlan", "macvlan", "macvlan in mode passthru"],
    "ipvlan": ["ipvlan in mode l2", "ipvlan in mode l2", "ipvlan in mode l3", "ipvlan in mode l3 and flag private"],
}
drivers = st.sampled_from(["macvlan", "macvlan", "ipvlan"])
SUBNETS = ["10.1.0.0/24", "10.2.0.0/24", "fd00::/64"]
links_held = st.lists(
    st.tuples(st.sampled_from(["eth0", "eth1", "eth0.7"]), st.sampled_from(KINDS["macvlan"] + KINDS["ipvlan"])),
    max_size=2,
)

pool_columns = st.builds(
    PoolColumn,
    pool_id=st.sampled_from(["p1", "p2", "p3", "p4"]),
    name=st.just(""),
    parent=st.sampled_from(["eth0", "eth0", "eth0", "eth0", "eth1", "eth0.7"]),
    kind=st.just(""),
    subnets=st.sampled_from([("10.1.0.0/24",), ("10.1.0.0/24", "fd00::/64"), ("10.2.0.0/24",)]),
    nodes=st.sampled_from(["", "node.labels.rack==r1", "node.labels.rack==r2", "node.labels.rack!=r1,node.id!=n1"]),
    free=st.integers(0, 4),
)


@st.composite
def network_shapes(draw: st.DrawFn) -> tuple[str, list[PoolColumn]]:
    """A driver, and pools with kinds of links that it makes."""
    driver = draw(drivers)
    pools = draw(st.lists(pool_columns, max_size=4))
    return driver, [msgspec.structs.replace(pool, kind=draw(st.sampled_from(KINDS[driver]))) for pool in pools]


shapes = network_shapes()


class Twins:
    """The index and its oracle, given the same calls."""

    def __init__(self) -> None:
        tie_break = {n: int.from_bytes(hashlib.blake2b(n.encode(), digest_size=8).digest(), "little") for n in NODE_IDS}
        self.index, self.oracle = PlacementIndex(), PlacementOracle(tie_break)
        self.number = 0
        self.set_network("host", "host", [])

    def set_node(self, node: Node) -> None:
        self.index.set_node(node)
        self.oracle.nodes[node.id] = node

    def remove_node(self, node_id: str) -> None:
        self.index.remove_node(node_id)
        self.oracle.nodes.pop(node_id, None)

    def set_network(self, network_id: str, driver: str, pools: list[PoolColumn]) -> None:
        # A pool is one thing, whoever uses it: one name, and the count of free addresses that was said last.
        named = {p.pool_id: msgspec.structs.replace(p, name=f"lan-{p.pool_id}") for p in pools}
        self.index.set_network(network_id, driver, list(named.values()))
        self.oracle.set_network(network_id, driver, list(named.values()))

    def new_ids(self, n: int) -> list[str]:
        self.number += n
        return [f"t{number}" for number in range(self.number - n, self.number)]

    def place(self, demand: Demand, n: int, masked: list[str]) -> None:
        task_ids = self.new_ids(n)
        expected = self.oracle.place(demand, task_ids, masked)
        actual = self.index.place(demand, task_ids, masked=masked)
        assert expected == [(placed.node_id, placed.pool_ids) for placed in actual.placed]
        assert actual.unplaced == n - len(expected)
        counts = self.oracle.reasons(demand, masked) if actual.unplaced else Counter[Any]()
        assert counts == {(reason, detail): n for reason, detail, n in actual.reasons}
        assert bool(actual.unplaced) == actual.explanation.startswith("no suitable node")

    def hold(self, demand: Demand, node_id: str, links: Sequence[tuple[str, str]] = ()) -> None:
        (task_id,) = self.new_ids(1)
        self.index.hold(task_id, demand, node_id, links=links)
        self.index.hold(task_id, demand, node_id)
        self.oracle.holds[task_id] = Held(demand, node_id, (), placed=False, links=links)

    def drop(self, task_id: str) -> None:
        self.index.drop(task_id)
        self.index.drop(task_id)
        self.oracle.holds.pop(task_id, None)

    def settle(self, task_id: str) -> None:
        """The address hook has reserved: the pools have one address less, and the plan ends."""
        held = self.oracle.holds[task_id]
        for pool_id in held.plans:
            self.oracle.free[pool_id] -= 1
            self.index.set_pool_free(pool_id, self.oracle.free[pool_id])
        self.index.settle(task_id)
        self.index.settle(task_id)
        held.plans = ()

    def check(self, demand: Demand) -> None:
        """Every question has the same answer, also when what was found for others is used again."""
        findings = Findings()
        for node_id in self.oracle.nodes:
            for task_id in [*list(self.oracle.holds)[-3:], ""]:
                refusal = self.oracle.feasible(demand, node_id, task_id)
                expected = "" if refusal is None else reasons.sentence(*refusal, 1)
                assert expected == self.index.feasible(demand, node_id, task_id=task_id, findings=findings)
        counts = self.oracle.reasons(demand)
        explanation = self.index.explain(demand)
        assert (sum(counts.values()) < len(self.oracle.nodes)) == (explanation == "")
        if explanation:
            ordered = reasons.in_order((reason, detail, n) for (reason, detail), n in counts.items())
            assert reasons.explain(ordered) == explanation

    def check_failing(self, demand: Demand) -> None:
        """Every node lacks just those things that it lacks when each is asked for alone."""
        lacking = {
            node.node_id: {str(reason) for reason, _ in node.lacks} for node in self.index.explainer.nodes(demand)
        }
        assert lacking.keys() == self.oracle.nodes.keys()
        for node_id, lacks in lacking.items():
            assert _told_apart(lacks) == _told_apart(self.oracle.failing(demand, node_id))

    def twin_of_copy(self) -> Twins:
        """Copies of both, to try things on."""
        twins = Twins.__new__(Twins)
        twins.index, twins.oracle, twins.number = self.index.copy(), copy.deepcopy(self.oracle), self.number
        return twins


def _told_apart(lacks: set[str]) -> set[str]:
    """A network without a usable pool is one thing, whether or not a pool with the slot's addresses would be usable."""
    return lacks - UNATTACHED | ({"no_pool"} if lacks & UNATTACHED else set())


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_any_history_is_placed_and_explained_as_by_plain_python(data: st.DataObject) -> None:
    """Nodes come, change and go, networks change, tasks are placed, held, settled and dropped: the twins agree."""
    twins = Twins()
    for node_id in NODE_IDS[: data.draw(st.integers(0, len(NODE_IDS)))]:
        twins.set_node(data.draw(nodes(node_id)))
    for network_id in ("lan", "wan"):
        twins.set_network(network_id, *data.draw(shapes))
    for _ in range(data.draw(st.integers(1, 8))):
        demand = data.draw(demands)
        held = list(twins.oracle.holds)
        action = data.draw(
            st.sampled_from(["place", "place", "place", "node", "gone", "network", "hold", "settle", "drop"])
        )
        if action == "place":
            twins.place(
                demand, data.draw(st.integers(1, 12)), data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=2))
            )
        elif action == "node":
            twins.set_node(data.draw(nodes(data.draw(st.sampled_from(NODE_IDS)))))
        elif action == "gone":
            twins.remove_node(data.draw(st.sampled_from(NODE_IDS)))
        elif action == "network":
            twins.set_network(data.draw(st.sampled_from(["lan", "wan"])), *data.draw(shapes))
        elif action == "hold":
            twins.hold(demand, data.draw(st.sampled_from(NODE_IDS)), data.draw(links_held))
        elif held and action == "settle":
            twins.settle(data.draw(st.sampled_from(held)))
        elif held and action == "drop":
            twins.drop(data.draw(st.sampled_from(held)))
        twins.check(demand)
    twins.check_failing(data.draw(demands))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_what_is_tried_on_a_copy_changes_nothing_and_is_the_same_as_the_real_thing(data: st.DataObject) -> None:
    """A copy, and a copy of it, answer like the index after the same calls; the index itself stays as it was."""
    twins = Twins()
    for node_id in NODE_IDS[: data.draw(st.integers(1, len(NODE_IDS)))]:
        twins.set_node(data.draw(nodes(node_id)))
    for network_id in ("lan", "wan"):
        twins.set_network(network_id, *data.draw(shapes))
    for _ in range(data.draw(st.integers(1, 3))):
        twins.place(data.draw(demands), data.draw(st.integers(1, 8)), [])
        twins.hold(data.draw(demands), data.draw(st.sampled_from(NODE_IDS)))
    demand = data.draw(demands)
    trial = twins
    for _ in range(2):
        trial = trial.twin_of_copy()
        for _ in range(data.draw(st.integers(1, 4))):
            held = list(trial.oracle.holds)
            action = data.draw(st.sampled_from(["place", "node", "gone", "network", "drop", "settle"]))
            if action == "place":
                trial.place(data.draw(demands), data.draw(st.integers(1, 8)), [])
            elif action == "node":
                trial.set_node(data.draw(nodes(data.draw(st.sampled_from(NODE_IDS)))))
            elif action == "gone":
                trial.remove_node(data.draw(st.sampled_from(NODE_IDS)))
            elif action == "network":
                trial.set_network(data.draw(st.sampled_from(["lan", "wan"])), *data.draw(shapes))
            elif held and action == "drop":
                trial.drop(data.draw(st.sampled_from(held)))
            elif held:
                trial.settle(data.draw(st.sampled_from(held)))
            trial.check(demand)
        twins.check(demand)
    twins.place(demand, 3, [])
    twins.check(demand)


@settings(max_examples=examples(200), deadline=None)
@given(
    held=st.lists(st.tuples(st.sampled_from(NODE_IDS), st.sampled_from(["s1", "s2"])), max_size=20),
    rooms=st.lists(st.integers(0, 4), min_size=2, max_size=len(NODE_IDS)),
    free=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    n_tasks=st.integers(1, 20),
)
def test_spread_over_nodes_with_different_counts_is_as_by_plain_python(
    held: list[tuple[str, str]], rooms: list[int], free: tuple[int, int], n_tasks: int
) -> None:
    """Only counts, room and two pools decide here, so that large groups run into every one of them."""
    twins = Twins()
    for number, room in enumerate(rooms):
        twins.set_node(a_node(f"n{number}", cpu_nano=room, labels={"rack": f"r{number % 2}"}))
    pools = [PoolColumn(f"p{rack}", "", "eth0", f"node.labels.rack==r{rack}", free[rack]) for rack in (0, 1)]
    twins.set_network("lan", "macvlan", pools)
    for node_id, service_id in held:
        twins.hold(Demand(service_id), node_id)
    twins.place(Demand("s1"), n_tasks, [])
    twins.place(Demand("s1", cpu_nano=1, network_ids=("lan",)), n_tasks, [])


@pytest.mark.parametrize("n_nodes", [255, 256, 257, 700])
def test_tables_longer_than_a_block_are_spread_as_by_plain_python(n_nodes: int) -> None:
    node_ids = [f"n{number}" for number in range(n_nodes)]
    tie_break = {n: int.from_bytes(hashlib.blake2b(n.encode(), digest_size=8).digest(), "little") for n in node_ids}
    index, oracle = PlacementIndex(), PlacementOracle(tie_break)
    for number, node_id in enumerate(node_ids):
        node = a_node(node_id, labels={"rack": f"r{number % 3}"}, cpu_nano=number % 4)
        index.set_node(node)
        oracle.nodes[node_id] = node
    pools = [
        PoolColumn(f"p{rack}", f"lan-r{rack}", "eth0", f"node.labels.rack==r{rack}", 5 + rack) for rack in range(3)
    ]
    index.set_network("lan", "macvlan", pools)
    oracle.set_network("lan", "macvlan", pools)
    demand = Demand("s1", cpu_nano=1, network_ids=("lan",))
    task_ids = [f"t{number}" for number in range(25)]
    expected = oracle.place(demand, task_ids)
    actual = index.place(demand, task_ids)
    assert len(expected) == 18
    assert expected == [(placed.node_id, placed.pool_ids) for placed in actual.placed]
    assert oracle.reasons(demand) == {(reason, detail): n for reason, detail, n in actual.reasons}
