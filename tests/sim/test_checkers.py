"""The checkers find what they are there for."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from beeyard.core.model import Resources, TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.runtime.sim import CPU_NANO
from tests.sim import checkers
from tests.sim.layout import PLAIN
from tests.sim.sizes import SIZES, Sizes, check_that_all_fits
from tests.sim.test_lan import a_world, bring_up


async def test_a_machine_over_its_room_is_found(autojump_clock: MockClock) -> None:
    """Two tasks of two thirds of a machine each are one too many."""
    async with a_world() as world:
        for number in (1, 2):
            checkers.check_no_machine_over_its_room(world)
            spec = TaskSpec(image="host", reservations=Resources(cpu_nano=CPU_NANO * 2 // 3))
            task = AssignedTask(
                id=f"t{number}", service_id="s", service_name="web", slot=1, spec=spec, desired_state=TaskState.RUNNING
            )
            controller = await world.host("a1").executors[0].create(task)
            await controller.prepare()
        with pytest.raises(AssertionError, match=r"a1 has .* and runs .*\['t1', 't2'\]"):
            checkers.check_no_machine_over_its_room(world)


@pytest.mark.parametrize(
    ("machines", "known", "sentence"),
    [
        (("a1", "a2"), ("t1", "t2"), r"slot 1 of web runs twice: as t1 and as t2"),
        (("a1",), (), r"task t1 runs on a1 and the manager knows nothing of it"),
        (("a1",), ("t1",), ""),
    ],
)
async def test_a_slot_that_runs_twice_or_unknown_is_found(
    autojump_clock: MockClock, machines: tuple[str, ...], known: tuple[str, ...], sentence: str
) -> None:
    """By what the machines run."""
    async with a_world() as world:
        for number, machine in enumerate(machines, 1):
            await bring_up(world, machine, f"t{number}")
        if not sentence:
            checkers.check_slots(world, known)
            return
        with pytest.raises(AssertionError, match=sentence):
            checkers.check_slots(world, known)


@pytest.mark.parametrize(
    ("pool", "containers", "sentence"),
    [
        ({"Total": 16, "Used": 1, "Cooling": 2, "Free": 13}, {"t1": {}}, "addresses of pool lan-r1 leaked|t1"),
        ({"Total": 16, "Used": 0, "Cooling": 2, "Free": 14}, {}, "addresses of pool lan-r1 leaked"),
        ({"Total": 16, "Used": 1, "Cooling": 0, "Free": 15}, {}, "1 addresses are taken and 0 tasks have one"),
        ({"Total": 16, "Used": 1, "Cooling": 0, "Free": 15, "Outside": 1}, {"t1": {}}, "2 addresses .* 1 tasks"),
        ({"Total": 16, "Used": 0, "Cooling": 0, "Free": 15}, {}, "does not add up"),
        ({"Total": 15, "Used": 0, "Cooling": 0, "Free": 15}, {}, "has 15 addresses of 16"),
        ({"Total": 16, "Used": 0, "Cooling": 0, "Free": 16}, {}, ""),
    ],
)
def test_books_that_are_wrong_are_found(pool: dict[str, int], containers: dict[str, object], sentence: str) -> None:
    """At rest every address is free, and before that each taken one is some task's."""
    network = {"Containers": containers, "Status": {"IPAM": {"Pools": {"lan-r1": pool}}}}
    ranges = PLAIN.ranges(("10.77.0.64", "fd77::40"), 28)
    pools = [{"Name": "lan-r1", "IPAM": {"Config": ranges}}]
    if not sentence:
        checkers.check_books_are_empty(network, pools)
        return
    with pytest.raises(AssertionError, match=sentence):
        checkers.check_books_are_empty(network, pools)


@pytest.mark.parametrize("sizes", SIZES)
def test_what_users_may_ask_for_fits(sizes: Sizes) -> None:
    """Else a run that does not converge would say nothing."""
    check_that_all_fits(sizes)
