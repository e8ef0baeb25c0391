"""Ports of nodes: fixed ones, chosen ones, and those of foreign listeners."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from beeyard.core.demand import Demand
from beeyard.core.errors import PortsExhausted
from beeyard.core.grant import MappedPort
from beeyard.core.host_ports import COOL_DOWN_S, PORT_FIRST, PORT_LAST, PortBook, PortTable
from beeyard.core.model import HostPort, PublishedPort
from beeyard.core.placement import PlacementIndex
from tests.support.builders import a_node

ANY = PublishedPort(target=80)


def chosen(book: PortBook, grant_id: str, *, now_s: float = 0.0, node_id: str = "n1") -> int:
    (mapped,) = book.reserve(node_id, grant_id, [ANY], now_s)
    return mapped.published


def test_n4_fixed_ports_stay_as_given_and_chosen_ones_come_from_swarms_range() -> None:
    book = PortBook(PortTable())
    ports = [PublishedPort(target=80, published=8080), ANY, PublishedPort(protocol="udp", target=53), ANY]
    assert book.reserve("n1", "g1", ports, 0.0) == (
        MappedPort(published=8080, target=80),
        MappedPort(published=PORT_FIRST, target=80),
        MappedPort(protocol="udp", published=PORT_FIRST, target=53),
        MappedPort(published=PORT_FIRST + 1, target=80),
    )
    assert (PORT_FIRST, PORT_LAST) == (30000, 32767)


def test_n20_the_same_asked_anew_gives_the_same_ports() -> None:
    one, other = (PortBook(PortTable()) for _ in range(2))
    assert [chosen(one, f"g{n}") for n in range(5)] == [chosen(other, f"h{n}") for n in range(5)]


def test_each_node_has_its_own_ports() -> None:
    book = PortBook(PortTable())
    assert [chosen(book, node, node_id=node) for node in ("n1", "n2", "n3")] == [PORT_FIRST] * 3


def test_a_port_that_was_given_back_rests_and_then_comes_round() -> None:
    book = PortBook(PortTable(), 100, 102)
    assert [chosen(book, g) for g in ("a", "b", "c")] == [100, 101, 102]
    book.release("a", 10.0, used=True)
    book.release("a", 10.0, used=True)
    book.release("c", 10.0, used=False)
    assert chosen(book, "d", now_s=11.0) == 102
    assert chosen(book, "e", now_s=11.0) == 100  # it rests, but there is none that does not
    book.release("b", 20.0, used=True)
    assert chosen(book, "f", now_s=20.0 + COOL_DOWN_S) == 101


def test_of_ports_that_rest_the_others_come_first() -> None:
    book = PortBook(PortTable(), 100, 103)
    assert [chosen(book, g) for g in ("a", "b", "c")] == [100, 101, 102]
    for grant_id in ("a", "b", "c"):
        book.release(grant_id, 10.0, used=True)
    assert chosen(book, "d", now_s=11.0) == 103


def test_a_full_range_refuses_by_its_numbers_and_holds_nothing_of_what_was_asked() -> None:
    table = PortTable()
    book = PortBook(table, 100, 101)
    table.set_listening("n1", [HostPort(port=100)])
    with pytest.raises(PortsExhausted, match="no tcp port from 100 to 101 is free on this node"):
        book.reserve("n1", "g1", [ANY, ANY], 0.0)
    assert book.grants() == []
    assert chosen(book, "g2") == 101


def test_a_restored_grant_holds_what_was_chosen_and_only_that() -> None:
    table = PortTable()
    book = PortBook(table)
    asked = [PublishedPort(target=1, published=31000), ANY]
    mapped = [MappedPort(published=31000, target=1), MappedPort(published=PORT_FIRST, target=80)]
    book.restore("n1", "g1", asked, mapped)
    book.restore("n1", "g1", asked, mapped)
    assert not table.is_taken("n1", HostPort(port=31000))  # its task's hold takes it
    assert chosen(book, "g2") == PORT_FIRST + 1
    book.release("g1", 0.0, used=False)
    assert not table.is_taken("n1", HostPort(port=PORT_FIRST))


def test_listeners_come_and_go_with_what_a_node_says() -> None:
    table = PortTable()
    web, dns = HostPort(port=80), HostPort(protocol="udp", port=53)
    table.set_listening("n1", [web, dns])
    table.take("n1", [web])
    table.set_listening("n1", [dns])
    assert table.is_taken("n1", web)
    table.give("n1", [web])
    assert not table.is_taken("n1", web)
    assert list(table.nodes(dns)) == ["n1"]


def test_nodes_that_are_gone_leave_nothing_behind() -> None:
    """Once their ports have rested; where to look first is known of a node as long as one of its ports is not free."""
    book = PortBook(PortTable(), 100, 109)
    for number in range(50):
        chosen(book, f"g{number}", node_id=f"n{number}")
        book.release(f"g{number}", 1.0, used=True)
    first = chosen(book, "kept", now_s=2.0, node_id="n0")
    assert len(book._next) == 50
    assert chosen(book, "last", now_s=40.0, node_id="n0") == first + 1
    assert list(book._next) == ["n0"]
    with pytest.raises(PortsExhausted):
        book.reserve("n9", "many", [ANY] * 11, 41.0)
    book.release("kept", 41.0, used=False)
    book.release("last", 41.0, used=False)
    assert (book._next, book._n_ports) == ({}, {})


STEPS = st.lists(
    st.tuples(st.sampled_from(["fixed", "chosen", "end", "listen"]), st.integers(0, 5), st.sampled_from(["n1", "n2"])),
    max_size=60,
)


@given(STEPS)
def test_a_fixed_port_and_a_chosen_one_never_meet(steps: list[tuple[str, int, str]]) -> None:
    """Whatever is asked in whatever order: no port of a node belongs to two tasks, nor to a task and a listener."""
    index = PlacementIndex()
    book = PortBook(index.ports, 100, 103)
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id))
    holders: dict[str, tuple[str, HostPort]] = {}
    for number, (what, value, node_id) in enumerate(steps):
        task_id, port = f"t{number}", HostPort(port=100 + value)
        if what == "fixed":
            for placed in index.place(Demand(f"s{number}", host_ports=(port,)), [task_id]).placed:
                holders[task_id] = (placed.node_id, port)
        elif what == "chosen":
            try:
                (mapped,) = book.reserve(node_id, task_id, [ANY], float(number))
            except PortsExhausted:
                continue
            holders[task_id] = (node_id, HostPort(port=mapped.published))
        elif what == "end" and holders:
            ended = list(holders)[value % len(holders)]
            del holders[ended]
            index.drop(ended)
            book.release(ended, float(number), used=True)
        elif what == "listen" and not any(held == (node_id, port) for held in holders.values()):
            index.set_node(a_node(node_id, listening=[port]))
        assert len(set(holders.values())) == len(holders)
    for task_id in list(holders):
        index.drop(task_id)
        book.release(task_id, 1e9, used=False)
    free = [chosen(book, f"last{n}", now_s=1e9, node_id=node) for n, node in enumerate(["n1"] * 3 + ["n2"] * 3)]
    assert len(set(free[:3])) == len(set(free[3:])) == 3
