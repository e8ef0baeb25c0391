"""IPAM plugins decide addresses once the node is known, and whatever they do costs their own networks' tasks alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.core.errors import FailedPrecondition
from beeyard.core.model import Network, Service
from beeyard.manager.control.network import remove_network
from beeyard.runtime.sim import SimHost, SimWorld
from tests.support.builders import a_network, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.plugin_books import Books
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


async def test_the_plugin_decides_by_the_node(autojump_clock: object) -> None:
    """It is asked after scheduling, with the node in the options, in Docker's words; everything is given back at the end."""
    plugin = SimPlugin(books=Books(by_label=RACKS))
    async with plugin_world() as p:
        await p.start(plugin)
        network = await p.network(plugin)
        assert [config.gateway for config in network.ipam] == ["10.77.0.1"]
        await p.service(6)
        await trio.sleep(2)
        by_node = {(task.node_id, task.grants[0].addresses[0]) for task in p.world.running()}
        assert len(by_node) == 6
        for node_id, address in by_node:
            first, last = RACKS["r1" if node_id == "n1" else "r2"]
            assert first <= int(address.split("/")[0].rpartition(".")[2]) <= last
        assert [grant.mac[:2] for task in p.world.running() for grant in task.grants] == ["02"] * 6
        p.check_agreement(plugin)
        p.world.check_books()

        await p.world.remove_service()
        await trio.sleep(20)
        p.check_agreement(plugin)
        assert plugin.n_calls("ReleaseAddress") == 0, "an address that tasks had does not rest"
        await trio.sleep(15)
        assert plugin.n_calls("ReleaseAddress") == 6
        await remove_network(p.world.store, "net1")
        await trio.sleep(1)
        assert (plugin.books.pools, plugin.books.held) == ({}, {})
        assert (dict(p.world.store.pool_leases), dict(p.world.store.address_leases)) == ({}, {})

    order = list(dict.fromkeys(method.partition(".")[2] for method, _ in plugin.calls))
    assert order == [
        *("Activate", "GetCapabilities", "GetDefaultAddressSpaces", "RequestPool", "RequestAddress"),
        *("ReleaseAddress", "ReleasePool"),
    ]
    bodies = dict(reversed(plugin.calls))
    assert bodies["IpamDriver.RequestPool"] == {
        "AddressSpace": "test-global",
        "Pool": SUBNET,
        "SubPool": "",
        "Options": {"site": "lab"},
        "V6": False,
    }
    asked = [body for method, body in plugin.calls if method.endswith("RequestAddress")]
    assert asked[0]["Options"] == {"RequestAddressType": "com.docker.network.gateway"}
    assert asked[0]["Address"] == "10.77.0.1"
    options = asked[1]["Options"]
    assert (options["beeyard.service.name"], options["beeyard.node.labels.rack"]) in {("s1", "r1"), ("s1", "r2")}
    assert plugin.headers[-1]["host"] == "plugin.moby.localhost"
    assert plugin.headers[-1]["accept"] == "application/vnd.docker.plugins.v1.2+json"
    assert "content-type" not in plugin.headers[-1]


async def test_a_missing_plugin_is_refused_at_once_with_the_paths(autojump_clock: object) -> None:
    """`network create` says where it has looked, and leaves nothing behind."""
    async with plugin_world() as p:
        with pytest.raises(FailedPrecondition) as caught:
            await p.network(SimPlugin("nosuch"))
        assert str(caught.value) == (
            "IPAM plugin nosuch: no such plugin: looked for /run/docker/plugins/nosuch.sock, "
            "/run/docker/plugins/nosuch/nosuch.sock, /etc/docker/plugins/nosuch.spec, "
            "/etc/docker/plugins/nosuch/nosuch.spec, /etc/docker/plugins/nosuch.json, "
            "/etc/docker/plugins/nosuch/nosuch.json, /usr/lib/docker/plugins/nosuch.spec, "
            "/usr/lib/docker/plugins/nosuch/nosuch.spec, /usr/lib/docker/plugins/nosuch.json, "
            "/usr/lib/docker/plugins/nosuch/nosuch.json"
        )
        assert trio.current_time() < 1.0
        await trio.sleep(1)
        assert not p.world.store.pool_leases


async def test_an_outage_costs_its_own_tasks_alone(autojump_clock: object) -> None:
    """Killed, then back: tasks say why they wait, another network's tasks start meanwhile, and soon after theirs do."""
    plugin, other = SimPlugin("p1"), SimPlugin("p2")
    async with plugin_world() as p:
        await p.start(plugin)
        await p.start(other)
        await p.network(plugin)
        await p.network(other, "net2", "10.78.0.0/24")
        await p.kill(plugin)
        await p.service(20)
        await p.service(20, "net2", "s2")
        await trio.sleep(1)
        assert len(p.world.running("s2")) == 20
        assert len(p.world.running()) == 0
        (reason,) = p.reasons()
        assert reason.startswith("IPAM plugin p1: no such plugin: looked for ")
        assert p.world.ipam.warnings == [reason]
        await trio.sleep(60)
        await p.start(plugin)
        await trio.sleep(31)
        assert len(p.world.running()) == 20
        assert p.world.ipam.warnings == []
        p.check_agreement(plugin)


async def test_a_hung_plugin_is_named_and_what_it_answers_late_goes_back(autojump_clock: object) -> None:
    """Stopped: after 10 s its tasks say so, others run; it goes on, and its books and ours agree."""
    plugin, other = SimPlugin("p1"), SimPlugin("p2")
    async with plugin_world() as p:
        await p.start(plugin)
        await p.start(other)
        await p.network(plugin)
        await p.network(other, "net2", "10.78.0.0/24")
        plugin.hang()
        await p.service(40)
        await p.service(40, "net2", "s2")
        await trio.sleep(1)
        assert len(p.world.running("s2")) == 40
        assert p.reasons() == set()
        await trio.sleep(12)
        assert p.reasons() == {"IPAM plugin p1: no answer within 10 s"}
        await trio.sleep(60)
        assert {task.status.message for task in p.world.tasks()} <= {
            "pending task scheduling",
            "planned on node n1, waiting for hook ipam",
            "planned on node n2, waiting for hook ipam",
        }
        plugin.resume()
        await trio.sleep(5)
        assert len(p.world.running()) == 40
        assert plugin.n_at_once_max <= 16
        await trio.sleep(60)
        p.check_agreement(plugin)
        assert len(plugin.books.addresses()) == 41


async def test_removing_what_waits_for_a_hung_plugin_is_not_held_up(autojump_clock: object) -> None:
    """Its service and network are removed while it is hung; when it answers again it gets everything back."""
    plugin = SimPlugin("p1")
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        plugin.hang()
        await p.service(5)
        await trio.sleep(3)
        await p.world.remove_service()
        await trio.sleep(1)
        assert p.world.tasks() == []
        await remove_network(p.world.store, "net1")
        await trio.sleep(100)
        assert p.world.store.pool_leases, "the record went before the plugin took the pool back"
        plugin.resume()
        await trio.sleep(40)
        assert (plugin.books.pools, plugin.books.held) == ({}, {})
        assert not p.world.store.pool_leases


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("outside", "IPAM plugin p1: gave 192.0.2.99/24, which is not in 10.77.0.0/24"),
        ("error", "IPAM plugin p1: it refused IpamDriver.RequestAddress: database is locked"),
        ("status", "IPAM plugin p1: it refused IpamDriver.RequestAddress: internal error"),
        ("cut before", "IPAM plugin p1: the connection broke before it answered"),
        (
            "junk",
            "IPAM plugin p1: its answer to IpamDriver.RequestAddress cannot be read (JSON is malformed: invalid character"
            " (byte 0)): <html>it works</html>",
        ),
    ],
)
async def test_each_fault_has_its_own_reason(autojump_clock: object, fault: str, reason: str) -> None:
    """`docker service ps` tells what the plugin did; when it stops doing it, the tasks start soon and the books agree."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        plugin.script = lambda method, body: fault if method.endswith("RequestAddress") else ""
        await p.service(3)
        await trio.sleep(5)
        assert p.reasons() == {reason}
        assert not p.world.running()
        plugin.script = lambda method, body: ""
        await trio.sleep(31)
        assert len(p.world.running()) == 3
        await trio.sleep(120)
        p.check_agreement(plugin)


async def test_an_address_given_twice_is_refused_and_stays_with_its_task(autojump_clock: object) -> None:
    """The second task says who has it; the first one's address is not given back under it."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(1)
        await trio.sleep(1)
        (first,) = p.world.running()
        (address,) = first.grants[0].addresses
        plugin.script = lambda method, body: "twice" if method.endswith("RequestAddress") else ""
        await p.service(1, service_id="s2")
        await trio.sleep(5)
        assert p.reasons("s2") == {f"IPAM plugin p1: gave {address[:-3]}, which task {first.id} holds"}
        await trio.sleep(100)
        assert address[:-3] in plugin.books.addresses()
        plugin.script = lambda method, body: ""
        await trio.sleep(31)
        assert len(p.world.running("s2")) == 1
        p.check_agreement(plugin)


async def test_exhaustion_is_told_by_pool_and_ends_with_a_release(autojump_clock: object) -> None:
    """With three addresses 47 tasks wait; one given back is used soon, and there is no storm of questions."""
    plugin = SimPlugin(books=Books(by_label={"r1": (64, 65), "r2": (128, 128)}))
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(50)
        await trio.sleep(2)
        assert len(p.world.running()) == 3
        (reason,) = p.reasons()
        assert reason == (
            "IPAM plugin p1: no address left in pool net1 "
            "(it refused IpamDriver.RequestAddress: no available addresses on the pool)"
        )
        n_asked = plugin.n_calls("RequestAddress")
        await trio.sleep(120)
        assert plugin.n_calls("RequestAddress") - n_asked < 400
        await p.world.scale(2)
        await trio.sleep(10)
        assert len(p.world.running()) == 2
        await p.service(1, service_id="s2")
        await trio.sleep(25)
        assert len(p.world.running("s2")) == 1, "the address has rested and is not used"
        p.check_agreement(plugin)


async def test_a_manager_that_dies_leaves_nothing_at_the_plugin(autojump_clock: object) -> None:
    """Killed at each commit in turn while tasks start: the next life gives back what nobody uses, and the books agree."""
    for n in range(1, 30):
        database, plugin = MemoryDatabase(), SimPlugin()
        async with SimWorld(1) as sim:
            async with plugin_world(database, sim) as p:
                await p.start(plugin)
                await p.network(plugin)
                database.after_commit = lambda i, last=database.n_commits + n, p=p: (
                    p.world.kill() if i == last else None
                )
                with trio.move_on_after(3):
                    await p.service(4)
                    await trio.sleep(2)
                    await p.world.scale(2)
                    await trio.sleep_forever()
            database.after_commit = lambda i: None
            async with plugin_world(database, sim) as p:
                await p.start(plugin)
                if p.world.store.get(Service, "s1") is not None:
                    await p.world.scale(3)
                await trio.sleep(120)
                p.check_agreement(plugin)
                p.world.check_books()


async def test_replay_tells_a_plugin_with_empty_books_what_it_gave(autojump_clock: object) -> None:
    """A plugin that keeps nothing and says so is told pools and addresses again, and gives none of them twice."""
    plugin = SimPlugin(persistent=False, capabilities={"RequiresMACAddress": True, "RequiresRequestReplay": True})
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(5)
        await trio.sleep(2)
        macs = {grant.mac for task in p.world.running() for grant in task.grants}
        asked = [body["Options"].get("com.docker.network.endpoint.macaddress") for _, body in plugin.calls[4:]]
        assert macs == {mac for mac in asked if mac}
        assert len(macs) == 5
        await p.kill(plugin)
        await p.start(plugin)
        await p.world.scale(8)
        await trio.sleep(40)
        assert len(p.world.running()) == 8
        p.check_agreement(plugin)


async def test_a_plugin_chooses_subnet_and_gateway(autojump_clock: object) -> None:
    """Without --subnet the plugin's own pool and gateway are the network's."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        network = await p.network(plugin, subnet="")
        assert [(config.subnet, config.gateway) for config in network.ipam] == [("10.201.0.0/24", "10.201.0.1")]
        await p.service(2)
        await trio.sleep(2)
        assert {grant.gateways for task in p.world.running() for grant in task.grants} == {("10.201.0.1",)}
