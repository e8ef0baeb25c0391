"""Best fit passes over blocks of nodes by their bounds: never over the best node, however the table has changed."""

from __future__ import annotations

import numpy as np
import pytest

from beeyard.core.best_fit import FORM_PACK, FORM_SHAPE, BestFit
from beeyard.core.node_table import Needs, NodeTable
from tests.unit.core.test_best_fit import expected, make_ask, make_table

N_ROWS = 400  # some blocks, the last of them not full


def place(fit: BestFit, table: NodeTable, form: int, amounts: list[int], n_tasks: int) -> list[int]:
    rows, pools = np.zeros(n_tasks, dtype=np.int32), np.zeros((n_tasks, 0), dtype=np.int32)
    placed = fit.place(table, make_ask(table, amounts), form, rows, pools)
    return rows[:placed].tolist()


def give_back(table: NodeTable, amounts: list[int], rows: list[int]) -> None:
    for row in rows:
        table.give_back(row, Needs(list(enumerate(amounts))))


def few_sizes(rng: np.random.Generator, n_rows: int, n_kinds: int) -> list[tuple[list[int], list[int], bool, int]]:
    """Nodes of few sizes and fills, so that ties are many, some full and some far smaller than the others."""
    total = rng.choice([4, 64, 64, 128], (n_rows, 1)) * rng.choice([1, 4], (1, n_kinds))
    held = (total * rng.choice([0.0, 0.5, 0.75, 0.75, 1.0], (n_rows, n_kinds))).astype(int)
    ready, ties = (rng.random(n_rows) < 0.9).tolist(), rng.integers(0, 3, n_rows).tolist()
    return list(zip(total.tolist(), held.tolist(), ready, ties, strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", [FORM_PACK, FORM_SHAPE])
def test_the_best_of_many_blocks_is_found_after_any_change(form: int, seed: int) -> None:
    """A search that lives on while nodes are filled, emptied, added, resized and switched off chooses as the rule does."""
    rng = np.random.default_rng(seed)
    n_kinds = int(rng.integers(2, 6))
    world = few_sizes(rng, N_ROWS, n_kinds)
    table, fit, ties = make_table(world), BestFit(), [tie for *_, tie in world]
    for step in range(3):
        amounts = rng.integers(0, 12, n_kinds).tolist()
        want = expected(table, amounts, form, 4, ties, set())
        assert want == place(fit, table, form, amounts, 4), (step, amounts)
        give_back(table, amounts, want[::2])
        for row in rng.integers(0, N_ROWS, 20).tolist():
            table.set_ready(row, bool(rng.random() < 0.8))
            table.set_total(row, int(rng.integers(0, n_kinds)), int(rng.choice([4, 64, 256])))
        row = table.add_row(1)
        ties.append(1)
        table.set_total(row, 0, 32)
        table.set_ready(row, True)


def test_rows_are_put_in_order_again_after_many_changes() -> None:
    """What was placed and given back thousands of times leaves the choices what a new search's are."""
    rng = np.random.default_rng(9)
    world = few_sizes(rng, N_ROWS, 4)
    table, fit, ties = make_table(world), BestFit(), [tie for *_, tie in world]
    for _ in range(14):
        amounts = rng.integers(1, 5, 4).tolist()
        rows = place(fit, table, FORM_PACK, amounts, 200)
        give_back(table, amounts, rows)
        for row in range(table.size):  # changes of all blocks
            table.set_total(row, 2, int(rng.choice([16, 64, 256])))
    amounts = [2, 3, 1, 4]
    want = expected(table, amounts, FORM_PACK, 3, ties, set())
    assert want == place(fit, table, FORM_PACK, amounts, 3)
    give_back(table, amounts, want)
    assert want == place(BestFit(), table, FORM_PACK, amounts, 3)


def test_a_kind_that_comes_later_counts_as_if_it_had_always_been_there() -> None:
    """Nodes that have none of it are to a search that began before it as good as to a new one; those that have it are not."""
    world = [([64, 64, 64], [32, 16, row % 7], True, row) for row in range(299)]
    world.append(([64, 64, 64], [40, 20, 7], True, 299))  # the best, were it not for what it gets
    table, fit = make_table(world), BestFit()
    assert place(fit, table, FORM_PACK, [1, 1, 1], 1) == [299]
    table.add_kind()
    table.set_total(299, 3, 8)
    want = expected(table, [1, 1, 0, 0], FORM_PACK, 3, [row for *_, row in world], set())
    assert 299 not in want
    assert want == place(fit, table, FORM_PACK, [1, 1], 3)
    assert place(fit, table, FORM_PACK, [1, 1, 0, 1], 2) == [299, 299]


def graded(n_rows: int, n_kinds: int = 2) -> list[tuple[list[int], list[int], bool, int]]:
    """Nodes of one size, each with a little less free than the next; so the rows are in order of the blocks."""
    return [([1000] * n_kinds, [500 - row] * n_kinds, True, 0) for row in range(n_rows)]


@pytest.mark.parametrize("n_rows", [1, 127, 128, 129, 257])
def test_a_node_of_a_later_block_that_has_become_a_little_fuller_is_the_best(n_rows: int) -> None:
    """It is better by as little as can be, and its block by no more: what a bound that is too high would pass over."""
    table, fit = make_table(graded(n_rows)), BestFit()
    assert place(fit, table, FORM_PACK, [0, 1], 1) == [0]  # the rows are in order now
    give_back(table, [0, 1], [0])
    last = n_rows - 1
    table.hold(last, Needs([(0, n_rows), (1, n_rows)]))  # one unit less of each than the first row has
    assert [last, last] == place(fit, table, FORM_PACK, [100, 100], 2)


def test_a_node_of_the_right_shape_is_found_among_the_emptiest() -> None:
    """How much is free says nothing of its shape."""
    crooked = [([1000, 1000], [900, 100 - row % 50], True, 0) for row in range(300)]
    table, fit = make_table([*crooked, ([1000, 1000], [0, 0], True, 0)]), BestFit()
    assert place(fit, table, FORM_SHAPE, [10, 10], 1) == [300]


def test_of_equal_nodes_in_many_blocks_the_tie_break_decides() -> None:
    """Nothing is lost to rounding: neither what is so small that it hardly counts, nor what fills a node."""
    rng = np.random.default_rng(3)
    ties = [1] * 129 + [0]
    for _ in range(60):
        total, asked = 2**40, int(2 ** rng.uniform(0, 38))
        held = total - int(rng.uniform(asked, total))
        table, fit = make_table([([total] * 3, [held] * 3, True, tie) for tie in ties]), BestFit()
        assert place(fit, table, FORM_PACK, [asked] * 3, 1) == [129], (held, asked)


def test_a_node_that_is_refused_leaves_the_task_to_a_block_not_looked_at_yet() -> None:
    """Refusals that come one by one, and then so many that all are looked up at once."""
    table, fit = make_table(graded(400)), BestFit()
    for n_refused in (1, 130, 399):
        refused = np.zeros(table.capacity, dtype=np.uint8)
        refused[:n_refused] = 1
        rows, pools = np.zeros(1, dtype=np.int32), np.zeros((1, 0), dtype=np.int32)
        ask = make_ask(table, [100, 100], refused=refused)
        assert fit.place(table, ask, FORM_PACK, rows, pools) == 1
        assert rows[0] == n_refused
        give_back(table, [100, 100], [n_refused])


def test_nodes_that_become_ready_and_unready_in_a_block_of_their_own() -> None:
    """A block in which nobody was ready when it was put in order has bounds as soon as somebody is."""
    world = graded(300)
    world[256:] = [(total, held, False, tie) for total, held, _, tie in world[256:]]
    table, fit = make_table(world), BestFit()
    assert place(fit, table, FORM_PACK, [500, 500], 1) == [0]
    give_back(table, [500, 500], [0])
    table.set_ready(290, True)
    assert place(fit, table, FORM_PACK, [790, 790], 1) == [290]
    give_back(table, [790, 790], [290])
    table.set_ready(290, False)
    assert place(fit, table, FORM_PACK, [790, 790], 1) == []
    assert place(fit, table, FORM_PACK, [755, 755], 1) == [255]


def test_a_table_without_rows_and_one_that_grows_over_its_capacity() -> None:
    """Rows that come later are found, with those before them."""
    table, fit = make_table([]), BestFit()
    while table.n_kinds < 2:
        table.add_kind()
    assert place(fit, table, FORM_PACK, [1, 1], 1) == []
    for row in range(700):
        table.add_row(0)
        for kind in (0, 1):
            table.set_total(row, kind, 1000 - row)
        table.set_ready(row, True)
        if row % 100 == 99:
            assert [row] == place(fit, table, FORM_PACK, [1, 1], 1)
            give_back(table, [1, 1], [row])


def test_a_small_node_among_large_ones_is_the_best() -> None:
    """What a task takes of a block's smallest node counts, whichever of its nodes was written last."""
    large, small = ([1000, 1000], [0, 0], True, 0), ([200, 200], [1, 1], True, 0)
    table = make_table([([1000, 1000], [300, 300], True, 0)] * 256 + [small, *[large] * 20])
    assert place(BestFit(), table, FORM_PACK, [100, 100], 1) == [256]


def test_a_node_that_has_much_of_one_kind_is_found_among_nodes_that_have_little() -> None:
    """What is free on the emptiest node of a block counts, kind by kind."""
    little, much = ([1000, 1000], [100, 900], True, 0), ([1000, 1000], [900, 100], True, 0)
    table = make_table([([1000, 1000], [900, 900], True, 0)] * 256 + [much, *[little] * 20])
    assert place(BestFit(), table, FORM_PACK, [0, 500], 1) == [256]
