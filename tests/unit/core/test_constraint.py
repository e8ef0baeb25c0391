"""The constraint language, row by row as SwarmKit's own tests have it (C1 to C17 of its scenarios)."""

from __future__ import annotations

import pytest

from beeyard.core.constraint import matches, parse, parse_all, split
from beeyard.core.errors import InvalidSpec
from beeyard.core.model import Node
from beeyard.core.states import Role
from tests.support.builders import a_node


def fits(expression: str, node: Node) -> bool:
    return matches(parse_all([expression]), node)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "node.role",
        "node.role=worker",
        "node.role~worker",
        "1node==a",
        "==a",
        " ==a",
        "node role==a",
        "no*de==a",
        "node$==a",
        "n==a",
        "node.role==",
        "node.role!= ",
        "node.role==a,b",
        "node.role==ü",
    ],
)
def test_what_is_no_constraint_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSpec, match="invalid constraint"):
        parse(expression)


def test_blanks_around_key_and_value_are_trimmed_and_case_of_prefixes_does_not_matter() -> None:
    assert parse("  NODE.Labels.Rack  ==  r 1 ") == parse("node.labels.Rack==r 1")
    assert str(parse("node.ROLE != manager")) == "node.role!=manager"
    assert parse("_x.Y==1").is_known is False


def test_label_of_a_pool_is_split_at_commas() -> None:
    assert split("node.labels.a==1, node.labels.b!=2,") == ("node.labels.a==1", "node.labels.b!=2")
    assert split(" ") == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("node.hostname==NODE-1", True),
        ("node.hostname==node", False),
        ("node.hostname==node-.", False),
        ("node.hostname==*", False),
        ("node.hostname!=node-1", False),
        ("node.hostname!=x1", True),
        ("node.id==N1abc", True),
        ("node.id==n1ab", False),
        ("node.id==n1abcd", False),
        ("node.role==WORKER", True),
        ("node.role==worker-manager", False),
        ("node.role!=manager", True),
        ("node.platform.os==Linux", True),
        ("node.platform.arch==amd64", False),
        ("node.platform.arch==x86_64", True),
        ("node.labels.rack==R1", True),
        ("node.labels.Rack==r1", False),
        ("node.labels.disk==ssd", False),
        ("node.labels.disk!=ssd", True),
        ("node.labels.gpu==big", False),
        ("engine.labels.gpu==big", True),
        ("Engine.Labels.rack!=r1", True),
        ("node.abc.bcd==high", False),
        ("node.abc.bcd!=high", False),
        ("node.labels.==a", False),
        ("node.labels.!=a", False),
        ("node.ip==186.17.9.41", True),
        ("node.ip!=186.17.9.41", False),
        ("node.ip==186.17.9.4/24", True),
        ("node.ip!=186.17.9.4/24", False),
        ("node.ip==186.17.8.0/24", False),
        ("node.ip!=186.17.8.0/24", True),
        ("node.ip==186.17.9.41/34", False),
        ("node.ip!=186.17.9.41/34", False),
        ("node.ip==not-an-ip", False),
        ("node.ip!=not-an-ip", False),
        ("node.ip==fd00::/8", False),
    ],
)
def test_constraint_is_an_equality_without_case_on_the_whole_value(expression: str, expected: bool) -> None:
    node = a_node(
        "n1abc",
        hostname="Node-1",
        labels={"rack": "r1"},
        engine_labels={"gpu": "big"},
        role=Role.WORKER,
        address="186.17.9.41",
    )
    assert fits(expression, node) is expected


def test_node_without_the_property_fails_equal_and_passes_unequal() -> None:
    bare = a_node(hostname="", architecture="", os="")
    for key in ("node.hostname", "node.ip", "node.platform.os", "node.labels.a", "engine.labels.a"):
        value = "10.0.0.1" if key == "node.ip" else "x"
        assert not fits(f"{key}=={value}", bare)
        assert fits(f"{key}!={value}", bare)


@pytest.mark.parametrize("address", ["10.0.0.7", "10.0.0.7:4182", "tcp://10.0.0.7:4182", "[10.0.0.7]:4182"])
def test_address_of_a_node_is_found_with_its_port_too(address: str) -> None:
    assert fits("node.ip==10.0.0.0/8", a_node(address=address))


@pytest.mark.parametrize("address", ["fd00::7", "[fd00::7]:4182", "tcp://[fd00::7]:4182"])
def test_ipv6_address_of_a_node_is_found_with_its_port_too(address: str) -> None:
    assert fits("node.ip==fd00::7", a_node(address=address))
    assert not fits("node.ip==fd00::8", a_node(address=address))


def test_several_constraints_must_all_hold() -> None:
    node = a_node(labels={"a": "1", "b": "2"})
    assert matches(parse_all(["node.labels.a==1", "node.labels.b!=1"]), node)
    assert not matches(parse_all(["node.labels.a==1", "node.labels.b!=2"]), node)
    assert matches((), node)
