"""The scenarios that `./yard sim` knows; the last one is the default."""

from __future__ import annotations

from tests.sim import toy
from tests.sim.simulation import Scenario

SCENARIOS: dict[str, Scenario] = {"toy": toy.scenario}


def default_scenario() -> str:
    """The name of the one that runs when none is asked for."""
    return list(SCENARIOS)[-1]
