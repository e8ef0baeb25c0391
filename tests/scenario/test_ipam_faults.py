"""Whatever an IPAM plugin does costs its own networks' tasks alone, and each fault has its own reason."""

from __future__ import annotations

import pytest
import trio

from beeyard.core.errors import FailedPrecondition
from beeyard.core.model import Service
from beeyard.manager.control.network import remove_network
from beeyard.runtime.sim import SimWorld
from tests.support.memory_database import MemoryDatabase
from tests.support.plugin_books import Books
from tests.support.plugin_world import plugin_world
from tests.support.sim_plugin import SimPlugin, no_faults


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
        (
            "deep",
            "IPAM plugin p1: its answer to IpamDriver.RequestAddress cannot be read (maximum recursion depth exceeded while"
            f" deserializing an object): {('{' + chr(34) + 'Data' + chr(34) + ':') * 25}…",
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


async def test_a_gateway_given_to_a_task_is_refused_and_stays_the_pools(autojump_clock: object) -> None:
    """It is not given back under the pool that has it."""
    plugin = SimPlugin()
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        plugin.script = lambda method, body: "twice" if method.endswith("RequestAddress") else ""
        await p.service(1)
        await trio.sleep(5)
        assert p.reasons() == {"IPAM plugin p1: gave 10.77.0.1/24, which is the gateway"}
        await p.world.remove_service()
        await trio.sleep(100)
        assert plugin.books.addresses() == {"10.77.0.1": "com.docker.network.gateway"}
        assert not p.world.store.address_leases


async def test_creations_that_fail_at_once_leave_nothing_and_hurt_nobody(autojump_clock: object) -> None:
    """A plugin that gives other pools than it is asked for, faster than the disk writes: each is refused, each pool goes
    back, the manager runs on."""
    plugin, database = SimPlugin(), MemoryDatabase()
    async with plugin_world(database) as p:
        await p.start(plugin)
        await p.network(plugin, "good", "10.79.0.0/24")
        database.takes_s = 0.05
        refused: list[str] = []

        async def create(network_id: str, subnet: str) -> None:
            with pytest.raises(FailedPrecondition) as caught:
                await p.network(plugin, network_id, subnet)
            refused.append(str(caught.value))

        plugin.script = lambda method, body: "other pool" if method.endswith("RequestPool") else ""
        async with trio.open_nursery() as nursery:
            for i in range(8):
                nursery.start_soon(create, f"bad{i}", f"10.{80 + i}.0.0/24")
                await trio.sleep(0.017)
        assert sorted(refused) == [f"IPAM plugin p1: it gave 192.0.2.0/24 and not 10.{80 + i}.0.0/24" for i in range(8)]
        plugin.script = no_faults
        await trio.sleep(60)
        assert (list(p.world.store.pool_leases), list(plugin.books.pools.values())) == (["good"], ["10.79.0.0/24"])
        await p.service(1, "good")
        await trio.sleep(1)
        assert len(p.world.running()) == 1


async def test_a_lost_answer_is_not_written_off_by_a_plugin_that_refuses_everything(autojump_clock: object) -> None:
    """It gave an address, hung up before it said so, and then says no for minutes: what it gave goes back all the same."""
    plugin = SimPlugin(books=Books())
    async with plugin_world() as p:
        await p.start(plugin)
        await p.network(plugin)
        plugin.script = lambda method, body: "cut after" if method.endswith("RequestAddress") else ""
        await p.service(1)
        await trio.sleep(0.5)
        assert plugin.faults["cut after"] == 1
        plugin.script = lambda method, body: "error"
        await p.world.remove_service()
        await trio.sleep(300)
        plugin.script = no_faults
        await trio.sleep(60)
        assert list(plugin.books.addresses().values()) == ["com.docker.network.gateway"]
        p.check_agreement(plugin)
