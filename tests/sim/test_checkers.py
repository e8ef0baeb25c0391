"""The checkers find what they are there for."""

from __future__ import annotations

import msgspec
import pytest
from trio.testing import MockClock

from beeyard.core.model import AddressGrant, Resources, Task, TaskSpec, TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import attach
from beeyard.runtime.host import Record
from beeyard.runtime.sim import CPU_NANO, SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers

GRANT = AddressGrant(
    id="g1",
    hook="address",
    network_id="n",
    network_name="lan",
    pool_id="p",
    pool_name="lan-r1",
    segment="lan",
    driver="macvlan",
    parent="eth0",
    addresses=("10.77.0.64/24",),
)
TASK = Task(id="t1", service_id="s1", service_name="web", slot=1, spec=TaskSpec())


def a_world() -> SimWorld:
    """Two machines with kernels."""
    world = SimWorld(1, parts=FakeParts)
    world.machine("a1")
    world.machine("a2")
    return world


async def test_an_address_on_two_machines_is_found(autojump_clock: MockClock) -> None:
    """Links that are down do not answer, and neither does a machine without power."""
    async with a_world() as world:
        for name in ("a1", "a2"):
            checkers.check_no_address_twice(world)
            parts = checkers.parts_of(world.machine(name))
            assert parts is not None
            netns = parts.kernel.create_netns()
            await attach(parts.kernel, netns, GRANT, "eth0")
        with pytest.raises(AssertionError, match=r"10\.77\.0\.64 is on the LAN twice: a1.* and a2"):
            checkers.check_no_address_twice(world)
        with pytest.raises(AssertionError, match="a1 keeps namespaces"):
            checkers.check_nothing_is_left(world)
        parts.kernel.links_down(netns)
        checkers.check_no_address_twice(world)
        world.power_cut("a1")
        parts.kernel.drop_netns(netns)
        checkers.check_nothing_is_left(world)


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
    ("before", "after", "sentence"),
    [
        ({"state": TaskState.RUNNING}, {"state": TaskState.STARTING}, "from RUNNING to STARTING"),
        ({"state": TaskState.FAILED}, {"state": TaskState.RUNNING}, "from FAILED to RUNNING"),
        ({"desired_state": TaskState.SHUTDOWN}, {"desired_state": TaskState.RUNNING}, "was to be SHUTDOWN"),
        ({"node_id": "n1"}, {"node_id": "n2"}, "moved from n1 to n2"),
        ({}, {"spec": TaskSpec(image="host")}, "spec of task t1 changed"),
        ({"state": TaskState.ASSIGNED, "node_id": "n1"}, {"grants": (GRANT,)}, "grants of task t1 changed"),
        ({"state": TaskState.ASSIGNED}, {"state": TaskState.RUNNING}, ""),
        ({}, {}, ""),
    ],
)
async def test_a_task_that_goes_back_is_found_in_the_store(
    autojump_clock: MockClock, before: dict[str, object], after: dict[str, object], sentence: str
) -> None:
    """Everything that was ever stored of a task is compared with what came next."""
    one = changed(TASK, **before)
    other = changed(one, **after)
    async with SimWorld(1) as world:
        database = await world.host("m1").open_database("/store.db")
        for index, task in enumerate((one, other), 1):
            data = msgspec.msgpack.encode(task)
            await database.commit([Record(index=index, kind="task", id="t1", data=data)])
        await database.aclose()
        if not sentence:
            await checkers.check_states_only_grew(world, "m1", "/store.db")
            return
        with pytest.raises(AssertionError, match=sentence):
            await checkers.check_states_only_grew(world, "m1", "/store.db")


def changed(task: Task, *, state: TaskState | None = None, **fields: object) -> Task:
    """A task with other values."""
    if state is not None:
        fields["status"] = TaskStatus(state=state)
    return msgspec.structs.replace(task, **fields)  # type: ignore[arg-type]
