"""A manager with IPAM plugins on its machine, for scenarios."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from beeyard.core.model import Network
from beeyard.runtime.sim import SimHost, SimWorld
from tests.support.builders import a_network, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.sim_plugin import SimPlugin

RACKS = {"r1": (64, 127), "r2": (128, 191)}
SUBNET = "10.77.0.0/24"


class PluginWorld:
    """A manager, and plugins on its machine."""

    def __init__(self, host: SimHost, world: ManagerWorld, nursery: trio.Nursery) -> None:
        self.host = host
        self.world = world
        self._nursery = nursery
        self._lives: dict[str, trio.CancelScope] = {}

    async def start(self, plugin: SimPlugin) -> SimPlugin:
        """Start the process of a plugin."""
        scope = self._lives[plugin.name] = trio.CancelScope()

        async def live(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await plugin.run(self.host, task_status=task_status)

        await self._nursery.start(live)
        return plugin

    async def kill(self, plugin: SimPlugin) -> None:
        """End its process: connections break."""
        self._lives.pop(plugin.name).cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def network(self, plugin: SimPlugin, network_id: str = "net1", subnet: str = SUBNET) -> Network:
        """Create a network whose addresses come from the plugin."""
        return await self.world.ipam.create_network(
            plugin_network(plugin.name, network_id=network_id, name=network_id, subnet=subnet)
        )

    async def service(self, replicas: int, network_id: str = "net1", service_id: str = "s1") -> None:
        """Create a service on a network."""
        task = a_task_spec(network_ids=[network_id])
        await self.world.add(a_service(service_id, name=service_id, replicas=replicas, task=task))

    def reasons(self, service_id: str = "s1") -> set[str]:
        """What `docker service ps` says of its tasks that wait, without how many nodes were tried."""
        errors = [task.status.err for task in self.world.tasks(service_id=service_id, live=True)]
        return {error[error.find("IPAM plugin") :] if "IPAM plugin" in error else error for error in errors if error}

    def check_agreement(self, plugin: SimPlugin) -> None:
        """The plugin's books and ours are the same, to the address."""
        ours = {
            address.partition("/")[0]: lease.id
            for lease in self.world.store.address_leases.values()
            if lease.plugin == plugin.name
            for address in lease.addresses
        }
        taken = {a for p in self.world.store.pool_leases.values() for part in p.parts for a in part.taken}
        theirs = {ip: who for ip, who in plugin.books.addresses().items() if ip not in taken}
        assert theirs == ours


def plugin_network(plugin: str, *, network_id: str = "net1", name: str = "lan", subnet: str = SUBNET) -> Network:
    """A direct network of a plugin; `subnet` "": the plugin chooses."""
    network = a_network(network_id, name=name, ipam=[an_ipam(subnet, gateway=f"{subnet[:-4]}1")] if subnet else [])
    return Network(
        id=network.id,
        name=network.name,
        driver=network.driver,
        ipam=network.ipam,
        options=network.options,
        ipam_driver=plugin,
        ipam_options={"site": "lab"},
    )


@asynccontextmanager
async def plugin_world(
    database: MemoryDatabase | None = None, sim: SimWorld | None = None
) -> AsyncIterator[PluginWorld]:
    """A manager with two nodes in two racks."""
    async with SimWorld(1) as own:
        host = (sim or own).host("m1")
        async with manager_world(database, machine=host) as world, trio.open_nursery() as nursery:
            if not world.store.nodes:
                await world.add(a_node("n1", labels={"rack": "r1"}), a_node("n2", labels={"rack": "r2"}))
            yield PluginWorld(host, world, nursery)
            nursery.cancel_scope.cancel()
