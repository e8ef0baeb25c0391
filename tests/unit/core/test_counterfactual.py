"""Counterfactuals against the kernel, on random clusters: what each node lacks, and that every relaxation places the task."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.demand import Demand, PoolColumn
from beeyard.core.placement import PlacementIndex
from beeyard.core.reasons import Reason
from beeyard.core.relaxation import Relaxation, Yield
from tests.support.builders import a_node
from tests.support.counterfactual import applied
from tests.support.examples import examples
from tests.unit.core import test_placement_oracle_volumes as with_volumes
from tests.unit.core.test_placement_oracle import NODE_IDS, demands, links_held, nodes, shapes


def a_cluster(data: st.DataObject) -> PlacementIndex:
    """Nodes, networks and some tasks."""
    index = PlacementIndex()
    for node_id in NODE_IDS[: data.draw(st.integers(1, 4))]:
        index.set_node(data.draw(nodes(node_id)))
    index.set_network("host", "host", ())
    for network_id in ("lan", "wan"):
        driver, pools = data.draw(shapes)
        named = {pool.pool_id: msgspec.structs.replace(pool, name=f"lan-{pool.pool_id}") for pool in pools}
        index.set_network(network_id, driver, list(named.values()))
    for number in range(data.draw(st.integers(0, 3))):
        index.hold(f"h{number}", data.draw(demands), data.draw(st.sampled_from(NODE_IDS)), links=data.draw(links_held))
    index.place(data.draw(demands), [f"t{number}" for number in range(data.draw(st.integers(0, 6)))])
    return index


def some_demands(data: st.DataObject) -> Demand:
    """One that may be bound to a node."""
    bound = data.draw(st.sampled_from(["", "", "", "", "n0", "n7"]))
    return msgspec.structs.replace(data.draw(demands), node_id=bound)


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_what_nodes_lack_is_what_the_kernel_says(data: st.DataObject) -> None:
    index, demand = a_cluster(data), some_demands(data)
    masked = data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=2))
    explanation = index.explainer.explain(demand, masked=masked, nodes=True)
    assert explanation.sentence == index.explain(demand, masked=masked)
    assert explanation.n_fitting == sum(not node.lacks for node in explanation.nodes)
    assert len(explanation.nodes) == explanation.n_nodes
    refused = {node.node_id for node in explanation.nodes if (Reason.REFUSED, "") in node.lacks}
    assert refused == {node.node_id for node in explanation.nodes} & set(masked)


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_every_relaxation_places_the_task_when_it_is_applied(data: st.DataObject) -> None:
    index, demand = a_cluster(data), some_demands(data)
    masked = data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=2))
    before = index.explain(demand, masked=masked)
    explanation = index.explainer.explain(demand, masked=masked)
    assert index.explain(demand, masked=masked) == before
    orders = [relaxation.order for relaxation in explanation.relaxations]
    assert orders == sorted(orders)
    for relaxation in explanation.relaxations:
        assert_places(index, relaxation, masked)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_every_relaxation_of_volumes_places_the_task(data: st.DataObject) -> None:
    index = PlacementIndex()
    for node_id in ("n0", "n1", "n2"):
        rack = data.draw(st.sampled_from(["r0", "r1"]))
        index.set_node(a_node(node_id, cpu_nano=data.draw(st.integers(0, 2)), labels={"rack": rack}))
    for volume in data.draw(st.lists(with_volumes.volumes, max_size=4)):
        index.volumes.set(volume)
    index.place(data.draw(with_volumes.demands), ["t0", "t1"])
    demand = data.draw(with_volumes.demands)
    explanation = index.explainer.explain(demand, nodes=True)
    assert explanation.n_fitting == sum(not node.lacks for node in explanation.nodes)
    assert not (explanation.relaxations and explanation.n_fitting)
    for relaxation in explanation.relaxations:
        assert_places(index, relaxation, [])


def assert_places(index: PlacementIndex, relaxation: Relaxation, masked: list[str]) -> None:
    tried = applied(index, relaxation)
    left = [] if any(change.what is Yield.REFUSALS for change in relaxation.changes) else masked
    decision = tried.place(relaxation.demand, ["new"], masked=left)
    assert len(decision.placed) == 1, relaxation.text
    tried.drop("new")
    fitting = [id_ for id_ in NODE_IDS if id_ not in left and not tried.feasible(relaxation.demand, id_)]
    if not relaxation.demand.node_id:
        assert len(fitting) == relaxation.n_nodes
        assert set(relaxation.node_ids) <= set(fitting)


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_the_least_that_a_resource_must_give_way_is_found(data: st.DataObject) -> None:
    """Only CPU and memory decide: one unit less of what gives way would not be enough."""
    index = PlacementIndex()
    for node_id in NODE_IDS[: data.draw(st.integers(1, 6))]:
        index.set_node(
            a_node(node_id, cpu_nano=data.draw(st.integers(0, 9)), memory_bytes=data.draw(st.integers(0, 9)))
        )
    demand = Demand("s", cpu_nano=data.draw(st.integers(0, 12)), memory_bytes=data.draw(st.integers(0, 12)))
    for relaxation in index.explainer.explain(demand).relaxations:
        for change in relaxation.changes:
            field = {Yield.CPU: "cpu_nano", Yield.MEMORY: "memory_bytes"}[change.what]
            more = msgspec.structs.replace(relaxation.demand, **{field: getattr(relaxation.demand, field) + 1})
            assert index.explain(more) != ""


def test_several_tasks_that_wait_need_an_address_each() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", labels={"rack": "r1"}))
    index.set_network("lan", "macvlan", [PoolColumn("p", "lan-r1", "eth0", "node.labels.rack==r1", 0)])
    found = index.explainer.explain(Demand("web", network_ids=("lan",)), n_tasks=2).relaxations
    assert [relaxation.text for relaxation in found] == [
        "2 addresses more in lan-r1: 1 node",
        "without network lan: 1 node",
    ]
    tried = applied(index, found[0])
    assert tried.place(found[0].demand, ["a", "b"]).unplaced == 0


def test_pairs_are_told_when_no_single_thing_is_enough() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", labels={"rack": "r1"}, cpu_nano=1))
    index.set_node(a_node("n2", labels={"rack": "r2"}, cpu_nano=2))
    demand = Demand("web", cpu_nano=3, constraints=("node.labels.rack==r9",))
    assert [relaxation.text for relaxation in index.explainer.explain(demand).relaxations] == [
        "0.000000001 CPU less and without constraint node.labels.rack==r9: 1 node"
    ]


def test_a_task_that_has_a_place_needs_no_relaxation() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    explanation = index.explainer.explain(Demand("web"))
    assert (explanation.n_fitting, explanation.sentence, explanation.relaxations) == (1, "", [])


def test_a_cluster_without_nodes_has_nothing_to_relax() -> None:
    explanation = PlacementIndex().explainer.explain(Demand("web"))
    assert (explanation.n_nodes, explanation.sentence, explanation.relaxations) == (0, "no suitable node", [])
