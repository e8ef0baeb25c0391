"""The scenarios that `./yard sim` knows; the last one is the default."""

from __future__ import annotations

import dataclasses
from typing import TextIO

from tests.sim import cluster, stories, toy
from tests.sim.simulation import PartsFactory, Run, Scenario, simulate


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What to run, and what its machines are made of."""

    scenario: Scenario
    parts: PartsFactory | None = None

    def run(self, seed: int, *, sink: TextIO | None = None, verbose: bool = False) -> Run:
        """One seed; see `simulate`."""
        return simulate(seed, self.scenario, parts=self.parts, sink=sink, verbose=verbose)


SCENARIOS: dict[str, Simulation] = {
    "toy": Simulation(toy.scenario),
    **{name: Simulation(story, stories.parts) for name, story in stories.STORIES.items()},
    "cluster": Simulation(cluster.scenario, cluster.parts),
}


def default_scenario() -> str:
    """The name of the one that runs when none is asked for."""
    return list(SCENARIOS)[-1]
