"""A node takes what it has room for, waits for what is about to be freed, and refuses the rest."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from beeyard.agent.admission import Admission, AdmissionRefused
from beeyard.core.resources import Resources
from beeyard.core.wire import AssignedTask
from tests.support.agent_tasks import an_assigned
from tests.support.builders import some_generic

CPU = 10**9
MIB = 1 << 20


def a_node(cpu_nano: int = 2 * CPU, memory_bytes: int = 1024 * MIB) -> Admission:
    return Admission(lambda: (cpu_nano, memory_bytes), some_generic({"gpu": ["a"]}))


def not_waiting(reason: str) -> None:
    raise AssertionError(f"must not wait, but: {reason}")


async def refusal(admission: Admission, task: AssignedTask) -> str:
    with pytest.raises(AdmissionRefused) as caught:
        await admission.admit(task, not_waiting)
    return str(caught.value)


async def test_room_counts_reservations_of_what_is_here():
    admission = a_node(cpu_nano=2 * CPU)
    await admission.admit(an_assigned("t1", slot=1, cpu_nano=CPU), not_waiting)
    await admission.admit(an_assigned("t2", slot=2, cpu_nano=CPU), not_waiting)
    assert (
        await refusal(admission, an_assigned("t3", slot=3, cpu_nano=CPU // 2))
        == "insufficient CPU on this node: 0.5 asked, 0 of 2 free"
    )


async def test_memory_is_counted_in_its_own_column():
    admission = a_node(memory_bytes=1024 * MIB)
    await admission.admit(an_assigned("t1", slot=1, memory_bytes=600 * MIB), not_waiting)
    assert (
        await refusal(admission, an_assigned("t2", slot=2, memory_bytes=600 * MIB))
        == "insufficient memory on this node: 600 MiB asked, 424 MiB of 1 GiB free"
    )


async def test_room_that_a_stopping_task_gives_back_is_waited_for(autojump_clock: object):
    """A manager that gave the old task up, as when its lease has lapsed, may send the new one before it is gone."""
    admission = a_node(cpu_nano=2 * CPU)
    await admission.admit(an_assigned("old", slot=1, cpu_nano=2 * CPU), not_waiting)
    admission.stopping("old")
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.admit, an_assigned("new", slot=2, cpu_nano=CPU), reasons.append)
        await trio.testing.wait_all_tasks_blocked()
        assert reasons == ["waiting for CPU that stopping tasks still hold"]
        assert nursery.child_tasks
        admission.release("old")
    assert await refusal(admission, an_assigned("more", slot=3, cpu_nano=2 * CPU)) == (
        "insufficient CPU on this node: 2 asked, 1 of 2 free"
    )


async def test_a_task_that_reserves_nothing_always_fits():
    admission = a_node(cpu_nano=0, memory_bytes=0)
    admission.hold(an_assigned("big", slot=1, cpu_nano=CPU))
    await admission.admit(an_assigned("t1", slot=2), not_waiting)


async def test_generic_resources_are_counted_by_kind_and_what_the_node_does_not_offer_is_refused():
    admission = Admission(lambda: (0, 0), some_generic({"gpu": ["a", "b"], "ssd": 3}))
    await admission.admit(an_assigned("t1", slot=1, claims={"gpu": ["a"], "ssd": 2}), not_waiting)
    assert await refusal(admission, an_assigned("t2", slot=2, claims={"ssd": 2})) == (
        "insufficient ssd on this node: 2 asked, 1 of 3 free"
    )
    assert await refusal(admission, an_assigned("t2", slot=2, claims={"fpga": 1})) == (
        "insufficient fpga on this node: 1 asked, 0 of 0 free"
    )
    await admission.admit(an_assigned("t2", slot=2, claims={"gpu": ["b"], "ssd": 1}), not_waiting)


async def test_a_resource_that_a_live_task_has_by_name_is_refused():
    admission = Admission(lambda: (0, 0), some_generic({"gpu": ["a", "b"]}))
    await admission.admit(an_assigned("t1", slot=1, claims={"gpu": ["a"]}), not_waiting)
    assert await refusal(admission, an_assigned("t2", slot=2, claims={"gpu": ["a"]})) == (
        "resource gpu=a is in use on this node by task t1"
    )


async def test_a_resource_that_the_node_does_not_list_any_more_is_refused():
    admission = Admission(lambda: (0, 0), some_generic({"gpu": ["a"]}))
    assert await refusal(admission, an_assigned("t1", slot=1, claims={"gpu": ["b"]})) == (
        "resource gpu=b is not one of this node's"
    )


async def test_what_the_node_keeps_for_itself_is_no_room():
    admission = Admission(lambda: (2 * CPU, 1024 * MIB), (), Resources(cpu_nano=CPU, memory_bytes=24 * MIB))
    assert await refusal(admission, an_assigned("t1", slot=1, cpu_nano=CPU + 1)) == (
        "insufficient CPU on this node: 1.000000001 asked, 1 of 1 free"
    )
    await admission.admit(an_assigned("t1", slot=1, cpu_nano=CPU, memory_bytes=1000 * MIB), not_waiting)


async def test_an_address_that_a_live_task_uses_is_refused():
    admission = a_node()
    await admission.admit(an_assigned("t1", slot=1, address="10.77.0.64/24"), not_waiting)
    assert (
        await refusal(admission, an_assigned("t2", slot=2, address="10.77.0.64/25"))
        == "address 10.77.0.64 is in use on this node by task t1"
    )


@pytest.mark.parametrize(
    ("holder", "newcomer"),
    [
        (an_assigned("t1", slot=1), an_assigned("t2", slot=1)),
        (an_assigned("t1", slot=1, address="10.77.0.64/24"), an_assigned("t2", slot=2, address="10.77.0.64/24")),
        (an_assigned("t1", slot=1, cpu_nano=2 * CPU), an_assigned("t2", slot=2, cpu_nano=CPU)),
        (an_assigned("t1", slot=1, claims={"gpu": ["a"]}), an_assigned("t2", slot=2, claims={"gpu": ["a"]})),
    ],
    ids=["predecessor in its slot", "holder of its address", "holder of the room", "holder of its device"],
)
async def test_a_task_waits_for_who_is_stopping_and_gets_in_when_it_is_over(holder, newcomer, autojump_clock):
    admission = a_node()
    await admission.admit(holder, not_waiting)
    admission.stopping(holder.id)
    reasons: list[str] = []
    admitted = trio.Event()

    async def admit() -> None:
        await admission.admit(newcomer, reasons.append)
        admitted.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(admit)
        await trio.testing.wait_all_tasks_blocked()
        assert not admitted.is_set()
        assert len(reasons) == 1
        assert reasons[0].startswith("waiting for ")
        admission.release(holder.id)
        await admitted.wait()


async def test_a_predecessor_that_keeps_running_is_not_waited_for():
    """Start-first: the old task stops only once the new one runs."""
    admission = a_node()
    await admission.admit(an_assigned("old", slot=1), not_waiting)
    await admission.admit(an_assigned("new", slot=1), not_waiting)


async def test_unknown_tasks_hold_back_only_tasks_that_need_an_address(autojump_clock):
    admission = a_node()
    admission.unknown_found()
    await admission.admit(an_assigned("t1", slot=1), not_waiting)
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.admit, an_assigned("t2", slot=2, address="10.77.0.64/24"), reasons.append)
        await trio.testing.wait_all_tasks_blocked()
        assert reasons == ["waiting for 1 unknown tasks to be cleaned up"]
        admission.unknown_gone()
    assert "in use" in await refusal(admission, an_assigned("t3", slot=3, address="10.77.0.64/24"))


async def test_a_cancelled_wait_holds_nothing(autojump_clock):
    admission = a_node(cpu_nano=CPU)
    await admission.admit(an_assigned("t1", slot=1, cpu_nano=CPU), not_waiting)
    admission.stopping("t1")
    with trio.move_on_after(1):
        await admission.admit(an_assigned("t2", slot=2, cpu_nano=CPU), lambda reason: None)
    admission.release("t1")
    await admission.admit(an_assigned("t3", slot=3, cpu_nano=CPU), not_waiting)


async def test_releasing_twice_gives_back_once():
    admission = a_node(cpu_nano=CPU)
    await admission.admit(an_assigned("t1", slot=1, cpu_nano=CPU), not_waiting)
    admission.release("t1")
    admission.release("t1")
    await admission.admit(an_assigned("t2", slot=2, cpu_nano=CPU), not_waiting)
    assert "insufficient CPU" in await refusal(admission, an_assigned("t3", slot=3, cpu_nano=CPU))
