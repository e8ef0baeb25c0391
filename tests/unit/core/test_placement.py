"""Placement as SwarmKit decides it (its scenarios S1 to S49, where they apply), and what Beeyard adds."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from beeyard.core.demand import Findings
from beeyard.core.model import HOST_NETWORK_ID, HostPort, Platform, PublishedPort
from beeyard.core.placement import Decision, Demand, PlacementIndex
from beeyard.core.service_tasks import ServiceTasks
from beeyard.core.states import Availability, NodeState
from tests.support.builders import CPU, GIB, a_node, a_task, a_task_spec
from tests.support.placement import WEB, an_index, ids, nodes_of, per_node


@pytest.mark.parametrize("amount", [-(2**63), 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_stored_amount_that_no_column_holds_is_counted_as_the_most_there_is(amount: int) -> None:
    """A spec that was stored once must not keep its manager from deciding, whatever it says."""
    index = an_index("n1", "n2")
    index.set_node(a_node("n3", cpu_nano=amount, memory_bytes=amount))
    index.set_node(a_node("n3", cpu_nano=CPU))
    greedy = Demand("greedy", cpu_nano=amount, memory_bytes=amount, max_replicas_per_node=amount)
    for number in range(500):
        index.hold(f"h{number}", greedy, "n1")
    if amount >= 2**53:
        assert index.explain(greedy) == "no suitable node (insufficient resources on 3 nodes)"
        assert index.place(greedy, ["g1"]).unplaced == 1
        assert index.feasible(greedy, "n1", task_id="h1") == "insufficient resources on 1 node"
        # What fits nowhere does not make room by going below what the column can hold.
        assert index.feasible(Demand("web", cpu_nano=1), "n1") != ""
    for number in range(500):
        index.drop(f"h{number}")
    assert index.feasible(Demand("web", cpu_nano=4 * CPU, memory_bytes=8 * GIB), "n1") == ""
    many = Demand("many", max_replicas_per_node=max(1, amount))
    assert index.place(many, ["m1", "m2", "m3"]).unplaced == 0


# --- spread ----------------------------------------------------------------------------------------------------------


def test_s1_tasks_of_other_services_go_to_the_empty_nodes() -> None:
    index = an_index("n1", "n2", "n3")
    index.hold("t1", Demand("s1"), "n1")
    placed = nodes_of(index.place(Demand("s2"), ["t2"])) + nodes_of(index.place(Demand("s3"), ["t3"]))
    assert sorted(placed) == ["n2", "n3"]


def test_s2_nodes_written_again_change_nothing_and_a_dropped_task_frees_its_node() -> None:
    index = an_index("n1", "n2")
    index.hold("t1", Demand("s1"), "n1")
    index.hold("t2", Demand("s2"), "n2")
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id))
    index.drop("t1")
    assert nodes_of(index.place(Demand("s3"), ["t3"])) == ["n1"]


def test_s4_s5_s6_only_ready_nodes_take_tasks() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", state=NodeState.DOWN))
    index.set_node(a_node("n2", availability=Availability.DRAIN))
    index.set_node(a_node("n3", availability=Availability.PAUSE))
    index.set_node(a_node("n4", state=NodeState.UNKNOWN))
    assert index.explain(WEB) == "no suitable node (4 nodes not available for new tasks)"
    index.set_node(a_node("n1"))
    assert nodes_of(index.place(WEB, ["t1"])) == ["n1"]


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("grouped", [True, False])
def test_s8_s9_s10_s12_counts_of_the_service_come_before_counts_of_all(grouped: bool, order: int) -> None:
    """SwarmKit's TestHA, with groups and task by task."""
    index = an_index(*ids("n", 5))

    def place(service: str, task_ids: list[str]) -> list[str]:
        if grouped:
            return nodes_of(index.place(Demand(service), task_ids))
        return [nodes_of(index.place(Demand(service), [task_id]))[0] for task_id in task_ids]

    first = Counter(place("s1", ids("a", 18)))
    assert sorted(first.values()) == [3, 3, 4, 4, 4]
    second = place("s2", ids("b", 2))
    assert sorted(second) == sorted(node for node, n in first.items() if n == 3)
    more = place("s1", ids("c", 3))
    assert len(set(more)) == 3
    assert set(second) < set(more)
    of_s1 = first + Counter(more)
    assert sorted(of_s1.values()) == [4, 4, 4, 4, 5]
    # A node without tasks of s2 is emptied; then four of s1 and two of s2 come, in any order.
    emptied = min(node for node, n in of_s1.items() if n == 4 and node not in second)
    for task_id in tuple(index._holds.tasks_on(emptied)):
        index.drop(task_id)
    new = [("s1", ids("d", 4)), ("s2", ids("e", 2))]
    groups = new if grouped else [(service, [task_id]) for service, task_ids in new for task_id in task_ids]
    random.Random(order).shuffle(groups)
    went: dict[str, list[str]] = {"s1": [], "s2": []}
    for service, task_ids in groups:
        went[service] += place(service, task_ids)
    assert (went["s1"], went["s2"].count(emptied)) == ([emptied] * 4, 1)


def test_s12_a_node_that_was_emptied_is_filled_up_first() -> None:
    index = an_index(*ids("n", 5))
    placed = index.place(Demand("s1"), ids("a", 20)).placed
    for task_id, where in zip(ids("a", 20), placed, strict=True):
        if where.node_id == "n1":
            index.drop(task_id)
    assert nodes_of(index.place(Demand("s1"), ids("b", 4))) == ["n1"] * 4


def test_s22_a_full_node_is_passed_over_although_it_is_emptier() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", memory_bytes=2 * GIB))
    index.set_node(a_node("n2", memory_bytes=100 * GIB))
    index.hold("a", Demand("x", memory_bytes=GIB), "n1")
    for number in range(3):
        index.hold(f"b{number}", Demand("y"), "n2")
    one_off = [nodes_of(index.place(Demand(f"z{n}", memory_bytes=GIB), [f"c{n}"]))[0] for n in range(2)]
    assert one_off == ["n1", "n2"]


def test_ties_are_broken_by_data_and_the_order_of_arrival_does_not_matter() -> None:
    forward, backward = an_index(*ids("n", 40)), an_index(*reversed(ids("n", 40)))
    expected = nodes_of(forward.place(WEB, ids("t", 25)))
    assert expected == nodes_of(backward.place(WEB, ids("t", 25)))
    assert expected != sorted(expected)
    seeded = PlacementIndex("another seed")
    for node_id in ids("n", 40):
        seeded.set_node(a_node(node_id))
    assert expected != nodes_of(seeded.place(WEB, ids("t", 25)))


def test_group_larger_than_the_room_is_placed_in_part_and_the_rest_is_explained() -> None:
    index = an_index("n1", "n2")
    index.set_node(a_node("n3", state=NodeState.DOWN))
    decision = index.place(Demand("web", cpu_nano=2 * CPU), ids("t", 7))
    assert (len(decision.placed), decision.unplaced) == (4, 3)
    assert decision.reasons == [("resources", "", 2), ("not_ready", "", 1)]
    assert (
        decision.explanation
        == "no suitable node (insufficient resources on 2 nodes; 1 node not available for new tasks)"
    )
    assert index.place(WEB, []) == Decision([], 0, [], "")


# --- filters ---------------------------------------------------------------------------------------------------------


def test_s16_no_nodes_is_said_in_swarmkits_words() -> None:
    decision = PlacementIndex().place(WEB, ["t1"])
    assert (decision.unplaced, decision.reasons, decision.explanation) == (1, [], "no suitable node")
    assert PlacementIndex().explain(WEB) == "no suitable node"


def test_s20_s21_most_frequent_reason_comes_first() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", memory_bytes=GIB))
    for node_id in ("n2", "n3"):
        index.set_node(a_node(node_id, state=NodeState.UNKNOWN))
    demand = Demand("web", memory_bytes=2 * GIB)
    expected = "no suitable node (2 nodes not available for new tasks; insufficient resources on 1 node)"
    assert index.place(demand, ["t1"]).explanation == index.explain(demand) == expected
    index.set_node(a_node("n4", memory_bytes=2 * GIB))
    assert nodes_of(index.place(demand, ["t1"])) == ["n4"]


def test_a_task_that_is_given_twice_is_a_defect_of_the_caller() -> None:
    """Its room would be taken twice and given back once."""
    with pytest.raises(AssertionError, match="a task is given once"):
        an_index("n1", "n2").place(Demand("web", cpu_nano=CPU), ["t1", "t2", "t1"])


def test_s49_reservations_fit_at_equality_and_not_at_one_more() -> None:
    index = an_index("n1")
    assert index.feasible(Demand("w", cpu_nano=4 * CPU, memory_bytes=8 * GIB), "n1") == ""
    assert index.feasible(Demand("w", cpu_nano=4 * CPU + 1), "n1") == "insufficient resources on 1 node"
    assert index.feasible(Demand("w", memory_bytes=8 * GIB + 1), "n1") == "insufficient resources on 1 node"


def test_overcommitted_node_still_takes_a_task_that_reserves_nothing() -> None:
    index = an_index("n1")
    index.hold("t1", Demand("w", cpu_nano=3 * CPU), "n1")
    index.set_node(a_node("n1", cpu_nano=CPU))
    assert index.feasible(Demand("w", cpu_nano=1), "n1") != ""
    assert index.feasible(Demand("w", memory_bytes=1), "n1") == ""
    assert nodes_of(index.place(WEB, ["t2"])) == ["n1"]


@pytest.mark.parametrize(
    ("platforms", "fitting"),
    [
        ((Platform(architecture="amd64", os="linux"),), {"n1"}),
        ((Platform(architecture="x86_64", os="linux"),), {"n1"}),
        ((Platform(os="linux"),), {"n1"}),
        ((Platform(),), {"n1", "n2"}),
        ((Platform(architecture="arm", os="linux"),), set()),
        ((Platform(os="windows"), Platform(os="linux")), {"n1", "n2"}),
    ],
)
def test_s25_s26_s28_platforms(platforms: tuple[Platform, ...], fitting: set[str]) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    index.set_node(a_node("n2", architecture="amd64", os="windows"))
    index.set_node(a_node("n3", architecture="", os=""))
    demand = Demand("web", platforms=platforms)
    assert fitting == {node_id for node_id in ("n1", "n2", "n3") if not index.feasible(demand, node_id)}
    if not fitting:
        assert index.explain(demand) == "no suitable node (unsupported platform on 3 nodes)"


def test_s32_s41_replicas_per_node_are_limited() -> None:
    index = an_index("n1", "n2")
    demand = Demand("web", max_replicas_per_node=1)
    decision = index.place(demand, ids("t", 3))
    assert sorted(placed.node_id for placed in decision.placed) == ["n1", "n2"]
    assert decision.explanation == "no suitable node (max replicas per node limit exceed)"
    index.set_node(a_node("n3"))
    assert nodes_of(index.place(demand, ["t9"])) == ["n3"]


def test_s40_host_ports_are_taken_once_for_each_node_and_protocol() -> None:
    index = an_index("n1", "n2")
    tcp, udp = HostPort(port=58), HostPort(protocol="udp", port=58)
    index.hold("t1", Demand("a", host_ports=(tcp,)), "n1")
    index.hold("t2", Demand("b", host_ports=(udp,)), "n2")
    both = Demand("c", host_ports=(tcp, udp))
    assert index.explain(both) == "no suitable node (host-mode port already in use on 2 nodes)"
    assert nodes_of(index.place(Demand("d", host_ports=(tcp,)), ["t3"])) == ["n2"]
    index.drop("t1")
    assert nodes_of(index.place(Demand("d", host_ports=(tcp,)), ["t4"])) == ["n1"]


def test_a_port_on_which_something_else_listens_is_in_use_on_that_node() -> None:
    index = an_index("n1", "n2")
    tcp, udp = HostPort(port=58), HostPort(protocol="udp", port=58)
    index.set_node(a_node("n1", listening=[tcp]))
    index.set_node(a_node("n2", listening=[tcp, udp]))
    assert index.explain(Demand("a", host_ports=(tcp,))) == (
        "no suitable node (host-mode port already in use on 2 nodes)"
    )
    assert nodes_of(index.place(Demand("b", host_ports=(udp,)), ["t1"])) == ["n1"]
    index.set_node(a_node("n2"))
    assert nodes_of(index.place(Demand("a", host_ports=(tcp,)), ["t2"])) == ["n2"]
    index.remove_node("n1")
    index.set_node(a_node("n1"))
    assert nodes_of(index.place(Demand("c", host_ports=(tcp,)), ["t3"])) == ["n1"]


def test_ports_that_lead_to_tasks_need_a_node_with_nftables_and_ports_of_the_node_itself_do_not() -> None:
    index = an_index("n1")
    index.set_node(a_node("n1", forwards_ports=False))
    ports = [PublishedPort(target=80, published=80)]
    forwarded = Demand.of(a_task(spec=a_task_spec(ports=ports)))
    assert index.explain(forwarded) == "no suitable node (no nftables to publish ports on 1 node)"
    index.set_network(HOST_NETWORK_ID, "host", ())
    reserved = Demand.of(a_task(spec=a_task_spec(ports=ports, network_ids=[HOST_NETWORK_ID])))
    assert index.explain(reserved) == ""


def test_group_with_a_host_port_puts_one_task_on_each_node() -> None:
    index = an_index("n1", "n2", "n3")
    decision = index.place(Demand("web", host_ports=(HostPort(port=80),)), ids("t", 5))
    assert sorted(placed.node_id for placed in decision.placed) == ["n1", "n2", "n3"]
    assert decision.reasons == [("host_port", "", 3)]


def test_s42_hostname_is_the_description_s() -> None:
    index = PlacementIndex()
    index.set_node(
        msgspec.structs.replace(a_node("n1", hostname=""), spec=msgspec.structs.replace(a_node().spec, name="node1"))
    )
    demand = Demand("web", constraints=("node.hostname==node1",))
    assert index.explain(demand) == "no suitable node (scheduling constraints not satisfied on 1 node)"
    index.set_node(a_node("n1", hostname="node1"))
    assert index.explain(demand) == ""


def test_constraint_that_is_none_is_satisfied_nowhere() -> None:
    assert "constraints not satisfied" in an_index("n1").explain(Demand("web", constraints=("rubbish",)))


def test_changed_label_counts_at_once() -> None:
    index = an_index("n1")
    demand = Demand("web", constraints=("node.labels.rack==r1",))
    assert index.feasible(demand, "n1") != ""
    index.set_node(a_node("n1", labels={"rack": "r1"}))
    assert index.feasible(demand, "n1") == ""
    index.set_node(a_node("n1", labels={"rack": "r2"}))
    assert index.feasible(demand, "n1") != ""


@pytest.mark.parametrize(
    ("images", "image", "runs"),
    [
        (("host",), "host", True),
        (("host",), "host:latest", True),
        (("host:latest",), "host", True),
        (("host",), "host:latest@sha256:abc", True),
        (("host",), "nginx", False),
        (("host",), "host:1", False),
        (("*",), "nginx", True),
        ((), "", True),
    ],
)
def test_image_needs_an_executor_that_runs_it(images: tuple[str, ...], image: str, runs: bool) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", images=images))
    expected = "" if runs else f"missing executor for image {image} on 1 node"
    assert expected == index.feasible(Demand("web", image=image), "n1")


# --- holds -----------------------------------------------------------------------------------------------------------


def test_s44_s45_a_task_is_held_and_dropped_once() -> None:
    index = an_index("n1")
    half = Demand("web", cpu_nano=2 * CPU)
    index.hold("t1", half, "n1")
    index.hold("t1", half, "n1")
    assert index.feasible(half, "n1") == ""
    index.hold("t2", half, "n1")
    assert index.feasible(half, "n1") != ""
    index.drop("t1")
    index.drop("t1")
    index.drop("never")
    assert index.feasible(half, "n1") == ""
    assert index.feasible(Demand("web", cpu_nano=3 * CPU), "n1") != ""


def test_tasks_of_an_unknown_node_count_when_it_appears() -> None:
    index = PlacementIndex()
    index.hold("t1", Demand("web", cpu_nano=4 * CPU, host_ports=(HostPort(port=80),)), "n1")
    index.hold("t2", Demand("web"), "n1")
    index.drop("t2")
    assert index.feasible(WEB, "n1") == "node n1 is not known"
    index.set_node(a_node("n1"))
    assert index.feasible(Demand("web", cpu_nano=1), "n1") == "insufficient resources on 1 node"
    assert (
        index.feasible(Demand("x", host_ports=(HostPort(port=80),)), "n1") == "host-mode port already in use on 1 node"
    )
    index.remove_node("n1")
    index.remove_node("n1")
    index.set_node(a_node("n1"))
    assert index.feasible(Demand("web", cpu_nano=1), "n1") == "insufficient resources on 1 node"
    index.drop("t1")
    assert index.feasible(Demand("x", cpu_nano=4 * CPU, host_ports=(HostPort(port=80),)), "n1") == ""


def test_row_of_a_removed_node_is_clean_for_the_next() -> None:
    index = an_index("n1", "n2")
    index.hold("t1", Demand("web", cpu_nano=4 * CPU, host_ports=(HostPort(port=80),), max_replicas_per_node=1), "n1")
    index.remove_node("n1")
    assert index.explain(Demand("web", cpu_nano=9 * CPU)) == "no suitable node (insufficient resources on 1 node)"
    index.set_node(a_node("n3"))
    demand = Demand("web", cpu_nano=4 * CPU, host_ports=(HostPort(port=80),), max_replicas_per_node=1)
    assert index.feasible(demand, "n3") == ""


def test_own_hold_does_not_count_when_a_placement_is_checked_again() -> None:
    index = an_index("n1", "n2")
    demand = Demand("web", cpu_nano=4 * CPU, host_ports=(HostPort(port=80),), max_replicas_per_node=1)
    (placed,) = index.place(demand, ["t1"]).placed
    assert index.feasible(demand, placed.node_id) != ""
    assert index.feasible(demand, placed.node_id, task_id="t1") == ""
    index.set_node(a_node(placed.node_id, cpu_nano=CPU))
    assert index.feasible(demand, placed.node_id, task_id="t1") == "insufficient resources on 1 node"


def test_more_services_than_columns_are_kept_are_counted_right() -> None:
    index = an_index("n1", "n2")
    for number in range(40):
        assert per_node(index.place(Demand(f"s{number}"), ids(f"s{number}-", 2))) == [1, 1]
    for number in range(40):
        limited = Demand(f"s{number}", max_replicas_per_node=1)
        assert index.explain(limited) == "no suitable node (max replicas per node limit exceed)"


def test_tasks_of_more_services_than_columns_are_kept_are_checked_right_together() -> None:
    """What was found for the first is used again after the kernel's columns have gone to others."""
    index, findings = an_index("n1", "n2"), Findings()
    index._holds.services = ServiceTasks(columns_bytes_max=0)
    limited = [Demand(f"s{number}", max_replicas_per_node=1) for number in range(40)]
    for demand in limited:
        index.hold(f"{demand.service_id}-1", demand, "n1")
        index.hold(f"{demand.service_id}-2", demand, "n2")
    for slot, node_id in enumerate(("n1", "n2"), start=1):
        for demand in limited:
            task_id = f"{demand.service_id}-{slot}"
            assert index.feasible(demand, node_id, task_id=task_id, findings=findings) == ""


def test_placing_a_task_twice_is_a_mistake() -> None:
    index = an_index("n1")
    index.place(WEB, ["t1"])
    with pytest.raises(AssertionError, match="placed once"):
        index.place(WEB, ["t1"])
