"""What gossip says of nodes, in constraints and preferences: tags, and estimated round-trip times."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core import decision_log as log
from beeyard.core.constraint import matches, parse, parse_all
from beeyard.core.errors import InvalidSpec
from beeyard.core.membership import Coordinate, Membership, coordinate_fault, rtt_s
from beeyard.core.model import Node
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.preference import parse_preference
from beeyard.core.recorded_index import RecordedIndex
from beeyard.core.replay import replay
from tests.support.builders import a_membership, a_node


def at(node_id: str, ms: float | None, **tags: str) -> Node:
    return a_node(node_id, hostname=f"host-{node_id}", membership=a_membership(node_id, ms, **tags))


def fitting(index: PlacementIndex, *constraints: str) -> list[str]:
    demand = Demand("", constraints=constraints)
    nodes = [node for node in index._asking.columns.nodes if node is not None]
    return [node.id for node in nodes if not index.feasible(demand, node.id)]


def an_index(*nodes: Node) -> PlacementIndex:
    index = PlacementIndex()
    for node in nodes:
        index.set_node(node)
    return index


@pytest.mark.parametrize(
    ("expression", "fits", "fits_without"),
    [
        ("node.tags.dc==ams", True, False),
        ("NODE.Tags.dc==AMS", True, False),
        ("node.tags.DC==ams", False, False),
        ("node.tags.dc!=ams", False, True),
        ("node.tags.dc in (fra, ams)", True, False),
        ("node.tags.dc =~ a.s", True, False),
    ],
)
def test_a_tag_is_compared_as_a_label_is(expression: str, fits: bool, fits_without: bool) -> None:
    """A node that does not gossip has no tags."""
    node, without = at("n1", None, dc="ams"), a_node("n2")
    assert [matches(parse_all([expression]), n) for n in (node, without)] == [fits, fits_without]
    assert fitting(an_index(node, without), expression) == ["n1"] * fits + ["n2"] * fits_without


def test_tasks_are_spread_over_tags() -> None:
    index = an_index(*(at(f"n{i}", None, dc="ams" if i < 3 else "fra") for i in range(4)))
    demand = Demand("s1", preferences=(parse_preference("spread=node.tags.dc".removeprefix("spread=")),))
    placed = index.place(demand, [f"t{i}" for i in range(4)]).placed
    assert [where.node_id for where in placed].count("n3") == 2


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("node.rtt.host-n1<=5ms", ["n1", "n2"]),
        ("node.rtt.HOST-N1 <= 4999us", ["n1"]),
        ("node.rtt.n1<=0.05s", ["n1", "n2", "n3"]),
        ("node.rtt.n1>=5ms", ["n2", "n3"]),
        ("node.rtt.n1>=0ms", ["n1", "n2", "n3"]),
        ("node.rtt.n4<=1s", []),
        ("node.rtt.nobody<=1s", []),
        ("node.rtt.nobody>=0ms", []),
    ],
)
def test_a_round_trip_time_counts_where_it_is_known(expression: str, ids: list[str]) -> None:
    """Nodes without a coordinate, and a target without one, satisfy neither comparison."""
    nodes = (at("n1", 0), at("n2", 5), at("n3", 40), at("n4", None), a_node("n5"))
    assert fitting(an_index(*nodes), expression) == ids
    parsed = parse_all([expression])
    assert [node.id for node in nodes if matches(parsed, node, nodes)] == ids
    assert not any(matches(parsed, node) for node in nodes)


def test_a_name_that_two_nodes_have_says_nothing() -> None:
    twins = [msgspec.structs.replace(at(i, 0), description=at("x", 0).description) for i in ("n1", "n2")]
    assert fitting(an_index(*twins), "node.rtt.host-x<=1s") == []
    assert fitting(an_index(*twins), "node.rtt.n1<=1s") == ["n1", "n2"]


def test_nodes_that_move_come_and_go_are_asked_anew() -> None:
    """Also the one to which the time counts; a copy is not disturbed."""
    index = an_index(at("n1", 0), at("n2", 5))
    assert fitting(index, "node.rtt.n1<=1ms") == ["n1"]
    index.set_node(at("n2", 0.5))
    assert fitting(index, "node.rtt.n1<=1ms") == ["n1", "n2"]
    index.set_node(at("n1", 90))
    assert fitting(index, "node.rtt.n1<=1ms") == ["n1"]
    twin = index.copy()
    index.remove_node("n1")
    assert fitting(index, "node.rtt.n1<=1ms") == []
    assert fitting(twin, "node.rtt.n1<=1ms") == ["n1"]
    for number in range(100):  # beyond what the table began with
        index.set_node(at(f"m{number}", number))
    assert fitting(index, "node.rtt.m50<=1.5ms") == ["m49", "m50", "m51"]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("node.rtt.db1==5ms", "is compared so: node.rtt.db1<=5ms"),
        ("node.rtt.db1 in (5ms)", "is compared so"),
        ("node.rtt.db1<=5", "'5' is no duration such as 5ms"),
        ("node.rtt.db1<=-1ms", "is no duration"),
        ("node.rtt.db1<=", "is no duration"),
        ("node.labels.a<=5ms", "compares round-trip times, such as node.rtt.NODE<=5ms"),
        ("node.rtt.<=5ms", "such as node.rtt.NODE"),
        ("node.tags.==ams", "'node.tags.' ends with its dot: the name goes behind it, such as node.tags.dc"),
    ],
)
def test_what_compares_nothing_is_refused(expression: str, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=sentence):
        parse(expression)


def test_it_is_shown_as_it_was_written() -> None:
    assert [str(parse(text)) for text in ("Node.RTT.db1 <= 5MS", "node.rtt.a>=0.5s")] == [
        "node.rtt.db1<=5MS",
        "node.rtt.a>=0.5s",
    ]


def test_where_nodes_are_is_replayed() -> None:
    """A log of decisions has the coordinates that they were made on."""
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    near = Demand("s1", constraints=("node.rtt.n1<=0.9ms",))
    for number in range(1, 6):
        index.set_node(at(f"n{number}", number / 3))
    index.place(near, ["t1", "t2", "t3"])
    index.set_node(at("n1", 2.0))
    index.place(near, ["t4", "t5", "t6", "t7", "t8"])
    decided = [entry.choices for entry in log.entries(b"".join(written)) if isinstance(entry, log.Place)]
    assert [sorted({node_id for node_id, _, _ in choices}) for choices in decided] == [
        ["n1", "n2", "n3"],
        ["n1", "n4", "n5"],
    ]
    assert replay(b"".join(written)).difference == ""


def test_distance_has_heights_and_adjustments_unless_they_leave_nothing() -> None:
    """Serf's own numbers: the raw distance counts where the adjusted one would not be positive."""
    origin, far = Coordinate(height=0.001), Coordinate(vec=(0.003, 0.004, *(0.0,) * 6), height=0.002, adjustment=0.01)
    assert rtt_s(origin, far) == pytest.approx(0.018)
    assert rtt_s(origin, msgspec.structs.replace(far, adjustment=-1.0)) == pytest.approx(0.008)


@pytest.mark.parametrize(
    ("coordinate", "sentence"),
    [
        (Coordinate(), ""),
        (Coordinate(vec=(0.0,) * 7), "7 dimensions"),
        (Coordinate(vec=(0.0,) * 7 + (float("nan"),)), "not finite"),
        (Coordinate(height=float("inf")), "not finite"),
    ],
)
def test_coordinates_that_cannot_be_reckoned_with_are_told_apart(coordinate: Coordinate, sentence: str) -> None:
    assert sentence in coordinate_fault(coordinate)
    assert bool(coordinate_fault(coordinate)) is bool(sentence)


def test_clusters_without_gossip_pay_nothing() -> None:
    """Nothing is kept of nodes until a constraint speaks of a round-trip time, and no fit is derived anew for one."""
    index = an_index(at("n1", 0))
    columns = index._asking.columns
    index.feasible(Demand("", constraints=("node.tags.dc==a",)), "n1")
    epoch = columns.epoch
    index.set_node(at("n1", 50))
    assert (columns.epoch, columns._rtt._places) == (epoch, None)
    index.set_node(msgspec.structs.replace(at("n1", 50), description=at("n1", 50, dc="a").description))
    assert columns.epoch == epoch + 1


def test_membership_is_part_of_the_description_on_the_wire() -> None:
    """An older peer, which knows no such field, is understood and understands."""
    node = at("n1", 3, dc="ams")
    encoded = msgspec.msgpack.encode(node)
    assert msgspec.msgpack.decode(encoded, type=Node) == node
    plain = msgspec.msgpack.decode(encoded)
    del plain["description"]["membership"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=Node).description.membership is None
    assert Membership(name="x").tags == {}
