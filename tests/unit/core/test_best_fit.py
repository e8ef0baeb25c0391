"""`pack` and `shape` find the node that plain Python finds, whatever the kinds, sizes and filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.best_fit import FORM_PACK, FORM_SHAPE, BestFit
from beeyard.core.filters import Ask
from beeyard.core.node_table import Needs, NodeTable
from tests.reference.best_fit_oracle import Row
from tests.support.examples import examples


def make_table(rows: list[tuple[list[int], list[int], bool, int]]) -> NodeTable:
    """Rows of (total, held, ready, tie-break)."""
    table = NodeTable()
    for total, held, ready, tie in rows:
        while table.n_kinds < len(total):
            table.add_kind()
        row = table.add_row(tie)
        for kind, amount in enumerate(total):
            table.set_total(row, kind, amount)
        table.hold(row, Needs(list(enumerate(held))))
        table.set_ready(row, ready)
    return table


def make_ask(table: NodeTable, amounts: list[int], **columns: Any) -> Ask:
    none = np.zeros(table.capacity, dtype=np.uint8)
    return Ask(
        table,
        Needs([(kind, amount) for kind, amount in enumerate(amounts) if amount]),
        columns.get("max_replicas", 0),
        columns.get("one_per_node", False),
        columns.get("static_code", none),
        none.copy(),
        columns.get("refused", none),
        np.zeros(table.capacity, dtype=np.int32),
        np.zeros((table.capacity, 0), dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        np.zeros(0, dtype=np.int64),
        np.zeros(1, dtype=np.int32),
        **{name: columns[name] for name in ("penalty", "only") if name in columns},
    )


def place(table: NodeTable, ask: Ask, form: int, n_tasks: int) -> list[int]:
    rows, pools = np.zeros(n_tasks, dtype=np.int32), np.zeros((n_tasks, 0), dtype=np.int32)
    placed = BestFit().place(table, ask, form, rows, pools)
    return [int(row) for row in rows[:placed]]


def expected(
    table: NodeTable, amounts: list[int], form: int, n_tasks: int, ties: list[int], out: set[int]
) -> list[int]:
    """One task after another, on the best row of its moment."""
    now = []
    for row in range(table.size):
        free, total, _, ready = table.row(row)
        now.append((row, Row(free, total), ready and row not in out))
    placed = []
    for _ in range(n_tasks):
        keys = [
            (one.key(amounts, form == FORM_SHAPE), ties[row], row, one)
            for row, one, ok in now
            if ok and one.fits(amounts)
        ]
        if not keys:
            break
        *_, row, best = min(keys, key=lambda key: key[:3])
        best.free = [free - amount for free, amount in zip(best.free, amounts, strict=True)]
        placed.append(row)
    return placed


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[tuple[list[int], list[int], bool, int]], list[int]]:
    n_kinds = draw(st.integers(2, 6))
    sizes = draw(st.sampled_from([(4, 1), (64, 3), (2**36, 2**34), (2**52, 2**50)]))
    rows = [
        (
            draw(st.lists(st.integers(0, sizes[0]), min_size=n_kinds, max_size=n_kinds)),
            draw(st.lists(st.integers(0, sizes[1] * 2), min_size=n_kinds, max_size=n_kinds)),
            draw(st.sampled_from([True] * 5 + [False])),
            draw(st.integers(0, 3)),
        )
        for _ in range(draw(st.integers(1, 8)))
    ]
    return rows, draw(st.lists(st.integers(0, sizes[1]), min_size=n_kinds, max_size=n_kinds))


@settings(deadline=None, max_examples=examples(60))
@given(world=worlds(), form=st.sampled_from([FORM_PACK, FORM_SHAPE]), n_tasks=st.integers(1, 6), data=st.data())
def test_best_fit_of_a_group_is_that_of_one_task_after_another(world: Any, form: int, n_tasks: int, data: Any) -> None:
    """Keys, ties and refusals are those of the rule."""
    rows, amounts = world
    table = make_table(rows)
    out = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=3))
    refused = np.zeros(table.capacity, dtype=np.uint8)
    refused[list(out)] = 1
    want = expected(table, amounts, form, n_tasks, [tie for *_, tie in rows], out)
    assert want == place(table, make_ask(table, amounts, refused=refused), form, n_tasks)


def random_table(seed: int, n_rows: int, n_kinds: int) -> tuple[NodeTable, np.random.Generator, list[int]]:
    rng = np.random.default_rng(seed)
    total = rng.integers(1, 2**40, (n_rows, n_kinds))
    held = (total * rng.uniform(0.5, 0.95, (n_rows, n_kinds))).astype(np.int64)
    ties = rng.integers(0, 2**60, n_rows).tolist()
    return make_table(list(zip(total.tolist(), held.tolist(), [True] * n_rows, ties, strict=True))), rng, ties


@pytest.mark.parametrize(("form", "n_kinds"), [(FORM_PACK, 2), (FORM_PACK, 4), (FORM_PACK, 5), (FORM_SHAPE, 3)])
def test_tasks_of_different_sizes_find_the_best_of_many_blocks(form: int, n_kinds: int) -> None:
    """More rows than a block has, and columns that follow what was placed before."""
    table, rng, ties = random_table(n_kinds, 300, n_kinds)
    fit, amounts = BestFit(), rng.integers(1, 2**37, (4, n_kinds))
    for number, sizes in enumerate(amounts.tolist()):
        rows = np.zeros(1, dtype=np.int32)
        want = expected(table, sizes, form, 1, ties, set())
        fit.place_each(table, make_ask(table, []), form, amounts[number : number + 1], rows)
        assert (want or [-1]) == rows.tolist()
    table.set_ready(int(rows[0]), False)
    again = np.zeros(1, dtype=np.int32)
    fit.place_each(table, make_ask(table, []), form, amounts[-1:], again)
    assert again[0] != rows[0]


def test_a_node_that_lacks_one_byte_takes_no_task() -> None:
    """Shares are rounded, so that thousands of nodes look as if they fit; counting in whole numbers decides."""
    size = 2**50
    table = make_table([([64, size - 1], [0, 0], True, row) for row in range(600)] + [([64, size], [1, 0], True, 7)])
    assert place(table, make_ask(table, [1, size]), FORM_PACK, 2) == [600]


def test_many_refused_nodes_leave_the_best_of_the_others() -> None:
    """When filters refuse one node after another, all that they rule out are left out at once."""
    table, _, ties = random_table(3, 300, 2)
    codes = np.zeros(table.capacity, dtype=np.uint8)
    codes[np.flatnonzero(np.arange(300) % 7)] = 1
    out = set(np.flatnonzero(codes).tolist())
    want = expected(table, [2**30, 2**30], FORM_PACK, 6, ties, out)
    assert want == place(table, make_ask(table, [2**30, 2**30], static_code=codes), FORM_PACK, 6)


def test_nodes_where_the_service_failed_come_last() -> None:
    """They take what finds no room elsewhere, those with fewer failures first."""
    table = make_table([([4, 4], [0, 0], True, 0), ([4, 4], [2, 2], True, 1), ([4, 4], [3, 3], True, 2)])
    penalty = np.zeros(table.capacity, dtype=np.int32)
    penalty[1], penalty[2] = 5, 9
    assert place(table, make_ask(table, [1, 1], penalty=penalty), FORM_PACK, 9) == [0, 0, 0, 0, 1, 1, 2]


def test_a_task_without_need_of_a_device_leaves_nodes_with_devices_to_others() -> None:
    """A kind that is not asked for adds its square alone."""
    table = make_table([([4, 4, 8], [2, 2, 0], True, 0), ([4, 4, 0], [1, 1, 0], True, 1)])
    assert place(table, make_ask(table, [1, 1, 0]), FORM_PACK, 1) == [1]
    assert place(table, make_ask(table, [1, 1, 1]), FORM_PACK, 1) == [0]


def test_arrays_that_do_not_match_are_refused() -> None:
    """The loops trust their arguments; the face does not."""
    table = make_table([([4, 4], [0, 0], True, 0)])
    with pytest.raises(ValueError, match="pools must be 1 x 0"):
        BestFit().place(table, make_ask(table, [1, 1]), FORM_PACK, np.zeros(1, np.int32), np.zeros((2, 0), np.int32))
    with pytest.raises(ValueError, match="amounts must be 1 x 2"):
        BestFit().place_each(table, make_ask(table, []), FORM_PACK, np.zeros((1, 3), np.int64), np.zeros(1, np.int32))
    assert (
        BestFit().place(
            NodeTable(), make_ask(NodeTable(), []), FORM_PACK, np.zeros(1, np.int32), np.zeros((1, 0), np.int32)
        )
        == 0
    )
