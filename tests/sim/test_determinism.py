"""One seed, one run: trio's private switch still does what the simulator needs, and nothing else leaks in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from beeyard.runtime.sim import SimWorld
from tests.sim import determinism, toy
from tests.sim.simulation import SimulationFailed, simulate

ROOT = Path(__file__).parents[2]


def order_of_tasks(seed: int) -> tuple[tuple[str, int], ...]:
    """As trio's own test of its scheduler."""
    trace: list[tuple[str, int]] = []

    async def tracer(name: str) -> None:
        for step in range(50):
            trace.append((name, step))
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(tracer, str(number))

    determinism.run(seed, main)
    return tuple(trace)


def test_order_of_tasks_is_the_same_for_a_seed_and_another_for_another() -> None:
    """The canary: when a version of trio moves the switch, this fails first."""
    assert len({order_of_tasks(7) for _ in range(10)}) == 1
    assert len({order_of_tasks(seed) for seed in range(10)}) == 10


@pytest.mark.parametrize(("scenario", "seed"), [("toy", "11"), ("cluster", "14")])
def test_one_seed_gives_one_digest_under_any_hash_seed(scenario: str, seed: str) -> None:
    """Two processes with different orders of sets and ids agree on every draw and message."""
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim", seed, "--scenario", scenario],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split(",")[1]
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_failed_simulation_says_how_to_repeat_it() -> None:
    """Seed, commit, command, sentence and the last events."""

    async def scenario(world: SimWorld) -> None:
        world.trace.event("m1", "-> a3 connect")
        await trio.sleep(12.345)
        raise AssertionError("address 10.0.0.1 is on the LAN twice")

    with pytest.raises(SimulationFailed) as caught:
        simulate(8123, scenario)
    text = str(caught.value)
    for part in ("seed 8123, commit ", "./yard sim 8123", "on the LAN twice", "t=0.000 m1 -> a3 connect"):
        assert part in text


@pytest.mark.parametrize("seed", range(1, 7))
def test_toy_cluster_loses_nothing_whatever_breaks(seed: int) -> None:
    """Simulator and nemesis together: crashes, power cuts, partitions, pauses and disks that fail."""
    simulate(seed, toy.scenario)
