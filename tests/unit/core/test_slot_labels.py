"""What labels of slots do to the slots of a service: which are kept, and how a change is rolled out."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.core.desire import scale
from beeyard.core.mac_address import mac_address
from beeyard.core.model import Service, Task, UpdateConfig, UpdateState, UpdateStatus
from beeyard.core.rollout import is_dirty, roll_out
from beeyard.core.slots import Situation, TaskTimes, slots_of
from beeyard.core.states import TaskState
from beeyard.manager.hooks.slot_claims import slot_mac
from tests.support.builders import a_node, a_service, a_task

S = TaskState


def pinned(addresses: str, replicas: int, **more: object) -> Service:
    labels = {"beeyard.addresses": addresses, "beeyard.on-isolation": "fence"}
    service = a_service(replicas=replicas, labels=labels, update=UpdateConfig(parallelism=1))
    return msgspec.structs.replace(service, **more)


def a_running(slot: int, pin: str = "", spec_version: int = 1) -> Task:
    task = a_task(f"t{slot}", slot=slot, state=S.RUNNING, node_id="n1", spec_version=spec_version)
    return msgspec.structs.replace(task, fence=True, pins=(pin,) if pin else ())


def situation(*tasks: Task) -> Situation:
    times = {task.id: TaskTimes(0.0, 1.0) for task in tasks}
    return Situation(now_s=100.0, wall_s=100.0, nodes={"n1": a_node("n1")}, times=times)


def test_the_last_slots_of_a_pinned_service_go_first() -> None:
    """Others give up the slots on the fullest node, whatever their numbers."""
    tasks = [a_running(n, f"10.1.0.{n}") for n in (1, 2, 3, 4)]
    steps = scale(pinned("10.1.0.1-10.1.0.4", 2), slots_of(tasks), situation(*tasks))
    assert ([r.task_id for r in steps.raises], steps.add) == (["t3", "t4"], [])


def test_slots_beyond_the_addresses_are_given_up_before_others_are_filled() -> None:
    tasks = [a_running(1), a_running(5)]
    service = pinned("10.1.0.1-10.1.0.2", 2)
    steps = scale(service, slots_of(tasks), situation(*tasks))
    assert ([r.task_id for r in steps.raises], steps.add) == (["t5"], [])
    steps = scale(service, slots_of(tasks[:1]), situation(*tasks))
    assert ([add.slot for add in steps.add], steps.raises) == ([2], [])


@pytest.mark.parametrize(
    ("task", "dirty"),
    [
        (a_running(1, "10.1.0.9"), False),
        (a_running(1, "10.1.0.8"), True),
        (a_running(1), True),
        (msgspec.structs.replace(a_running(1, "10.1.0.9"), mac_per_slot=True), True),
    ],
)
def test_a_task_is_replaced_when_its_slot_has_another_address(task: Task, dirty: bool) -> None:
    service = pinned("10.1.0.9", 1, spec_version=2)
    assert is_dirty(task, service, {}) is dirty


@pytest.mark.parametrize(
    ("addresses", "begun"),
    [
        ("10.1.0.1,10.1.0.12,10.1.0.13", [2]),  # one after the other, as its parallelism says
        ("10.1.0.2,10.1.0.1,10.1.0.3", [1, 2]),  # these two would wait for each other
    ],
)
def test_slots_that_exchange_addresses_change_together(addresses: str, begun: list[int]) -> None:
    tasks = [a_running(n, f"10.1.0.{n}") for n in (1, 2, 3)]
    service = pinned(addresses, 3, spec_version=2, update_status=UpdateStatus(state=UpdateState.UPDATING))
    steps = roll_out(service, slots_of(tasks), situation(*tasks))
    assert sorted(add.slot for add in steps.add) == begun
    assert sorted(step.task_id for step in steps.raises) == [f"t{slot}" for slot in begun]


def test_the_mac_address_of_a_slot_follows_from_service_network_and_slot_alone() -> None:
    task = msgspec.structs.replace(a_task(slot=3), mac_per_slot=True)
    mac = slot_mac(task, "lan")
    elsewhere = msgspec.structs.replace(task, id="t9", node_id="n7", spec_version=8)
    assert mac == slot_mac(elsewhere, "lan")
    others = [
        slot_mac(task, "wan"),
        slot_mac(msgspec.structs.replace(task, slot=4), "lan"),
        slot_mac(msgspec.structs.replace(task, service_id="s2"), "lan"),
        mac_address("default", "10.77.0.3"),
        mac_address("default", "fd00::3"),
    ]
    assert len({mac, *others}) == 6
    assert int(mac[:2], 16) & 3 == 2, "locally administered, unicast"
    assert slot_mac(a_task(slot=3), "lan") == ""
