"""A directed story: what a pause does to the end of a lease, and where the promise ends."""

from __future__ import annotations

import functools

import pytest
import trio

from beeyard.manager.config import ManagerConfig
from beeyard.manager.dispatch.assignments import FENCED_LEASE_S
from beeyard.manager.orchestrators.isolation import MARGIN_S_MIN
from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers
from tests.sim.cluster import MANAGER, Cluster
from tests.sim.history import History
from tests.sim.layout import LAN
from tests.sim.simulation import SimulationFailed, simulate
from tests.sim.sizes import SIZES

# From the partition to the pause: the lease ends soon after.
CUT_OFF_S = FENCED_LEASE_S - 10.0


async def story(pause_s: float, world: SimWorld) -> None:
    """A node with a fenced task is cut off, then stands still while the lease ends, then goes on."""
    cluster = Cluster(world, SIZES[-1])
    for name in (MANAGER, *cluster.agents):
        world.machine(name)
    history = History(world, ManagerConfig().store_path)
    history.watch(MANAGER)
    network_ids = await cluster.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checkers.watch_machines, world)
        await cluster.api.call("POST", "/services/create", a_fenced_service(network_ids[LAN]))
        await world.until(lambda: machines_with_task(world) != [])
        name = machines_with_task(world)[0]
        world.isolate(name)
        await trio.sleep(CUT_OFF_S)
        world.pause(name)
        await trio.sleep(pause_s)
        world.resume(name)
        await trio.sleep(60.0)
        # The service runs elsewhere, and the first address was given up once it was off the LAN.
        assert len(machines_with_task(world)) == 1
        assert machines_with_task(world) != [name]
        states = [task["Status"]["State"] for task in await cluster.tasks()]
        assert sorted(states) == ["orphaned", "running"]
        nursery.cancel_scope.cancel()


def a_fenced_service(network_id: str) -> dict[str, object]:
    """One replica with an address."""
    return {
        "Name": "web-1",
        "Labels": {"beeyard.on-isolation": "fence"},
        "TaskTemplate": {
            "ContainerSpec": {"Image": "host", "Args": ["sleep", "1000"]},
            "Networks": [{"Target": network_id}],
        },
        "Mode": {"Replicated": {"Replicas": 1}},
    }


def machines_with_task(world: SimWorld) -> list[str]:
    """Machines on which something runs."""
    return [name for name, machine in world.machines.items() if checkers.running_tasks(machine)]


def test_a_node_that_stands_still_within_the_margin_keeps_the_promise() -> None:
    """Its shim takes the links down when it goes on, before the manager gives the address up."""
    simulate(1, functools.partial(story, MARGIN_S_MIN), parts=FakeParts)


def test_a_node_that_stands_still_for_longer_breaks_it() -> None:
    """The limit of leases that are kept in user space: known, and found when it is passed."""
    with pytest.raises(SimulationFailed, match=r"was stored as ORPHANED while 10\.77\.\d\.\d+ was up"):
        simulate(1, functools.partial(story, MARGIN_S_MIN + 20.0), parts=FakeParts)
