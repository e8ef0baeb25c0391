"""IPAM plugins decide addresses once the node is known, and get everything back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from beeyard.core.errors import FailedPrecondition, Unsupported
from beeyard.core.model import AddressConflict, Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.manager.control.network import remove_network
from beeyard.manager.control.network_release import release_addresses
from beeyard.manager.control.network_update import NetworkChange, update_network
from beeyard.manager.store import Transaction
from tests.support.builders import a_config_network, a_network, a_network_from, a_service, a_task_spec, an_ipam
from tests.support.manager_world import obedient
from tests.support.plugin_books import Books
from tests.support.plugin_world import RACKS, SUBNET, PluginWorld, plugin_world
from tests.support.sim_plugin import SimPlugin


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


async def test_replay_needs_nobody_who_asks(autojump_clock: object) -> None:
    """A plugin with empty books that comes back after an outage is told again though no task wants an address any more."""
    plugin = SimPlugin(persistent=False, capabilities={"RequiresMACAddress": False, "RequiresRequestReplay": True})
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(5)
        await trio.sleep(2)
        await p.kill(plugin)
        await p.world.scale(6)
        await trio.sleep(5)
        assert len(p.reasons()) == 1
        await p.world.scale(5)
        await trio.sleep(60)
        await p.start(plugin)
        await trio.sleep(31)
        p.check_agreement(plugin)
        assert p.world.ipam.warnings == []


async def test_replay_waits_for_what_is_under_way(autojump_clock: object) -> None:
    """An address that goes back while a plugin is greeted anew is not asked for again, or nobody would give it back."""
    errors, released = iter(["error"]), trio.Event()

    def script(method: str, body: dict[str, Any]) -> str:
        is_told_again = body.get("Address") and "beeyard.lease.id" in (body.get("Options") or {})
        if method.endswith("ReleaseAddress"):
            released.set()
        if method.endswith("ReleaseAddress") or is_told_again:
            return "slow"
        return next(errors, "") if method.endswith("RequestAddress") and len(plugin.calls) > 10 else ""

    plugin = SimPlugin(script=script, persistent=False, capabilities={"RequiresRequestReplay": True})
    plugin.capabilities["RequiresMACAddress"] = False
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(4)
        await trio.sleep(20)
        await p.world.scale(3)
        with trio.fail_after(60):
            await released.wait()
        await p.world.scale(6)
        await trio.sleep(60)
        assert plugin.faults["error"] == 1
        assert len(p.world.running()) == 6
        p.check_agreement(plugin)


@pytest.mark.parametrize("fault", ["outside", "error"])
async def test_an_address_a_plugin_did_not_take_note_of_again_goes_back_alone(
    autojump_clock: object, fault: str
) -> None:
    """It may have given it to another task by then, from which a release that arrives late would take it."""
    lost: set[str] = set()
    released = trio.Event()

    def script(method: str, body: dict[str, Any]) -> str:
        if method.endswith("ReleaseAddress"):
            released.set()
            return "slow"
        return fault if body.get("Address") in lost else ""

    plugin = SimPlugin(script=script, persistent=False, capabilities={"RequiresRequestReplay": True})
    plugin.capabilities["RequiresMACAddress"] = False
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(4)
        await trio.sleep(2)
        await p.world.scale(3)
        await trio.sleep(2)
        lost.update(set(plugin.books.addresses()) - _addresses(p) - {"10.77.0.1"})
        assert len(lost) == 1
        await p.kill(plugin)
        await trio.sleep(40)
        await p.start(plugin)
        with trio.fail_after(600):
            await released.wait()
        await p.world.scale(4)
        await trio.sleep(1)
        assert plugin.faults[fault] == 1
        await trio.sleep(10)
        await p.world.scale(6)
        await trio.sleep(60)
        assert len(p.world.running()) == 6
        p.check_agreement(plugin)


def _addresses(p: PluginWorld) -> set[str]:
    return {a.partition("/")[0] for task in p.world.running() for grant in task.grants for a in grant.addresses}


async def test_a_plugin_that_names_its_pools_anew_gets_everything_back(autojump_clock: object) -> None:
    """It was restarted and told everything again, first by the very call that gives something back."""
    plugin = SimPlugin(persistent=False, capabilities={"RequiresMACAddress": False, "RequiresRequestReplay": True})
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        await p.service(3)
        await trio.sleep(2)
        assert list(plugin.books.pools) == ["pool1"]
        await p.world.remove_service()
        await p.kill(plugin)
        await trio.sleep(40)
        await p.start(plugin)
        await trio.sleep(40)
        assert list(plugin.books.pools) == ["pool2"]
        assert list(plugin.books.addresses().values()) == ["com.docker.network.gateway"]
        await p.kill(plugin)
        await remove_network(p.world.store, "net1")
        await p.start(plugin)
        await trio.sleep(40)
        assert (plugin.books.pools, plugin.books.held) == ({}, {})
        assert (dict(p.world.store.pool_leases), dict(p.world.store.address_leases)) == ({}, {})


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


async def test_pools_of_racks_each_have_their_own_at_the_plugin(autojump_clock: object) -> None:
    """Config-only networks of both families: each node's pool is asked, for an address of each family."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        for number, rack in enumerate(RACKS):
            ipam = [an_ipam(f"10.{number + 1}.0.0/24"), an_ipam(f"fd00:{number + 1}::/64")]
            pool = a_config_network(f"pool-{rack}", rack, config="racks", nodes=f"node.labels.rack=={rack}", ipam=ipam)
            await p.world.ipam.create_network(msgspec.structs.replace(pool, ipam_driver=plugin.name))
        await p.world.ipam.create_network(a_network_from("racks"))
        await p.service(4)
        await trio.sleep(2)
        found = sorted((task.node_id, a) for task in p.world.running() for a in task.grants[0].addresses)
        expected = {"n1": ("10.1.0.", "fd00:1::"), "n2": ("10.2.0.", "fd00:2::")}
        assert found == sorted(
            (node_id, f"{start}{number}/{64 if ':' in start else 24}")
            for node_id, starts in expected.items()
            for start in starts
            for number in (1, 2)
        )
        p.check_agreement(plugin)
        change = NetworkChange(ipam=(an_ipam("10.1.0.0/24", gateway="10.1.0.254"), an_ipam("fd00:1::/64")))
        version = p.world.store.networks["pool-r1"].version
        with pytest.raises(Unsupported, match="changing the subnet of a network with the IPAM driver p1"):
            await update_network(p.world.store, "pool-r1", version, change)
        await p.world.remove_service()
        await trio.sleep(40)
        for network_id in ("net1", "pool-r1", "pool-r2"):
            await remove_network(p.world.store, network_id)
        await trio.sleep(2)
        assert (plugin.books.pools, plugin.books.held) == ({}, {})


async def test_one_family_that_is_refused_gives_the_other_back(autojump_clock: object) -> None:
    """All or nothing: the IPv4 address goes back when there is none of IPv6."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        network = a_network(ipam=[an_ipam(), an_ipam("fd00:1::/64")])
        await p.world.ipam.create_network(msgspec.structs.replace(network, ipam_driver=plugin.name))
        six = next(pool_id for pool_id, subnet in plugin.books.pools.items() if ":" in subnet)
        plugin.script = lambda method, body: (
            "error" if method.endswith("RequestAddress") and body["PoolID"] == six else ""
        )
        await p.service(1)
        await trio.sleep(3)
        assert p.reasons() == {"IPAM plugin p1: it refused IpamDriver.RequestAddress: database is locked"}
        await p.world.remove_service()
        await trio.sleep(5)
        assert (plugin.books.held, dict(p.world.store.address_leases)) == ({}, {})


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_what_a_stranger_has_stays_with_the_manager(autojump_clock: object, *, is_taken_back: bool) -> None:
    """An agent finds an address in use: the plugin does not get it back while it is put aside, and the task gets another.

    An operator may take it back before its time.
    """
    plugin = SimPlugin()
    taken = AddressConflict(address="10.77.0.2", mac="02:00:00:00:00:99")

    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        p.world.script = lambda task: None
        await p.service(1)
        await trio.sleep(2)
        (first,) = p.world.tasks()
        assert first.grants[0].addresses == ("10.77.0.2/24",)

        def reject(tx: Transaction) -> None:
            status = TaskStatus(state=TaskState.REJECTED, err="it is in use", conflicts=(taken,), at_s=tx.now_s)
            tx.update(msgspec.structs.replace(tx.find(Task, first.id), status=status))

        await p.world.store.commit(reject)
        p.world.script = obedient
        await trio.sleep(120)
        assert [task.grants[0].addresses for task in p.world.running()] == [("10.77.0.3/24",)]
        assert plugin.n_calls("ReleaseAddress") == 0
        if is_taken_back:
            await release_addresses(p.world.store, {"net1": [taken.address]}, 3600.0)
        await trio.sleep(40 if is_taken_back else 3700)
        assert list(plugin.books.addresses()) == ["10.77.0.1", "10.77.0.3"]


@pytest.mark.parametrize("order", [("net1", "own"), ("own", "net1")])
async def test_links_are_in_the_order_of_the_networks(autojump_clock: object, order: tuple[str, str]) -> None:
    """eth0 is the first network's, though the plugin of the other answers long after our own book."""
    plugin = SimPlugin(books=Books(by_label=RACKS))
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        own = a_network("own", name="own", ipam=[an_ipam("10.78.0.0/24")])
        await p.world.store.commit(lambda tx: tx.create(own))
        task = a_task_spec(network_ids=list(order))
        await p.world.add(a_service("s1", name="s1", replicas=2, task=task))
        await trio.sleep(3)
        links = [tuple(grant.network_id for grant in task.grants) for task in p.world.running()]
        assert links == [order, order]
