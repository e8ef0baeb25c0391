"""A task's links stay up for its lease, which only what a manager confirmed extends."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.core.states import TaskState
from beeyard.core.wire import Heartbeat, LeaseRenewed
from tests.support.agent_machine import Machine
from tests.support.agent_tasks import an_assigned
from tests.support.scripted_manager import MANAGER

ADDRESS = "10.77.0.64/24"


@pytest.fixture
async def machine() -> Machine:
    machine = Machine()
    await machine.make_member()
    return machine


async def test_an_isolated_task_keeps_its_links_for_the_lease_and_no_longer(machine, autojump_clock):
    """The lease ends a minute after the last heartbeat that was confirmed, although the agent lives on."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await trio.sleep(600)
        assert machine.addresses_up() == ["10.77.0.64"], "it was extended all the time"
        last_beat_s = [at_s for at_s, m in manager.heard if isinstance(m, Heartbeat)][-1]
        machine.net.refusing[MANAGER] = "no route to host"
        await manager.hang_up()
        await trio.sleep(last_beat_s + 59.5 - trio.current_time())
        assert machine.addresses_up() == ["10.77.0.64"]
        await trio.sleep(1)
        assert machine.addresses_up() == []


async def test_a_task_whose_lease_has_passed_fails_when_contact_returns(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        task = an_assigned(address=ADDRESS, lease_s=60.0)
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.net.refusing[MANAGER] = "no route to host"
        await manager.hang_up()
        await trio.sleep(120)
        del machine.net.refusing[MANAGER]
        second = await machine.net.accept()
        await second.welcome(nursery, [task])
        end = await second.until_state("t1", TaskState.FAILED)
        assert end.err == "no contact with a manager for longer than the lease of 60 s"
        assert machine.tasks.started == []


async def test_heartbeats_that_nobody_confirms_extend_nothing(machine, autojump_clock):
    """Half a connection: we are not heard, so the manager will give the address away in a minute."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        manager.renews = False
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await manager.until_state("t1", TaskState.RUNNING)
        for number in (0, 99, 1 << 40):  # heartbeats that were never sent
            await manager.say(LeaseRenewed(heartbeat_number=number))
        await trio.sleep(59)
        assert machine.addresses_up() == ["10.77.0.64"]
        await trio.sleep(2)
        assert machine.addresses_up() == []


async def test_a_late_confirmation_counts_from_when_the_heartbeat_was_sent(machine, autojump_clock):
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        manager.renews = False
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await manager.until(lambda: manager.of(Heartbeat) != [])
        sent_s = trio.current_time()
        await trio.sleep(40)
        await manager.say(LeaseRenewed(heartbeat_number=1))
        await trio.sleep(sent_s + 59 - trio.current_time())
        assert machine.addresses_up() == ["10.77.0.64"]
        await trio.sleep(2)
        assert machine.addresses_up() == []


async def test_an_adopted_task_gets_a_lease_only_once_a_manager_names_it(machine, autojump_clock):
    task = an_assigned(address=ADDRESS, lease_s=60.0)
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.RUNNING)
    await trio.sleep(30)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await trio.sleep(50)
        assert machine.addresses_up() == ["10.77.0.64"]


async def test_an_adopted_task_that_no_manager_has_named_yet_keeps_the_lease_it_has(machine, autojump_clock):
    """Its address may have been given to somebody else meanwhile: contact alone does not speak for the task."""
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await manager.until_state("t1", TaskState.RUNNING)
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, None)
        await trio.sleep(50)
        assert machine.addresses_up() == ["10.77.0.64"]
        await trio.sleep(20)
        assert machine.addresses_up() == []


async def test_a_machine_that_stood_still_longer_than_the_lease_gives_the_address_up(machine, autojump_clock):
    """What the agent does first when it wakes must not be to believe in its lease."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await trio.sleep(100)
        machine.switch.pause()
        await trio.sleep(120)
        machine.switch.resume()
        await trio.sleep(1)
        assert machine.addresses_up() == []
        peer = manager
        if peer.closed:
            peer = await machine.net.accept()
            await peer.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0, state=TaskState.RUNNING)])
        await peer.until_state("t1", TaskState.FAILED)


async def test_a_task_whose_lease_lapsed_while_the_agent_was_dead_is_over(machine, autojump_clock):
    """The next life of the agent never gave that lease: the shim tells it, and the task is replaced, not kept for ever."""
    task = an_assigned(address=ADDRESS, lease_s=60.0)
    async with machine.agent(crash=True) as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [task])
        await manager.until_state("t1", TaskState.RUNNING)
    await trio.sleep(61.5)
    assert machine.addresses_up() == []
    assert machine.tasks.started == ["t1"]
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [msgspec.structs.replace(task, state=TaskState.RUNNING)])
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.err == "no contact with a manager for longer than the lease of 60 s"
        assert machine.tasks.started == []


async def test_a_lease_that_only_the_shim_saw_lapse_ends_the_task(machine, autojump_clock):
    """A suspended machine: the shim's clock went on, the agent's stood still; the answer to the next renewal tells."""
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned(address=ADDRESS, lease_s=60.0)])
        await manager.until_state("t1", TaskState.RUNNING)
        machine.tasks.by_id["t1"].renew_lease(0.0)
        end = await manager.until_state("t1", TaskState.FAILED)
        assert end.err == "no contact with a manager for longer than the lease of 60 s"
        assert machine.addresses_up() == []
