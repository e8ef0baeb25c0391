"""Probes count what they are named for, and a defect in the log fails a run."""

from __future__ import annotations

import pathlib

import pytest
import structlog
import trio

from beeyard.runtime.sim import SimWorld
from tests.sim.probes import DEFECTS, PROBES, listening
from tests.sim.simulation import SimulationFailed, simulate

ROOT = pathlib.Path(__file__).parents[2]


def test_a_probe_counts_its_sentence_when_the_fields_fit() -> None:
    """And nothing is printed."""
    log = structlog.get_logger()
    with listening() as marks:
        log.warning("replacement of tasks", held_back="3 of 4 nodes seem to have failed at once")
        log.warning("replacement of tasks", held_back="no more")
        log.warning("node is down", node="n1")
        log.warning("node is down", node="n2")
        log.info("nobody waits for this")
    assert dict(marks.hits) == {"mass failure held": 1, "mass failure ended": 1, "node down": 2}
    assert marks.defects == []


def test_a_defect_that_a_firebreak_has_caught_fails_the_run() -> None:
    """It went no further in the daemon, and is no less an error of ours."""

    async def scenario(world: SimWorld) -> None:
        structlog.get_logger().error("the agent lost a task", task="t1")
        await trio.sleep(1)

    with pytest.raises(SimulationFailed, match=r"task=t1.*the agent lost a task") as caught:
        simulate(1, scenario)
    assert caught.value.seed == 1


@pytest.mark.parametrize("sentence", sorted({probe.sentence for probe in (*PROBES, *DEFECTS)}))
def test_every_sentence_is_one_that_somebody_logs(sentence: str) -> None:
    """A daemon, the simulation's operator, or its story. One that was reworded would count nothing for ever."""
    sources = [path for folder in ("agent", "manager") for path in (ROOT / folder).rglob("*.py")]
    sources += [ROOT / "tests/sim/pool_changes.py", ROOT / "tests/sim/cluster.py"]
    assert any(f'"{sentence}"' in path.read_text() for path in sources)
