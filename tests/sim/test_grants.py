"""What follows grants finds what it is there for."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock

from beeyard.core.grant import AddressGrant, AnyGrant, MappedPort, PortGrant, ResourceGrant
from beeyard.core.model import AddressConflict, Service, ServiceSpec, Task, TaskSpec, TaskStatus
from beeyard.core.resources import Resources
from beeyard.core.states import TaskState
from beeyard.runtime.host import Forward
from beeyard.runtime.sim import SimMachine
from tests.sim.grants import GrantRules
from tests.sim.test_lan import GRANT, a_world
from tests.support.builders import some_generic

PORT = PortGrant(id="p1", hook="port", ports=(MappedPort(published=8000, target=80),))
ADDRESS = "10.77.0.64"
PINNING = Service(id="s1", spec=ServiceSpec(name="web", labels={"beeyard.addresses": "10.77.0.64-10.77.0.65"}))


def a_task(task_id: str, *grants: AnyGrant, service_id: str = "s1", slot: int = 1, **fields: object) -> Task:
    """One that was placed on n1."""
    return msgspec.structs.replace(
        Task(
            id=task_id,
            service_id=service_id,
            service_name="web",
            slot=slot,
            spec=TaskSpec(),
            node_id="n1",
            status=TaskStatus(state=TaskState.ASSIGNED),
            grants=grants,
        ),
        **fields,  # type: ignore[arg-type]
    )


def ended(task: Task, state: TaskState = TaskState.FAILED, **status: object) -> Task:
    """The same, over."""
    return msgspec.structs.replace(task, status=TaskStatus(state=state, **status))  # type: ignore[arg-type]


def rules(machine: SimMachine | None = None) -> GrantRules:
    """Of a store whose only node is a machine."""
    return GrantRules(lambda node_id: machine, 60.0)


async def test_a_device_that_two_tasks_of_a_node_have_is_found(autojump_clock: MockClock) -> None:
    """As soon as the second has it; not when the first has ended, and not on another node."""
    r = rules()
    device = ResourceGrant(id="c1", hook="claim", resources=some_generic({"gpu": ["g7"]}))
    spec = TaskSpec(reservations=Resources(generic=some_generic({"gpu": 1})))
    first = a_task("t1", device, spec=spec)
    r.task_stored(None, first)
    r.task_stored(None, a_task("t9", device, spec=spec, node_id="n2"))
    with pytest.raises(AssertionError, match=r"gpu=g7 of node n1 of task t1 went to task t2"):
        r.task_stored(None, a_task("t2", device, spec=spec))
    r.task_stored(first, ended(first))
    r.task_stored(None, a_task("t3", device, spec=spec))


async def test_a_task_that_got_other_devices_than_it_asked_for_is_found(autojump_clock: MockClock) -> None:
    device = ResourceGrant(id="c1", hook="claim", resources=some_generic({"gpu": ["g7"]}))
    with pytest.raises(AssertionError, match=r"task t1 asked for \(\) and got \(\('gpu', 1\),\)"):
        rules().task_stored(None, a_task("t1", device))


async def test_a_port_that_two_tasks_of_a_node_have_is_found(autojump_clock: MockClock) -> None:
    """As soon as the second has it; not when the first has ended."""
    r = rules()
    first = a_task("t1", PORT)
    r.task_stored(None, first)
    with pytest.raises(AssertionError, match=r"port .*8000.* of node n1 of task t1 went to task t2"):
        r.task_stored(None, a_task("t2", PORT))
    r.task_stored(first, ended(first))
    r.task_stored(None, a_task("t3", PORT))


async def test_a_port_that_leads_somewhere_after_the_end_is_found(autojump_clock: MockClock) -> None:
    """When the end is stored, but for a task whose end nobody has seen."""
    async with a_world() as world:
        machine = world.machines["a1"]
        forward = Forward(protocol="tcp", published=8000, address="169.254.192.1", target=80)
        machine.firewall.tables["beeyard"] = (forward,)
        task = a_task("t1", PORT)
        rules(machine).task_stored(task, ended(task, TaskState.ORPHANED))
        with pytest.raises(AssertionError, match="task t1 has ended, and its ports lead to"):
            rules(machine).task_stored(task, ended(task))
        machine.firewall.tables.clear()
        rules(machine).task_stored(task, ended(task))


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (a_task("t1", GRANT, pins=(ADDRESS,)), ""),
        (a_task("t1", GRANT, pins=("10.77.0.65",)), "is pinned to a slot of service s1"),
        (a_task("t1", GRANT, service_id="s2"), "is pinned to a slot of service s1 and went to task t1"),
        (a_task("t1", GRANT, service_id="s2", pins=("10.77.0.99",)), "is pinned|is to have"),
    ],
)
async def test_pinned_addresses_are_their_slots_alone(autojump_clock: MockClock, task: Task, sentence: str) -> None:
    """While their service exists."""
    r = rules()
    r.service_stored("s1", PINNING)
    if not sentence:
        r.task_stored(None, task)
        return
    with pytest.raises(AssertionError, match=sentence):
        r.task_stored(None, task)
    r.service_stored("s1", None)
    r.task_stored(None, msgspec.structs.replace(task, pins=()))


async def test_a_slot_that_changes_its_mac_address_is_found(autojump_clock: MockClock) -> None:
    """Another slot has another one."""
    r = rules()

    def with_mac(mac: str) -> AddressGrant:
        return msgspec.structs.replace(GRANT, mac=mac)

    r.task_stored(None, a_task("t1", with_mac("02:00:00:00:00:01"), mac_per_slot=True))
    r.task_stored(None, a_task("t2", with_mac("02:00:00:00:00:02"), mac_per_slot=True, slot=2))
    with pytest.raises(AssertionError, match="slot 1 of web had MAC 02:00:00:00:00:01 and has 02:00:00:00:00:03"):
        r.task_stored(None, a_task("t3", with_mac("02:00:00:00:00:03"), mac_per_slot=True))


@pytest.mark.parametrize("wait_s", [0.0, 59.0, 60.0])
async def test_an_address_that_a_stranger_had_is_not_given_too_early(autojump_clock: MockClock, wait_s: float) -> None:
    """It is put aside for a minute, as this cluster is told."""
    r = rules()
    task = a_task("t1", GRANT)
    r.task_stored(None, task)
    conflict = AddressConflict(address=ADDRESS, mac="06:00:00:00:00:01")
    r.task_stored(task, ended(task, TaskState.REJECTED, conflicts=(conflict,)))
    await trio.sleep(wait_s)
    if wait_s == 60.0:
        r.task_stored(None, a_task("t2", GRANT))
        return
    with pytest.raises(AssertionError, match=r"which task t1 found to be a stranger's, went to task t2"):
        r.task_stored(None, a_task("t2", GRANT))
