"""`fgd` counts what the usual tasks lose as plain Python does, and sends tasks where that grows least."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.fragments import NEVER, Fragments
from tests.reference.best_fit_oracle import Task, copies, lost
from tests.support.examples import examples

devices = st.lists(st.sampled_from([0, 200, 500, 700, 1000]), max_size=4)
amounts = st.lists(st.integers(0, 6), min_size=2, max_size=2).map(tuple)
tasks = st.one_of(
    st.tuples(amounts, st.just(0), st.just(1000)),
    st.tuples(amounts, st.integers(1, 3), st.just(1000)),
    st.tuples(amounts, st.just(1), st.sampled_from([200, 300, 500, 900])),
)
rows = st.lists(st.tuples(st.lists(st.integers(0, 20), min_size=2, max_size=2), devices), min_size=1, max_size=5)


def outcomes(free: list[int], on: list[int], task: Task) -> list[tuple[list[int], list[int], int]]:
    """What a row looks like with the task, for each device that it could share."""
    needs, n_devices, milli = task
    left = [have - need for have, need in zip(free, needs, strict=True)]
    if milli < 1000:
        shared = [number for number, device in enumerate(on) if device >= milli]
        return [(left, [device - milli * (i == number) for i, device in enumerate(on)], number) for number in shared]
    whole = [number for number, device in enumerate(on) if device == 1000][:n_devices]
    return [(left, [0 if number in whole else device for number, device in enumerate(on)], -1)]


@settings(deadline=None, max_examples=examples(100))
@given(rows=rows, mix=st.lists(st.tuples(tasks, st.integers(1, 9)), max_size=4), asked=st.lists(tasks, max_size=6))
def test_growth_of_what_is_lost_is_that_of_the_rule(rows: Any, mix: Any, asked: list[Task]) -> None:
    """Also where only what changed is worked out again."""
    fragments, total = Fragments(2), [20, 20]
    for row, (free, on) in enumerate(rows):
        fragments.set_row(row, free, total, on)
    fragments.set_mix(mix)
    now = [(list(free), list(on)) for free, on in rows]
    for task in asked:
        growth, device = fragments.growth(task)
        for row, (free, on) in enumerate(now):
            before = lost(free, total, on, mix)
            assert before == fragments.lost(row)
            if copies(free, on, task) == 0:
                assert growth[row] == NEVER
                continue
            grown = [(lost(f, total, d, mix) - before, number) for f, d, number in outcomes(free, on, task)]
            assert min(grown)[0] == growth[row]
            assert (growth[row], device[row]) in grown
        row, shared = fragments.best(task)
        if row >= 0:
            fragments.take(row, shared, task)
            now[row] = next((f, d) for f, d, number in outcomes(*now[row], task) if number == shared)
            assert now[row] == fragments.row(row)


def test_a_task_that_comes_and_goes_leaves_nothing() -> None:
    """What was taken is given back, of the same device."""
    fragments = Fragments(1)
    fragments.set_row(0, [8], [8], [1000, 400])
    for task in (((2,), 1, 300), ((1,), 1, 1000), ((3,), 0, 1000)):
        row, device = fragments.best(task)
        fragments.take(row, device, task)
        assert fragments.row(0) != ([8], [1000, 400])
        fragments.give_back(row, device, task)
        assert fragments.row(0) == ([8], [1000, 400])


def test_rows_and_tasks_that_cannot_be_are_refused() -> None:
    """Lengths, rows, devices."""
    fragments = Fragments(2)
    fragments.set_row(0, [1, 1], [1, 1], [1000])
    with pytest.raises(IndexError, match="row 2 of 1"):
        fragments.set_row(2, [1, 1], [1, 1], [])
    with pytest.raises(ValueError, match="17 devices: at most 16"):
        fragments.set_row(0, [1, 1], [1, 1], [0] * 17)
    with pytest.raises(ValueError, match="each 0 to 1000"):
        fragments.set_row(0, [1, 1], [1, 1], [1001])
    with pytest.raises(ValueError, match="2 devices of 500: several are taken whole"):
        fragments.best(((1, 1), 2, 500))
    with pytest.raises(IndexError, match="device 1 of 1"):
        fragments.take(0, 1, ((1, 1), 1, 500))
    with pytest.raises(ValueError, match="0 kinds"):
        Fragments(0)
