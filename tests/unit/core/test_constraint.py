"""The constraint language, row by row as SwarmKit's own tests have it (C1 to C17 of its scenarios)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        "node.labels.==a",
        "node.labels. != a",
        "Engine.Labels.=~a",
        "node.tags. in (a, b)",
        "node.tags.==x",
        "node.rtt.<=5ms",
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


# --- beyond SwarmKit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("node.labels.rack in (r1)", True),
        ("node.labels.rack in (r0, R1 ,r2)", True),
        ("node.labels.rack in(r0,r2)", False),
        ("  node.labels.rack  NOT  in  ( r0, r2 ) ", True),
        ("node.labels.rack not in (r1, r2)", False),
        ("node.labels.disk in (ssd)", False),
        ("node.labels.disk not in (ssd)", True),
        ("node.abc.bcd in (high)", False),
        ("node.abc.bcd not in (high)", False),
        ("node.ip in (10.0.0.0/8, 186.17.9.4/24)", True),
        ("node.ip not in (10.0.0.0/8, 186.17.9.4/24)", False),
        ("node.ip not in (10.0.0.0/8, nonsense)", False),
        ("node.labels.rack =~ r[0-9]+", True),
        ("node.labels.rack=~R.", True),
        ("node.labels.rack=~r", False),
        ("node.labels.rack!~r", True),
        ("node.labels.rack!~^r1$", False),
        ("node.labels.disk=~.*", False),
        ("node.labels.disk!~.*", True),
        ("node.abc.bcd=~.*", False),
        ("node.abc.bcd!~.*", False),
        ("node.ip=~186[.]17[.].*", True),
        ("node.hostname=~(node|yard)-(1|2)", True),
    ],
)
def test_lists_and_patterns_are_compared_on_request(expression: str, expected: bool) -> None:
    node = a_node("n1abc", hostname="Node-1", labels={"rack": "r1"}, address="tcp://186.17.9.41:77")
    assert fits(expression, node) is expected
    assert fits(str(parse(expression)), node) is expected


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("node.labels.a in ()", "value ''"),
        ("node.labels.a in (x,)", "value ''"),
        ("node.labels.a in (x", "expected one operator from ==, !=, in"),
        ("node.labels.a in x", "expected one operator"),
        ("node.labels.a in (x)) ", "value 'x)'"),
        ("in (x)", "key ''"),
        ("not in (x)", "key ''"),
        ("node.labels.a is in (x)", "key 'node.labels.a is'"),
        ("node.labels.a=~", "value ''"),
        ("node.labels.a=~a{2}", "character not allowed"),
        ("node.labels.a=~(a", "character 3: a ( has no )"),
        ("node.labels.a=~*a", "character 1: * repeats nothing"),
        ("node.labels.a~x", "expected one operator"),
        ("node.rtt.<=5ms", "key 'node.rtt.' ends with its dot: the name goes behind it, such as node.rtt.NODE"),
    ],
)
def test_what_is_no_list_and_no_pattern_is_refused(expression: str, part: str) -> None:
    with pytest.raises(InvalidSpec, match="invalid constraint") as caught:
        parse(expression)
    assert part in str(caught.value)


def test_commas_of_a_list_do_not_split_the_label_of_a_pool() -> None:
    label = "node.labels.a in (1, 2),node.labels.b not in(3,4) , node.labels.c==x(y,node.labels.d!=5"
    assert split(label) == (
        "node.labels.a in (1, 2)",
        "node.labels.b not in(3,4)",
        "node.labels.c==x(y",
        "node.labels.d!=5",
    )
    assert split("node.labels.a in (1, 2)") == ("node.labels.a in (1, 2)",)


def test_long_labels_are_split_in_no_time() -> None:
    assert len(split("a,(" * 40_000)) == 40_001
    assert len(split("node.a in (" + "1," * 40_000)) == 40_000
    for expression in ("a" + " " * 200_000 + "b", " " * 200_000 + "in (", "a not " * 40_000 + "in (b)"):
        with pytest.raises(InvalidSpec):
            parse(expression)


words = st.sampled_from(
    [
        "node.labels.a",
        "node.ip",
        "engine.labels.b",
        "in",
        "not",
        "==",
        "!=",
        "=~",
        "!~",
        "(",
        ")",
        ",",
        " ",
        "r1",
        "[a",
        "x*",
    ]
)


@given(
    st.one_of(st.lists(words, max_size=8).map("".join), st.lists(words, max_size=8).map(" ".join), st.text(max_size=30))
)
def test_any_text_is_refused_or_reads_back_as_it_is_shown(text: str) -> None:
    try:
        constraint = parse(text)
    except InvalidSpec:
        return
    assert parse(str(constraint)) == constraint
    for actual in ("", "r1", "10.0.0.1"):
        assert constraint.accepts(actual) in (True, False)


@given(st.lists(words, max_size=12).map("".join))
def test_what_a_label_of_a_pool_says_is_lost_nowhere(label: str) -> None:
    assert "".join(split(label)).replace(" ", "").replace(",", "") == label.replace(" ", "").replace(",", "")
