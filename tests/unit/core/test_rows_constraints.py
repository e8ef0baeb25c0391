"""The constraint language, row by row as SwarmKit's own tests have it: C1 to C17 of its scenarios."""

from __future__ import annotations

import pytest

from beeyard.core.constraint import matches, parse, parse_all
from beeyard.core.errors import InvalidSpec
from beeyard.core.model import Node
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.states import Role
from tests.support.builders import a_node


def fits(expression: str, node: Node) -> bool:
    return matches(parse_all([expression]), node)


@pytest.mark.parametrize(
    "expression", ["", " ", "node.role", "node.role worker", "node.role~worker", "node.role=worker"]
)
def test_c1_without_an_operator_nothing_is_parsed(expression: str) -> None:
    with pytest.raises(InvalidSpec, match="expected one operator"):
        parse(expression)


@pytest.mark.parametrize("key", ["1node", "", "node role", "node*", "node$", "n"])
def test_c2_keys_that_are_none(key: str) -> None:
    with pytest.raises(InvalidSpec, match="key"):
        parse(f"{key}==a")


@pytest.mark.parametrize("key", ["NODE.Role", "node.labels.a.b", "_node", "node.labels.a-b_c"])
def test_c2_keys_that_are_fine(key: str) -> None:
    assert parse(f"{key}==a").values == ("a",)


def test_c4_blanks_around_key_and_value_are_trimmed() -> None:
    assert parse("  node.labels.a  ==   b c  ") == parse("node.labels.a==b c")


@pytest.mark.parametrize("value", ["r*", "r.", "r1$", "^r1", "r", "r11", "*"])
def test_c5_values_are_compared_whole_and_literally(value: str) -> None:
    node = a_node(labels={"rack": "r1"})
    assert not fits(f"node.labels.rack=={value}", node)
    assert fits(f"node.labels.rack!={value}", node)
    assert fits("node.labels.rack==R1", node)
    assert fits(f"node.labels.rack=={value.upper()}", a_node(labels={"rack": value}))


def test_c6_of_several_values_one_must_be_equal_and_none_may_be() -> None:
    constraint = parse("node.labels.rack in (r1, r2, R3)")
    assert [constraint.accepts(rack) for rack in ("r0", "r1", "r3", "r", "")] == [False, True, True, False, False]
    constraint = parse("node.labels.rack not in (r1, r2, R3)")
    assert [constraint.accepts(rack) for rack in ("r0", "r1", "r3", "r", "")] == [True, False, False, True, True]


@pytest.mark.parametrize("expression", ["node.abc.bcd==high", "node.abc.bcd!=high"])
def test_c8_an_unknown_key_parses_and_never_matches(expression: str) -> None:
    assert not fits(expression, a_node(labels={"bcd": "high"}))


def test_c9_hostname() -> None:
    assert fits("node.hostname!=yard1", a_node(hostname=""))
    assert not fits("node.hostname==yard1", a_node(hostname=""))
    assert not fits("node.hostname!=yard1", a_node(hostname="YARD1"))
    assert fits("node.hostname==yard1", a_node(hostname="YARD1"))


@pytest.mark.parametrize(
    ("value", "equal", "unequal"),
    [
        ("186.17.9.41", True, False),
        ("186.17.9.42", False, True),
        ("186.17.9.4/24", True, False),
        ("186.17.8.4/24", False, True),
        ("186.17.9.41/34", False, False),
        ("266.17.9.41", False, False),
        ("somewhere", False, False),
    ],
)
def test_c10_addresses_and_networks(value: str, equal: bool, unequal: bool) -> None:
    node = a_node(address="186.17.9.41")
    assert fits(f"node.ip=={value}", node) is equal
    assert fits(f"node.ip!={value}", node) is unequal


def test_c12_a_node_without_address() -> None:
    assert not fits("node.ip==186.17.9.41", a_node(address=""))
    assert fits("node.ip!=186.17.9.41", a_node(address=""))


def test_c12_a_value_that_is_empty_is_refused_and_where_it_is_stored_matches_no_node() -> None:
    """SwarmKit lets such a task run anywhere; whoever wrote a constraint did not mean that."""
    with pytest.raises(InvalidSpec, match="value ''"):
        parse("node.ip==")
    index = PlacementIndex()
    index.set_node(a_node())
    assert (
        index.explain(Demand("s1", constraints=("node.ip==",)))
        == "no suitable node (scheduling constraints not satisfied on 1 node)"
    )


@pytest.mark.parametrize("value", ["nodeid", "nodeid-12", "odeid-1"])
def test_c13_an_id_must_match_whole(value: str) -> None:
    node = a_node("nodeid-1")
    assert not fits(f"node.id=={value}", node)
    assert fits(f"node.id!={value}", node)
    assert fits("node.id==NODEID-1", node)


def test_c14_roles() -> None:
    worker, manager = a_node(role=Role.WORKER), a_node(role=Role.MANAGER)
    for expression, expected in (
        ("node.role==worker", (True, False)),
        ("node.role==Manager", (False, True)),
        ("node.role!=manager", (True, False)),
        ("node.role==worker-manager", (False, False)),
        ("node.role!=worker-manager", (True, True)),
    ):
        assert (fits(expression, worker), fits(expression, manager)) == expected


def test_c16_labels_of_nodes_and_of_engines_are_two_things() -> None:
    node = a_node(labels={"a": "node", "more": "1"}, engine_labels={"a": "engine", "b": "2"})
    assert fits("node.labels.a==node", node)
    assert fits("engine.labels.a==engine", node)
    assert not fits("node.labels.b==2", node)
    assert fits("node.labels.b!=2", node)
    assert not fits("engine.labels.more==1", node)
    assert fits("engine.labels.more!=1", node)


def test_c17_all_must_hold_and_case_does_not_matter() -> None:
    node = a_node(labels={"a": "One", "b": "Two"})
    assert matches(parse_all(["node.labels.a==one", "node.labels.b==TWO"]), node)
    assert not matches(parse_all(["node.labels.a==one", "node.labels.b==three"]), node)
