"""The strategies at the face of the kernel: where groups go, and that every filter holds for each strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from beeyard.core.batch import TASKS_MIN
from beeyard.core.model import HostPort
from beeyard.core.placement import Demand, PlacementIndex, PoolColumn
from tests.support.builders import a_link, a_node

ALL = ("spread", "pack", "shape", "fgd")


def an_index(strategy: str, sizes: Sequence[tuple[int, int]]) -> PlacementIndex:
    """Nodes n0, n1, ... with so much CPU and memory."""
    index = PlacementIndex(strategy=strategy)
    for number, (cpu, memory) in enumerate(sizes):
        index.set_node(
            a_node(
                f"n{number}", labels={"rack": f"r{number}"}, cpu_nano=cpu, memory_bytes=memory, links=(a_link("eth0"),)
            )
        )
    return index


def place(index: PlacementIndex, demand: Demand, n_tasks: int) -> list[str]:
    """The nodes that new tasks of a demand go to."""
    task_ids = [f"{demand.service_id}.{len(index._holds.by_task) + number}" for number in range(n_tasks)]
    return [where.node_id for where in index.place(demand, task_ids).placed]


def test_spread_takes_all_nodes_and_the_others_take_few() -> None:
    """What the strategies are for."""
    used = {strategy: len(set(place(an_index(strategy, [(8, 8)] * 6), Demand("s", 1, 1), 8))) for strategy in ALL}
    assert used == {"spread": 6, "pack": 1, "shape": 1, "fgd": 1}


def test_shape_sends_tasks_to_nodes_of_their_proportions() -> None:
    """Much memory for each core, much CPU for each byte."""
    index = an_index("shape", [(64, 32), (32, 64), (48, 48)])
    assert place(index, Demand("m", 1, 8), 3) == ["n1"] * 3
    assert place(index, Demand("c", 8, 1), 1) == ["n0"]


def test_fgd_keeps_room_for_what_is_usual() -> None:
    """Once most tasks are large, small ones go where no large one fits any more."""
    index = an_index("fgd", [(8, 8)] * 4)
    place(index, Demand("large", 6, 6), 1)
    index.place(Demand("huge", 60, 60), [f"waits.{number}" for number in range(2)])
    for number in range(40):
        index.place(Demand("large", 6, 6), [f"more.{number}"])
        index.drop(f"more.{number}")
    on_large = place(index, Demand("small", 2, 2), 1)
    assert on_large == place(index, Demand("none", 0, 0), 0) + on_large
    assert len(place(index, Demand("large", 6, 6), 4)) == 3


def test_a_service_chooses_its_strategy_and_preferences_spread() -> None:
    """The demand's word before the cluster's; an unknown one is the cluster's; one bound to a node goes there."""
    index = an_index("spread", [(8, 8)] * 4)
    assert len(set(place(index, Demand("p", 1, 1, strategy="pack"), 4))) == 1
    assert len(set(place(index, Demand("q", 1, 1, strategy="nonsense"), 4))) == 4
    assert place(an_index("pack", [(8, 8)] * 4), Demand("b", 1, 1, node_id="n3"), 2) == ["n3"] * 2
    with pytest.raises(ValueError, match="strategy 'tight': one of spread, pack, shape, fgd"):
        PlacementIndex(strategy="tight")


@pytest.mark.parametrize("strategy", ALL)
def test_every_strategy_obeys_every_filter(strategy: str) -> None:
    """Constraints, ports, replicas, addresses, room, masks, readiness, generic resources."""
    index = an_index(strategy, [(8, 8)] * 5)
    index.set_network("lan", "macvlan", [PoolColumn("p", "p", "eth0", "", 3)])
    assert place(index, Demand("c", 1, 1, constraints=("node.labels.rack==r2",)), 9) == ["n2"] * 8
    assert sorted(place(index, Demand("h", 1, 1, host_ports=(HostPort(port=80),)), 9)) == ["n0", "n1", "n3", "n4"]
    assert Counter(place(index, Demand("r", 1, 1, max_replicas_per_node=2), 99)) == {"n0": 2, "n1": 2, "n3": 2, "n4": 2}
    assert len(place(index, Demand("a", 1, 1, network_ids=("lan",)), 9)) == 3
    index.set_node(a_node("n3", cpu_nano=8, memory_bytes=8, availability="drain"))
    decision = index.place(Demand("m", 1, 1), ["m.0", "m.1", "m.2", "m.3"] * 1, masked=["n0", "n1"])
    assert {"n4"} >= {where.node_id for where in decision.placed}
    for where in decision.placed:
        assert index.room(where.node_id).free.cpu_nano >= 0
    assert place(index, Demand("g", 1, 1, generic=(("gpu", 1),)), 1) == []


@pytest.mark.parametrize("strategy", ["pack", "shape", "fgd"])
def test_holds_that_come_and_go_are_seen(strategy: str) -> None:
    """The strategies' own columns follow the table: dropped tasks, changed and new nodes, new kinds."""
    index = an_index(strategy, [(4, 4)] * 2)
    assert len(place(index, Demand("s", 2, 2), 9)) == 4
    index.drop("s.0")
    assert len(place(index, Demand("t", 2, 2), 9)) == 1
    index.set_node(a_node("n0", cpu_nano=8, memory_bytes=8))
    assert place(index, Demand("u", 2, 2), 9) == ["n0", "n0"]
    index.set_node(a_node("n9", cpu_nano=4, memory_bytes=4, generic={"gpu": 1}))
    assert place(index, Demand("v", 1, 1, generic=(("gpu", 1),)), 9) == ["n9"]
    index.remove_node("n9")
    assert place(index, Demand("w", 1, 1), 1) == []
    for number in range(70):
        index.set_node(a_node(f"m{number}", cpu_nano=1, memory_bytes=1))
    assert len(place(index, Demand("x", 1, 1), 99)) == 70


def test_many_groups_are_packed_bin_by_bin_and_all_are_held() -> None:
    """Large and small tasks together need as few nodes as there can be; what shares more than room goes the other way."""
    index = an_index("pack", [(10, 10)] * 200)
    groups = [
        (Demand("a", 7, 2), [f"a.{number}" for number in range(TASKS_MIN // 2)]),
        (Demand("b", 3, 8), [f"b.{number}" for number in range(TASKS_MIN // 2)]),
        (Demand("c", 1, 1, host_ports=(HostPort(port=80),)), ["c.0", "c.1"]),
        (Demand("d", 99, 1), ["d.0"]),
    ]
    decisions, report = index.place_many(groups, rounds=10)
    assert report is not None
    assert (report.opened, report.gap) == (TASKS_MIN // 2, 0.0)
    assert [len(decision.placed) for decision in decisions] == [TASKS_MIN // 2, TASKS_MIN // 2, 2, 0]
    assert decisions[3].explanation.startswith("no suitable node (insufficient resources")
    assert len(index._holds.by_task) == TASKS_MIN + 2
    for number in range(200):
        room = index.room(f"n{number}")
        assert room.free.cpu_nano >= 0
        assert room.free.memory_bytes >= 0


def test_few_tasks_and_other_strategies_are_placed_one_after_another() -> None:
    """Then there is no report."""
    for strategy, n_tasks in (("pack", 5), ("spread", TASKS_MIN)):
        index = an_index(strategy, [(100, 100)] * 8)
        decisions, report = index.place_many([(Demand("a", 1, 1), [f"a.{number}" for number in range(n_tasks)])])
        assert report is None
        assert n_tasks == len(decisions[0].placed)


def test_a_node_that_has_less_than_nothing_of_what_is_not_asked_for_takes_its_part_of_a_batch() -> None:
    """What is not asked for is not compared, in batches as elsewhere."""
    index = an_index("pack", [(100, 100)] * 2)
    index.set_node(a_node("n2", cpu_nano=200, memory_bytes=200, generic={"gpu": 2}))
    index.hold("with a gpu", Demand("g", generic=(("gpu", 2),)), "n2")
    index.set_node(a_node("n2", cpu_nano=200, memory_bytes=200))
    room = index.room("n2")
    assert room is not None
    assert dict(room.free.generic_amounts) == {"gpu": -2}
    (decision,), report = index.place_many([(Demand("a", 1, 1), [f"a.{n}" for n in range(TASKS_MIN)])])
    assert report is not None
    assert report.n_tasks == len(decision.placed) == TASKS_MIN
    assert [where.node_id for where in decision.placed].count("n2") == 200
