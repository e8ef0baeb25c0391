"""What follows addresses on the LAN finds what it is there for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.grant import AddressGrant
from beeyard.core.model import TaskSpec
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import attach
from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers
from tests.sim.lan import Lan, check_no_address_twice, parts_of

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


def a_world() -> SimWorld:
    """Two machines with kernels."""
    world = SimWorld(1, parts=FakeParts)
    world.machine("a1")
    world.machine("a2")
    return world


def kernel_of(world: SimWorld, machine: str) -> FakeParts:
    """The parts of a machine that has some."""
    parts = parts_of(world.machine(machine))
    assert parts is not None
    return parts


def assigned(task_id: str) -> AssignedTask:
    """A task as an agent gets it."""
    spec = TaskSpec(image="host")
    return AssignedTask(
        id=task_id,
        service_id="s",
        service_name="web",
        slot=1,
        spec=spec,
        desired_state=TaskState.RUNNING,
        grants=(GRANT,),
    )


async def bring_up(world: SimWorld, machine: str, task_id: str) -> str:
    """Prepare a task with the address on a machine; gives its namespace."""
    host = world.host(machine)
    controller = await host.executors[0].create(assigned(task_id))
    await controller.prepare()
    await attach(host.netlink, controller.netns, GRANT, "eth0")
    return controller.netns


async def test_an_address_on_two_machines_is_found(autojump_clock: MockClock) -> None:
    """Links that are down do not answer, and neither does a machine without power."""
    async with a_world() as world:
        for name in ("a1", "a2"):
            check_no_address_twice(world)
            kernel = kernel_of(world, name).kernel
            netns = kernel.create_netns()
            await attach(kernel, netns, GRANT, "eth0")
        with pytest.raises(AssertionError, match=r"10\.77\.0\.64 is on the LAN twice: a1.* and a2"):
            check_no_address_twice(world)
        with pytest.raises(AssertionError, match="a1 keeps namespaces"):
            checkers.check_nothing_is_left(world)
        kernel.links_down(netns)
        check_no_address_twice(world)
        world.power_cut("a1")
        kernel.drop_netns(netns)
        checkers.check_nothing_is_left(world)


async def test_an_address_that_comes_up_twice_is_found_at_that_moment(autojump_clock: MockClock) -> None:
    """Nobody has to look: the kernel that gets the address tells."""
    async with a_world() as world:
        Lan(world).watch()
        await bring_up(world, "a1", "t1")
        with pytest.raises(AssertionError, match=r"10\.77\.0\.64 is on the LAN twice"):
            await bring_up(world, "a2", "t2")


@pytest.mark.parametrize("rest_s", [0.0, COOL_DOWN_S / 2, COOL_DOWN_S])
async def test_an_address_that_did_not_rest_is_found(autojump_clock: MockClock, rest_s: float) -> None:
    """Another task may have it after its rest."""
    async with a_world() as world:
        Lan(world).watch()
        netns = await bring_up(world, "a1", "t1")
        kernel_of(world, "a1").kernel.links_down(netns)
        await trio.sleep(rest_s)
        if rest_s == COOL_DOWN_S:
            await bring_up(world, "a2", "t2")
            return
        with pytest.raises(AssertionError, match=rf"of task t1 on a1 went to task t2 on a2 {rest_s:.3f} s after"):
            await bring_up(world, "a2", "t2")


async def test_a_task_may_have_its_address_again_at_once(autojump_clock: MockClock) -> None:
    """An agent that was restarted prepares it anew, in another namespace."""
    async with a_world() as world:
        Lan(world).watch()
        for _ in range(2):
            await bring_up(world, "a1", "t1")
            controller = (await world.host("a1").executors[0].recover())[0]
            await controller.remove()
