"""An agent that asks the LAN before it uses an address: what it says, leaves behind, and does again after a restart."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.core.model import AddressConflict
from beeyard.core.states import TaskState
from beeyard.runtime.fake_executor import Behaviour
from tests.support.agent_machine import Machine
from tests.support.agent_tasks import an_assigned

ADDRESS = "10.77.0.64/24"
CONFLICT = AddressConflict(address="10.77.0.64", mac="02:00:00:00:00:99")


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


def stranger(machine: Machine) -> None:
    """A machine on the LAN has the address."""
    machine.kernel.neighbours.mac_of = {CONFLICT.address: CONFLICT.mac}.get


async def test_a_taken_address_is_refused_before_anything_exists(machine, autojump_clock):
    """With the machine's MAC address in the status, again after a restart, and nothing is left on the host."""
    stranger(machine)
    task = an_assigned(address=ADDRESS)
    for _ in range(2):
        async with machine.agent(crash=True) as nursery:
            manager = await machine.net.accept()
            await manager.welcome(nursery, [task])
            end = await manager.until_state("t1", TaskState.REJECTED)
            assert end.conflicts == (CONFLICT,)
            assert end.err == f"address 10.77.0.64 is in use on eth0 by {CONFLICT.mac}: it is put aside"
        assert (machine.tasks.by_id, machine.kernel.namespaces) == ({}, ())
    assert not [sent for sent in machine.kernel.frames if sent.netns], "nothing was ever announced"


async def test_a_task_that_is_stopped_while_it_asks_is_stopped_at_once(machine, autojump_clock):
    """And so is the question."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await manager.until(lambda: bool(machine.kernel.frames))
        await manager.assign(an_assigned(address=ADDRESS, desired=TaskState.SHUTDOWN))
        await manager.until_state("t1", TaskState.SHUTDOWN)
        assert machine.tasks.started == []


async def test_an_agent_that_prepares_a_task_again_does_not_trip_over_its_own_link(machine, autojump_clock):
    """Killed between link and start, it undoes the link, asks again, and the task runs."""
    machine.behaviour["t1"] = Behaviour(start_s=5.0)
    task = an_assigned(address=ADDRESS, desired=TaskState.READY)
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.READY)
    assert machine.addresses_up() == ["10.77.0.64"]
    n_asked = len([sent for sent in machine.kernel.frames if not sent.netns])
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
    assert len([sent for sent in machine.kernel.frames if not sent.netns]) == 2 * n_asked > 0


async def test_asking_can_be_switched_off(machine, autojump_clock):
    """`probe_s = 0`: the address is used, whoever has it."""
    stranger(machine)
    config = machine.config
    machine.config = lambda **kw: msgspec.structs.replace(config(**kw), probe_s=0.0)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS)])
        await manager.until_state("t1", TaskState.RUNNING)
        await trio.sleep(1)
        assert not [sent for sent in machine.kernel.frames if not sent.netns]
