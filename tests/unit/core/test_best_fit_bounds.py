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
    """To a search that began before it, nodes that have none of it are as good as to a new one."""
    world = [([64, 64, 64], [32, 16, row % 7], True, row) for row in range(300)]
    table, fit = make_table(world), BestFit()
    place(fit, table, FORM_PACK, [1, 1, 1], 1)
    table.add_kind()
    table.set_total(299, 3, 8)
    want = expected(table, [1, 1, 0, 0], FORM_PACK, 3, [row for *_, row in world], set())
    assert want == place(fit, table, FORM_PACK, [1, 1], 3)
