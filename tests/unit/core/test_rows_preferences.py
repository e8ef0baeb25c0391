"""Spread preferences: rows S13, S14 and S46 of SwarmKit's scenarios, and what Beeyard adds to them."""

from __future__ import annotations

from collections import Counter

import pytest

from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.preference import Preference, parse_preference
from tests.support.builders import GIB, a_node
from tests.support.placement import ids, nodes_of

MB = 10**6


def over(*descriptors: str) -> tuple[Preference, ...]:
    return tuple(parse_preference(text) for text in descriptors)


def place(index: PlacementIndex, demand: Demand, n: int, path: str, prefix: str = "t") -> Counter[str]:
    """How many tasks each node gets: as one group, or one after another."""
    task_ids = ids(prefix, n)
    if path == "group":
        return Counter(nodes_of(index.place(demand, task_ids)))
    return Counter(node_id for task_id in task_ids for node_id in nodes_of(index.place(demand, [task_id])))


both_paths = pytest.mark.parametrize("path", ["group", "one by one"])


@both_paths
def test_s13_a_zone_of_one_node_gets_as_many_as_one_of_four(path: str) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n0", labels={"az": "az1"}))
    for number in range(1, 5):
        index.set_node(a_node(f"n{number}", labels={"az": "az2"}))
    placed = place(index, Demand("s1", preferences=over("node.labels.az")), 8, path)
    assert placed == {"n0": 4, "n1": 1, "n2": 1, "n3": 1, "n4": 1}


@both_paths
def test_s14_levels_of_branches_and_a_node_with_little_room(path: str) -> None:
    """az1 should get six; its only node with room takes five. The racks of az2 get four and three of the rest."""
    index = PlacementIndex()
    index.set_node(a_node("n0", labels={"az": "az1", "rack": "rack1"}, memory_bytes=100 * MB, generic={"apple": 1}))
    index.set_node(a_node("n1", labels={"az": "az1", "rack": "rack1"}, memory_bytes=GIB, generic={"apple": 10}))
    for number, rack in ((2, "rack1"), (3, "rack1"), (4, "rack1"), (5, "rack2"), (6, "rack2")):
        fruit = {"apple": [f"a{n}" for n in range(12)]} if number % 2 else {"apple": 12}
        index.set_node(a_node(f"n{number}", labels={"az": "az2", "rack": rack}, memory_bytes=16 * GIB, generic=fruit))
    demand = Demand(
        "s1",
        memory_bytes=200 * MB,
        generic=(("apple", 2),),
        preferences=over("node.labels.az", "node.labels.rack"),
    )
    placed = place(index, demand, 12, path)
    assert (placed["n0"], placed["n1"]) == (0, 5)
    racks = [[placed[f"n{number}"] for number in rack] for rack in ((2, 3, 4), (5, 6))]
    assert sorted(map(sum, racks)) == [3, 4]
    assert all(max(rack) - min(rack) <= 1 for rack in racks)


def test_s46_branches_count_the_tasks_of_all_their_nodes() -> None:
    """Over data centres and racks, nodes without the labels are one branch with one branch below."""
    index = PlacementIndex()
    labels = [
        {"datacenter": "dc1", "rack": "r1"},
        {"datacenter": "dc1", "rack": "r2"},
        {"datacenter": "dc2", "rack": "r2"},
        {},
        {},
    ]
    for number, (of_node, n_tasks) in enumerate(zip(labels, (3, 2, 4, 2, 1), strict=True)):
        index.set_node(a_node(f"n{number}", labels=of_node))
        for task in range(n_tasks):
            index.hold(f"h{number}.{task}", Demand("s1"), f"n{number}")
    demand = Demand("s1", preferences=over("node.labels.datacenter", "node.labels.rack"))
    # Tasks by branch: dc1 5 (r1 3, r2 2), dc2 4 (r2 4), "" 3.
    order = nodes_of(index.place(demand, ids("t", 6)))
    assert order[0] == "n4", "of the branch with the fewest tasks the node with the fewest"
    assert Counter(order) == {"n4": 2, "n3": 1, "n2": 2, "n1": 1}, "every branch has 6, and both racks of dc1 have 3"


def test_a_branch_counts_tasks_on_nodes_that_take_no_more() -> None:
    index = PlacementIndex()
    index.set_node(a_node("full", labels={"az": "a"}, cpu_nano=0))
    index.set_node(a_node("free", labels={"az": "a"}))
    index.set_node(a_node("other", labels={"az": "b"}))
    for number in range(2):
        index.hold(f"h{number}", Demand("s1"), "full")
    demand = Demand("s1", cpu_nano=1, preferences=over("node.labels.az"))
    assert nodes_of(index.place(demand, ids("t", 2))) == ["other", "other"]


@both_paths
def test_weights_are_proportions(path: str) -> None:
    index = PlacementIndex()
    for zone in ("a", "b", "c"):
        index.set_node(a_node(f"n{zone}", labels={"az": zone}))
    placed = place(index, Demand("s1", preferences=over("node.labels.az:a=3,b=2")), 12, path)
    assert placed == {"na": 6, "nb": 4, "nc": 2}


@both_paths
def test_unlabelled_nodes_come_last_on_request(path: str) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", labels={"az": "a"}, cpu_nano=3))
    index.set_node(a_node("n2", cpu_nano=8))
    usual = Demand("s1", cpu_nano=1, preferences=over("node.labels.az"))
    assert place(index, usual, 4, path, "u") == {"n1": 2, "n2": 2}
    for task_id in ids("u", 4):
        index.drop(task_id)
    last = Demand("s2", cpu_nano=1, preferences=over("node.labels.az:unlabelled=last"))
    assert place(index, last, 4, path) == {"n1": 3, "n2": 1}


def test_without_nodes_or_with_none_left_there_is_no_suitable_one() -> None:
    index = PlacementIndex()
    demand = Demand("s1", preferences=over("node.labels.az", "node.labels.rack:unlabelled=last"))
    assert index.place(demand, ["t1"]).explanation == "no suitable node"
    index.set_node(a_node("n1"))
    index.remove_node("n1")
    assert index.place(demand, ["t1"]).explanation == "no suitable node"
    index.set_node(a_node("n2", labels={"az": "a"}))
    assert nodes_of(index.place(demand, ["t1"])) == ["n2"]


def test_labels_of_engines_are_levels_too_and_a_preference_keeps_nothing_waiting() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", engine_labels={"az": "a"}, cpu_nano=1))
    index.set_node(a_node("n2", engine_labels={"az": "b"}, cpu_nano=5))
    demand = Demand("s1", cpu_nano=1, preferences=over("engine.labels.az"))
    assert Counter(nodes_of(index.place(demand, ids("t", 6)))) == {"n1": 1, "n2": 5}
    decision = index.place(demand, ["t9"])
    assert decision.explanation == "no suitable node (insufficient resources on 2 nodes)"
