"""Whole clusters from seeds, with everything breaking: see `tests/sim/cluster.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenarios import SCENARIOS

# One seed a line, and what it found.
REGRESSIONS = Path(__file__).with_name("regressions.txt")


SEEDS = range(1, 17)


def regressions() -> list[int]:
    """Seeds that have failed once and are not run anyway."""
    lines = (line.partition("#")[0].strip() for line in REGRESSIONS.read_text().splitlines())
    return [int(line) for line in lines if line and int(line) not in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_keeps_its_promises_whatever_breaks(seed: int) -> None:
    """No address twice, no machine over its room, states only grow, nothing acknowledged lost, nothing left at rest."""
    SCENARIOS["cluster"].run(seed)


@pytest.mark.parametrize("seed", regressions())
def test_cluster_keeps_its_promises_where_it_once_did_not(seed: int) -> None:
    """Also in the worlds of `regressions.txt`."""
    SCENARIOS["cluster"].run(seed)
