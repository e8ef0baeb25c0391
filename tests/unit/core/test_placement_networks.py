"""Networks decide where a task may go: drivers, parents, and pools with addresses left."""

from __future__ import annotations

from collections import Counter

import pytest

from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.placement import Demand, Placed, PlacementIndex, PoolColumn
from tests.support.builders import CPU, a_link, a_node
from tests.support.placement import WEB, an_index, ids, nodes_of


def a_rack_cluster(free: int = 64) -> PlacementIndex:
    """n1 and n2 in rack r1, n3 in rack r2; network lan with a pool for each rack."""
    index = PlacementIndex()
    for node_id, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        index.set_node(a_node(node_id, labels={"rack": rack}))
    pools = [PoolColumn(f"p{r}", f"lan-r{r}", "eth0", f"node.labels.rack==r{r}", free) for r in (2, 1)]
    index.set_network("net1", "macvlan", pools, name="lan")
    return index


LAN = Demand("web", network_ids=("net1",))


def test_200_tasks_get_128_places_and_the_rest_says_which_pools_are_empty() -> None:
    decision = a_rack_cluster().place(LAN, ids("t", 200))
    assert Counter(placed.pool_ids for placed in decision.placed) == {("p1",): 64, ("p2",): 64}
    assert {placed.node_id for placed in decision.placed if placed.pool_ids == ("p2",)} == {"n3"}
    assert decision.unplaced == 72
    assert decision.reasons == [("pool_exhausted", "lan-r1", 2), ("pool_exhausted", "lan-r2", 1)]
    assert decision.explanation == (
        "no suitable node (no address left in pool lan-r1 on 2 nodes; no address left in pool lan-r2 on 1 node)"
    )


def test_service_without_the_network_is_placed_although_its_pools_are_empty() -> None:
    index = a_rack_cluster(free=0)
    assert index.place(LAN, ["t1"]).unplaced == 1
    assert index.place(Demand("other"), ["t2"]).unplaced == 0


def test_planned_address_is_counted_once_from_plan_to_reservation_to_release() -> None:
    index = a_rack_cluster(free=1)
    demand = Demand("web", network_ids=("net1",), constraints=("node.labels.rack==r2",))
    assert index.place(demand, ["t1"]).placed == [Placed("n3", ("p2",))]
    assert index.feasible(demand, "n3") == "no address left in pool lan-r2 on 1 node"
    assert index.feasible(demand, "n3", task_id="t1") == ""
    index.set_pool_free("p2", 0)  # the hook has reserved the address ...
    index.settle("t1")  # ... so the plan ends
    index.settle("t1")
    assert index.feasible(demand, "n3", task_id="t1") == ""
    assert index.place(demand, ["t2"]).unplaced == 1
    index.drop("t1")
    index.set_pool_free("p2", 1)
    assert index.place(demand, ["t2"]).placed == [Placed("n3", ("p2",))]
    index.drop("t2")  # before its plan was settled
    assert index.place(demand, ["t3"]).placed == [Placed("n3", ("p2",))]


def test_stored_task_holds_no_plan_because_the_pool_counts_its_address() -> None:
    index = a_rack_cluster(free=0)
    index.hold("t1", LAN, "n3")
    assert index.feasible(LAN, "n3", task_id="t1") == ""
    assert index.feasible(LAN, "n3", task_id="t2") == "no address left in pool lan-r2 on 1 node"


def test_pools_that_serve_the_same_node_are_used_in_order_of_their_names() -> None:
    index = an_index("n1")
    index.set_network("net1", "macvlan", [PoolColumn("pz", "b", "eth0", "", 1), PoolColumn("py", "a", "eth0", "", 2)])
    decision = index.place(LAN, ids("t", 4))
    assert [placed.pool_ids for placed in decision.placed] == [("py",), ("py",), ("pz",)]
    assert decision.explanation == "no suitable node (no address left in pools a, b on 1 node)"
    assert index.pool_for("net1", "n1") == ["py", "pz"]


def test_two_networks_need_an_address_each_also_from_one_pool() -> None:
    index = an_index("n1")
    for network_id in ("net1", "net2"):
        index.set_network(network_id, "macvlan", [PoolColumn("p", "lan", "eth0", "", 3)])
    decision = index.place(Demand("web", network_ids=("net1", "net2")), ids("t", 2))
    assert [placed.pool_ids for placed in decision.placed] == [("p", "p")]
    assert index.place(LAN, ["t9"]).placed == [Placed("n1", ("p",))]


def test_only_networks_with_pools_have_a_pool_in_the_placement() -> None:
    index = a_rack_cluster()
    index.set_network(HOST_NETWORK_ID, "host", [])
    (placed,) = index.place(Demand("web", network_ids=(HOST_NETWORK_ID, "net1")), ["t1"]).placed
    assert len(placed.pool_ids) == 1
    assert nodes_of(index.place(Demand("x", network_ids=(HOST_NETWORK_ID,)), ["t2"]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"link_kinds": ()}, "missing plugin on 1 node: network driver macvlan"),
        ({"links": ()}, "missing parent interface eth0 for network lan on 1 node"),
        (
            {"links": (a_link("eth0", child_kind="ipvlan"),)},
            "parent interface eth0 for network lan is used by ipvlan on 1 node",
        ),
        ({"links": (a_link("eth0", child_kind="macvlan"),)}, ""),
        ({"labels": {"rack": "r3"}}, "network lan has no pool for this node on 1 node"),
    ],
)
def test_s36_node_that_cannot_attach_says_what_is_missing(change: dict[str, object], sentence: str) -> None:
    index = a_rack_cluster()
    index.set_node(a_node("n9", **{"labels": {"rack": "r1"}, **change}))  # type: ignore[arg-type]
    assert sentence == index.feasible(LAN, "n9")
    assert index.pool_for("net1", "n9") == ([] if "pool" in sentence or "parent" in sentence else ["p1"])


@pytest.mark.parametrize(
    ("parent", "links", "is_missing"),
    [
        ("eth0.100", ("eth0",), False),
        ("eth0.10.20", ("eth0", "eth0.10"), True),
        ("eth0.10.20", ("eth0", "eth0.10", "eth0.10.20"), False),
    ],
)
def test_a_vlan_is_made_where_its_base_is_and_one_within_another_has_to_exist(
    parent: str, links: tuple[str, ...], *, is_missing: bool
) -> None:
    index = a_rack_cluster()
    index.set_network("vlan", "macvlan", [PoolColumn("p", "vlan", parent, "", 1)], name="vlan")
    index.set_node(a_node("n9", link_kinds=("macvlan", "vlan"), links=tuple(map(a_link, links))))
    sentence = f"missing parent interface {parent} for network vlan on 1 node"
    assert index.feasible(Demand("web", network_ids=("vlan",)), "n9") == (sentence if is_missing else "")


def test_network_that_is_gone_or_has_no_pools_fits_nowhere() -> None:
    index = a_rack_cluster()
    index.remove_network("net1")
    index.remove_network("net1")
    assert index.explain(LAN) == "no suitable node (network net1 is not known on 3 nodes)"
    assert index.pool_for("net1", "n1") == []
    index.set_network("net1", "macvlan", [], name="lan")
    assert index.explain(LAN) == "no suitable node (network lan has no pool for this node on 3 nodes)"


def test_pool_that_is_added_later_is_used() -> None:
    index = a_rack_cluster(free=0)
    assert index.place(LAN, ["t1"]).unplaced == 1
    index.set_network("net1", "macvlan", [PoolColumn("p9", "any", "eth0", "", 1)], name="lan")
    assert index.place(LAN, ["t1"]).placed[0].pool_ids == ("p9",)


def test_masked_node_is_left_out_and_named_last() -> None:
    index = an_index("n1", "n2")
    assert nodes_of(index.place(WEB, ids("t", 3), masked={"n1", "gone"})) == ["n2"] * 3
    assert index.explain(WEB, masked=["n1", "n2"]) == "no suitable node (refused by an allocation hook on 2 nodes)"


def test_ipv6_pool_with_more_addresses_than_a_column_counts_is_never_empty() -> None:
    index = an_index("n1")
    index.set_network("net1", "macvlan", [PoolColumn("p", "lan", "eth0", "", 2**120)])
    assert index.place(LAN, ["t1"]).unplaced == 0


def test_index_that_grew_decides_as_one_that_was_built_at_once() -> None:
    """Columns of nodes, services and pools are copied into longer ones on the way."""

    def add(index: PlacementIndex, numbers: range) -> None:
        for number in numbers:
            index.set_node(a_node(f"n{number}", labels={"rack": f"r{number % 20}"}, cpu_nano=2 * CPU))

    def set_pools(index: PlacementIndex, n: int) -> None:
        pools = [PoolColumn(f"p{r}", f"lan-r{r:02}", "eth0", f"node.labels.rack==r{r}", 7) for r in range(n)]
        index.set_network("net1", "macvlan", pools, name="lan")

    demand = Demand("web", cpu_nano=CPU, network_ids=("net1",), constraints=("node.labels.rack!=r3",))
    grown, built = PlacementIndex(), PlacementIndex()
    add(grown, range(3))
    set_pools(grown, 2)
    first = grown.place(demand, ids("a", 2)).placed
    add(grown, range(3, 300))
    set_pools(grown, 20)
    add(built, range(300))
    set_pools(built, 20)
    for task_id, where in zip(ids("a", 2), first, strict=True):
        built.hold(task_id, demand, where.node_id)
        built.set_pool_free(where.pool_ids[0], 6)
    decision = grown.place(demand, ids("b", 150))
    assert decision == built.place(demand, ids("b", 150))
    assert (len(decision.placed), decision.unplaced) == (19 * 7 - 2, 19)
    assert decision.reasons[0] == ("constraint", "", 15)


def test_pools_of_a_placed_task_begin_with_the_chosen_one_and_keep_to_its_parent() -> None:
    """Another pool on the same parent may stand in for it; one on another parent would make another link."""
    index = PlacementIndex()
    index.set_node(a_node("n1", links=[a_link("eth0"), a_link("eth1")]))
    index.set_network("net1", "macvlan", [
        PoolColumn("p1", "a", "eth0", "", 0), PoolColumn("p2", "b", "eth1", "", 5), PoolColumn("p3", "c", "eth0", "", 5),
        PoolColumn("p4", "d", "eth1", "", 5),
    ])  # fmt: skip
    assert index.place(LAN, ["t1"]).placed == [Placed("n1", ("p2",))]
    assert index.pools_for("t1", "net1", "n1") == ["p2", "p4"]
    assert index.pools_for("t9", "net1", "n1") == index.pool_for("net1", "n1") == ["p1", "p2", "p3", "p4"]
    assert index.pools_for("t1", "gone", "n1") == []


def test_passthru_takes_each_parent_once_within_one_group() -> None:
    index = PlacementIndex()
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id, links=[a_link("eth0"), a_link("eth1")]))
    kind = "macvlan in mode passthru"
    pools = [PoolColumn(f"p{n}", f"on-{n}", f"eth{n}", "", 100, kind) for n in (0, 1)]
    index.set_network("net1", "macvlan", pools)
    decision = index.place(LAN, ids("t", 6))
    assert sorted((p.node_id, p.pool_ids) for p in decision.placed) == [
        (node_id, (pool,)) for node_id in ("n1", "n2") for pool in ("p0", "p1")
    ]
    assert decision.explanation == (
        f"no suitable node (parent interface eth0 for network net1 is used by {kind} on 2 nodes)"
    )
    index.drop("t0")
    assert index.place(LAN, ["t9"]).placed == [decision.placed[0]]


def test_parent_that_becomes_contested_counts_what_is_there_already() -> None:
    """As long as one kind is known nobody counts; the first network of another kind finds the links all the same."""
    index = an_index("n1")
    index.set_node(a_node("n1", link_kinds=("macvlan", "ipvlan")))
    index.set_network("net1", "macvlan", [PoolColumn("p1", "lan", "eth0", "", 5)])
    index.place(LAN, ["t1"])
    index.hold("t2", Demand("old"), "n1", links=[("eth0", "macvlan")])
    index.set_network("net2", "ipvlan", [PoolColumn("p2", "ip", "eth0", "", 5, "ipvlan in mode l2")])
    other = Demand("other", network_ids=("net2",))
    sentence = "parent interface eth0 for network net2 is used by macvlan on 1 node"
    for task_id in ("t1", "t2"):
        assert index.feasible(other, "n1") == sentence
        index.drop(task_id)
    assert index.feasible(other, "n1") == ""
    assert index.place(other, ["t3"]).placed
    assert index.feasible(LAN, "n1") == "parent interface eth0 for network net1 is used by ipvlan on 1 node"
    index.remove_node("n1")
    index.set_node(a_node("n1", link_kinds=("macvlan", "ipvlan")))
    assert index.feasible(LAN, "n1") == "parent interface eth0 for network net1 is used by ipvlan on 1 node"
