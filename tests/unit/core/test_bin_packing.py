"""Packing bin by bin: everything is somewhere, nothing is twice, and trying longer never needs more bins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.bin_packing import BinPacking
from tests.reference.best_fit_oracle import Task
from tests.support.examples import examples

tasks = st.one_of(
    st.tuples(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.just(0), st.just(1000)),
    st.tuples(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(1, 2), st.just(1000)),
    st.tuples(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.just(1), st.sampled_from([300, 500, 700])),
)


def check(packing: BinPacking, groups: list[tuple[Task, int]], bins: list[Any]) -> list[int]:
    """No bin is overfull and no task barred from its bin; returns how many tasks of each class are in bins."""
    placed = [0] * len(groups)
    for number, (room, devices, _, barred) in enumerate(bins):
        inside = packing.tasks_in(number)
        for kind in range(2):
            assert sum(groups[one][0][0][kind] for one in inside) <= room[kind]
        assert sum(groups[one][0][1] * groups[one][0][2] for one in inside) <= sum(devices)
        assert sum(groups[one][0][1] for one in inside if groups[one][0][2] == 1000) <= devices.count(1000)
        assert not any(barred and barred[one] for one in inside)
        for one in inside:
            placed[one] += 1
    return placed


@settings(deadline=None, max_examples=examples(100))
@given(data=st.data(), groups=st.lists(st.tuples(tasks, st.integers(0, 9)), min_size=1, max_size=5))
def test_tasks_are_each_in_one_bin_that_has_room(data: st.DataObject, groups: list[tuple[Task, int]]) -> None:
    """Before and after improving."""
    flags = st.lists(st.sampled_from([0, 0, 1]), min_size=len(groups), max_size=len(groups)).map(bytes)
    bin_ = st.tuples(
        st.lists(st.integers(0, 12), min_size=2, max_size=2),
        st.lists(st.sampled_from([1000, 1000, 500]), max_size=3),
        st.booleans(),
        st.one_of(st.just(b""), flags),
    )
    bins = data.draw(st.lists(bin_, min_size=1, max_size=8))
    packing = BinPacking(2, groups, [1.0, 0.5, 1.0])
    for room, devices, is_open, barred in bins:
        packing.add_bin(room, [12, 12], devices, is_open, barred)
    left = packing.fill()
    placed = check(packing, groups, bins)
    assert sum(count for _, count in groups) == sum(placed) + left
    opened = packing.n_opened()
    fewer = packing.improve(50)
    assert placed == check(packing, groups, bins)
    assert opened - fewer == packing.n_opened() <= opened


def test_tasks_that_together_fill_a_bin_end_up_together() -> None:
    """Large and small ones complement each other."""
    packing = BinPacking(2, [(((6, 2), 0, 1000), 10), (((2, 6), 0, 1000), 10)], [1.0, 1.0, 0.0])
    for _ in range(20):
        packing.add_bin([8, 8], [8, 8], [], False)
    assert packing.fill() == 0
    assert packing.n_opened() == 10
    assert all(sorted(packing.tasks_in(number)) == [0, 1] for number in range(10))


def test_improving_closes_bins() -> None:
    """Greedy fills the first bins with what fits best there; three sizes make it miss the optimum."""
    groups = [(((number, 10 - number), 0, 1000), 12) for number in (3, 4, 5)] + [(((4, 4), 0, 1000), 12)]
    packing = BinPacking(2, groups, [1.0, 1.0, 0.0])
    for _ in range(60):
        packing.add_bin([20, 20], [20, 20], [], False)
    assert packing.fill() == 0
    before = packing.n_opened()
    assert packing.improve(4000) == before - packing.n_opened()
    # 12 * (10 + 10 + 10 + 8) = 456 units of work for 40 a bin.
    assert 12 <= packing.n_opened() <= before


def test_a_bin_that_is_in_use_costs_nothing() -> None:
    """Only those that are opened count."""
    packing = BinPacking(1, [(((2,), 0, 1000), 3)], [1.0, 0.0])
    packing.add_bin([4], [8], [], True)
    packing.add_bin([8], [8], [], False)
    assert packing.fill() == 0
    assert (packing.tasks_in(0), packing.tasks_in(1), packing.n_opened()) == ([0, 0], [0], 1)


def test_arguments_that_do_not_match_are_refused() -> None:
    """Weights, counts, barred classes, bins."""
    with pytest.raises(ValueError, match="1 weights: 1 kinds and the devices"):
        BinPacking(1, [], [1.0])
    with pytest.raises(ValueError, match="-1 tasks of class 0"):
        BinPacking(1, [(((1,), 0, 1000), -1)], [1.0, 1.0])
    packing = BinPacking(1, [(((1,), 0, 1000), 1)], [1.0, 1.0])
    with pytest.raises(ValueError, match="2 classes barred or not: there are 1"):
        packing.add_bin([1], [1], [], False, b"\0\0")
    with pytest.raises(IndexError, match="bin 0 of 0"):
        packing.tasks_in(0)
    assert packing.improve(10) == 0


def test_improving_ends_after_so_many_steps() -> None:
    """The same packing comes out however slow the machine is; a search that may take more steps goes on from there."""

    def improved(steps: int) -> tuple[list[list[int]], int]:
        packing = BinPacking(2, [(((number, 10 - number), 0, 1000), 12) for number in (3, 4, 5)], [1.0, 1.0, 0.0])
        for _ in range(60):
            packing.add_bin([25, 25], [25, 25], [], False)
        assert packing.fill() == 0
        before = packing.n_steps
        packing.improve(4000, steps)
        return [packing.tasks_in(number) for number in range(60)], packing.n_steps - before

    assert improved(0)[1] == 0
    contents, n_steps = improved(500)
    assert 500 <= n_steps < 600  # it ends between rounds
    assert (contents, n_steps) == improved(500)
    assert improved(10**18)[1] > 5000
