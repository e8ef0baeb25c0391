"""What-if on the live index: the same as doing it to a copy, and nothing is different afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.demand import Demand, PoolColumn
from beeyard.core.model import HostPort
from beeyard.core.placement import PlacementIndex
from beeyard.core.recorded_index import RecordedIndex
from beeyard.core.states import NodeState
from tests.support.builders import a_node
from tests.support.examples import examples
from tests.support.placement import an_index, ids
from tests.support.volumes import a_mount, a_volume
from tests.unit.core.test_counterfactual import a_cluster
from tests.unit.core.test_placement_oracle import NODE_IDS, demands

WEB = Demand("web")
ON_LAN = Demand("web", network_ids=("lan",))


def state_of(index: PlacementIndex) -> object:
    """Everything that decides, as far as it can be compared."""
    tables = [index._table.row(row) for row in sorted(index._holds.rows.values())]
    holds = {id_: (hold.node_id, hold.counted, hold.plans) for id_, hold in index._holds.by_task.items()}
    services = {id_: dict(counts) for id_, counts in index._holds.services._by_service.items() if counts}
    for id_, column in index._holds.services._columns.items():
        assert dict(enumerate(column.tolist())) | services.get(id_, {}) == dict(enumerate(column.tolist()))
        assert column.sum() == sum(services.get(id_, {}).values())
    pools = index._pools.available.tolist(), dict(index._pools._planned)
    ports = {port: dict(nodes) for port, nodes in index.ports._taken.items()}
    links = [index._links.on(parent, row) for parent in index._links._index for row in index._holds.rows.values()]
    counts = [int(counts.sum()) for counts in index._links.counts]
    volumes = index.volumes._users, index.volumes._uses
    asked_for = dict(index._strategies._asked_for)
    return tables, holds, services, pools, ports, links, counts, repr(volumes), asked_for


def lost(index: PlacementIndex, node_ids: Sequence[str]) -> list[tuple[str, str, str]]:
    """Losing nodes for good, on a copy: where each task would go, "" for nowhere."""
    twin = index.copy()
    groups: dict[Demand, list[str]] = {}
    for node_id in node_ids:
        for task_id in twin._holds.tasks_on(node_id):
            groups.setdefault(twin._holds.by_task[task_id].demand, []).append(task_id)
        row = twin._holds.rows.get(node_id)
        node = None if row is None else twin._asking.columns.nodes[row]
        if node is not None:
            twin.set_node(
                msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, state=NodeState.DOWN))
            )
    found = []
    for demand, task_ids in groups.items():
        decision = twin.place(demand, [f"new {task_id}" for task_id in task_ids])
        found += [(id_, placed.node_id, "") for id_, placed in zip(task_ids, decision.placed, strict=False)]
        found += [(id_, "", decision.explanation) for id_ in task_ids[len(decision.placed) :]]
    return found


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_losing_nodes_is_told_as_it_happens_to_a_copy(data: st.DataObject) -> None:
    index = a_cluster(data)
    drawn = data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=3, unique=True))
    node_ids = [id_ for id_ in drawn if id_ in index._holds.rows]
    before = state_of(index)
    after = index.what_if().lost(node_ids)
    assert state_of(index) == before
    pinned = {id_ for id_, hold in index._holds.by_task.items() if hold.demand.pins}
    told = [(move.task_id, move.to.node_id, "") for move in after.moves]
    told += [(one.task_id, "", one.explanation) for one in after.stuck]
    if not pinned:
        assert sorted(told) == sorted(lost(index, node_ids))
    assert {task_id for task_id, *_ in told} == {id_ for n in node_ids for id_ in index._holds.tasks_on(n)}


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_questions_change_nothing(data: st.DataObject) -> None:
    index = a_cluster(data)
    before = state_of(index)
    demand, n = data.draw(demands), data.draw(st.integers(0, 12))
    decision = index.what_if().service(demand, n)
    index.what_if().drained(data.draw(st.lists(st.sampled_from(NODE_IDS), max_size=3)))
    assert state_of(index) == before
    assert index.place(demand, ids("real", n)) == decision


def test_a_lost_node_keeps_its_addresses_and_a_drained_one_gives_them_back() -> None:
    index = an_index("n1", "n2")
    index.set_network("lan", "macvlan", [PoolColumn("p", "lan", "eth0", "", 1)])
    assert index.place(ON_LAN, ["t1"]).unplaced == 0
    (hold,) = index._holds.by_task.values()
    other = "n2" if hold.node_id == "n1" else "n1"
    stuck = index.what_if().lost([hold.node_id]).stuck
    assert [one.explanation for one in stuck] == [
        "no suitable node (1 node not available for new tasks; no address left in pool lan on 1 node)"
    ]
    assert [move.to.node_id for move in index.what_if().drained([hold.node_id]).moves] == [other]


def test_a_drained_volume_user_finds_its_volume_elsewhere() -> None:
    index = an_index("n1", "n2")
    index.volumes.set(a_volume("v0", sharing="none", scope="single"))
    demand = Demand("db", volumes=(a_mount("data-v0"),))
    (placed,) = index.place(demand, ["t1"]).placed
    assert len(index.what_if().lost([placed.node_id]).stuck) == 1
    (move,) = index.what_if().drained([placed.node_id]).moves
    assert (move.to.node_id != placed.node_id, [use.name for use in move.to.volumes]) == (True, ["data-v0"])


def test_tasks_that_stay_are_told_with_their_reason_or_left_out() -> None:
    index = an_index("n1")
    index.place(WEB, ["a", "b", "c"])
    index.set_node(a_node("n2"))
    after = index.what_if().lost(["n1"], stay={"a": "", "b": "waits"})
    assert [move.task_id for move in after.moves] == ["c"]
    assert [(one.task_id, one.explanation) for one in after.stuck] == [("b", "waits")]


def test_a_slots_addresses_stay_with_the_lost_task() -> None:
    index = an_index("n1", "n2")
    index.set_network("lan", "macvlan", [PoolColumn("p", "lan", "eth0", "", 9, subnets=("10.1.0.0/24",))])
    index.hold("t1", msgspec.structs.replace(ON_LAN, pins=("10.1.0.9",)), "n1")
    (stuck,) = index.what_if().lost(["n1"]).stuck
    assert stuck.explanation == "waits for 10.1.0.9, which the lost task keeps until its lease has ended"
    assert [move.to.node_id for move in index.what_if().drained(["n1"]).moves] == ["n2"]


def test_nodes_that_nobody_knows_and_tasks_without_room() -> None:
    index = an_index("n1", "n2")
    index.place(Demand("big", cpu_nano=3 * 10**9), ["a", "b"])
    after = index.what_if().lost(["n1", "n1", "nobody"])
    assert (after.node_ids, len(after.moves), len(after.stuck)) == (("n1",), 0, 1)
    assert after.stuck[0].explanation == (
        "no suitable node (1 node not available for new tasks; insufficient resources on 1 node)"
    )


def test_nothing_of_it_is_recorded() -> None:
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    index.set_network("lan", "macvlan", [PoolColumn("p", "lan", "eth0", "", 9)])
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id))
    index.volumes.set(a_volume("v0", sharing="all"))
    demand = msgspec.structs.replace(ON_LAN, volumes=(a_mount("data-v0"),), host_ports=(HostPort(port=80),))
    index.place(demand, ["t1"])
    n_written = len(written)
    assert index.what_if().service(demand, 3).unplaced == 2
    assert len(index.what_if().drained(["n1", "n2"]).stuck) == 1
    index.explainer.explain(demand, n_tasks=5)
    assert len(written) == n_written
    index.place(demand, ["t2"])
    assert len(written) > n_written
