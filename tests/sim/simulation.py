"""Running one simulation from a seed, and what is printed when it fails."""

from __future__ import annotations

import dataclasses
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TextIO

from beeyard.runtime.sim import MachineParts, SimMachine, SimWorld
from beeyard.runtime.sim_trace import Trace
from tests.sim import determinism
from tests.sim.probes import listening

# Builds its machines and daemons in the world, breaks them, checks them; an error is a failed simulation.
Scenario = Callable[[SimWorld], Awaitable[None]]
PartsFactory = Callable[[SimMachine], MachineParts]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that held."""

    digest: str  # of everything that happened
    hits: Counter[str]  # rare situations that it came upon, see `tests/sim/probes.py`


class SimulationFailed(Exception):
    """A seed that fails; `str()` is all that is needed to repeat and understand it."""

    def __init__(self, seed: int, cause: BaseException, trace: Trace) -> None:
        super().__init__(seed)
        self.seed = seed
        self.cause = cause
        self.trace = trace

    def __str__(self) -> str:
        return "\n".join(
            [
                f"simulation failed: seed {self.seed}, commit {_commit()}",
                f"repeat with: ./yard sim {self.seed}",
                *(f"because: {sentence}" for sentence in _sentences(self.cause)),
                f"last events of {self.trace.n_events}:",
                *self.trace.last,
            ]
        )


def simulate(
    seed: int,
    scenario: Scenario,
    *,
    parts: PartsFactory | None = None,
    sink: TextIO | None = None,
    revive_after_s: float | None = 1.0,
    verbose: bool = False,
) -> Run:
    """Run a scenario in the world of a seed; `verbose` shows the daemons' warnings.

    Raises:
        SimulationFailed: the scenario, a daemon or a listener's handler raised, or a firebreak has caught a defect.
    """
    worlds: list[SimWorld] = []

    async def main() -> str:
        async with SimWorld(seed, parts=parts, sink=sink, revive_after_s=revive_after_s) as world:
            worlds.append(world)
            await scenario(world)
            digest = world.trace.digest
        assert world.handler_errors == [], world.handler_errors
        return digest

    try:
        with listening(shown=verbose) as marks:
            digest = determinism.run(seed, main)
        assert marks.defects == [], marks.defects
        return Run(digest, marks.hits)
    except Exception as error:
        raise SimulationFailed(seed, error, worlds[0].trace) from error


def _sentences(error: BaseException) -> list[str]:
    """What each error at the leaves of a group says."""
    if isinstance(error, BaseExceptionGroup):
        return [sentence for inner in error.exceptions for sentence in _sentences(inner)]
    return [f"{type(error).__name__}: {error}".splitlines()[0]]


def _commit() -> str:
    root = Path(__file__).parents[2]
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or "unknown"
