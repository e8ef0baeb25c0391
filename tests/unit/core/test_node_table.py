"""The kernel's table refuses what would read or write past its columns, and grows without losing anything."""

from __future__ import annotations

import pytest

from beeyard.core.demand import Demand
from beeyard.core.kinds import Kinds
from beeyard.core.node_table import KIND_COUNT_MAX, Needs, NodeTable
from beeyard.core.placement import PlacementIndex
from tests.support.builders import a_node


@pytest.mark.parametrize("amounts", [[(-1, 1)], [(KIND_COUNT_MAX, 1)], [(1, 1), (0, 1)], [(0, 1), (0, 1)], [(0, -1)]])
def test_needs_that_are_out_of_order_or_range_are_refused(amounts: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError):
        Needs(amounts)


def test_kinds_of_which_nothing_is_needed_are_left_out() -> None:
    assert Needs([(0, 0), (1, 5), (3, 0)]).pairs() == [(1, 5)]


def test_rows_and_kinds_that_are_not_there_are_refused() -> None:
    table = NodeTable()
    row = table.add_row(1)
    with pytest.raises(IndexError):
        table.hold(row + 1, Needs([]))
    with pytest.raises(IndexError):
        table.hold(row, Needs([(2, 1)]))
    with pytest.raises(IndexError):
        table.set_total(row, 2, 1)
    table.remove_row(row)
    with pytest.raises(IndexError):
        table.give_back(row, Needs([]))


def test_what_is_held_survives_more_rows_and_more_kinds() -> None:
    table = NodeTable()
    rows = [table.add_row(number) for number in range(40)]
    for number, row in enumerate(rows):
        table.set_total(row, 0, 100 + number)
        table.hold(row, Needs([(0, number)]))
    kinds = [table.add_kind() for _ in range(KIND_COUNT_MAX - 2)]
    for number in range(40, 200):
        table.add_row(number)
    assert [table.row(row)[:3] for row in rows] == [
        ([100, 0, *([0] * len(kinds))], [100 + number, 0, *([0] * len(kinds))], 1) for number in range(40)
    ]
    with pytest.raises(ValueError):
        table.add_kind()


def test_a_kind_beyond_the_last_number_fits_nowhere_and_harms_nothing() -> None:
    """A cluster may offer more kinds than can be told apart; those who ask for the others are told of no room."""
    index = PlacementIndex()
    index.set_node(a_node("n1", generic={f"kind{number:02}": 1 for number in range(20)}))
    last, beyond = Demand("s", generic=(("kind13", 1),)), Demand("s", generic=(("kind14", 1),))
    assert len(index.place(last, ["t1"]).placed) == 1
    assert index.place(beyond, ["t2"]).explanation == "no suitable node (insufficient resources on 1 node)"
    index.hold("t3", beyond, "n1")
    index.drop("t3")


def test_a_kind_that_comes_later_counts_what_is_held_already() -> None:
    """Tasks may be restored before the node that offers what they hold."""
    index, demand = PlacementIndex(), Demand("s", generic=(("gpu", 1),))
    index.set_node(a_node("n1"))
    index.hold("t1", demand, "n1")
    index.hold("t2", demand, "n2")
    assert index.place(demand, ["t3"]).unplaced == 1
    index.set_node(a_node("n1", generic={"gpu": 2}))
    index.set_node(a_node("n2", generic={"gpu": ["g0"]}))
    assert [placed.node_id for placed in index.place(demand, ["t4", "t5"]).placed] == ["n1"]
    index.drop("t2")
    assert [placed.node_id for placed in index.place(demand, ["t6"]).placed] == ["n2"]


def test_the_same_amounts_are_worked_out_once() -> None:
    table = NodeTable()
    kinds = Kinds(table)
    assert kinds.needs(Demand("a", cpu_nano=5)) is kinds.needs(Demand("b", cpu_nano=5))
