"""Pools that change while tasks have addresses of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import IPAMConfig
from beeyard.core.states import TaskState
from beeyard.manager.control.network import create_network, remove_network
from beeyard.manager.control.network_update import NetworkChange, update_network
from beeyard.manager.hooks import Stage, Window
from tests.support.builders import a_config_network, a_network_from, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.scripted_hook import Scripted

S = TaskState
SUBNET = "10.1.0.0/24"
R1 = a_config_network("p1", "lan-1", config="c", ipam=[an_ipam(SUBNET, "10.1.0.8/30")])
R2 = a_config_network("p2", "lan-2", config="c", ipam=[an_ipam(SUBNET, "10.1.0.16/30")])
LAN = a_network_from("c", "lan", name="lan")


def web(replicas: int, service_id: str = "s1"):  # type: ignore[no-untyped-def]
    return a_service(service_id, name=service_id, replicas=replicas, task=a_task_spec(network_ids=["lan"]))


async def set_pool(world: ManagerWorld, pool_id: str, *ipam: IPAMConfig, **labels: str) -> str:
    version = world.store.networks[pool_id].version
    change = NetworkChange(ipam=ipam or None, labels={"beeyard.config": "c", **labels} if labels else None)
    return (await update_network(world.store, pool_id, version, change))[1]


def usage(world: ManagerWorld, pool_id: str) -> tuple[int, int, int, int]:
    found = world.ledger.usage(pool_id)
    assert found is not None
    return found.total, found.used, found.cooling, found.free


async def test_removed_pool_keeps_what_it_gave_until_the_end(autojump_clock: object) -> None:
    """Its tasks run on, nobody new gets its addresses, not through another pool either, and a restart changes nothing."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(R1, R2, LAN, a_node("n1"), web(6))
        await trio.sleep(2)
        before = sorted(world.addresses())
        assert [grant.pool_name for t in world.running() for grant in t.grants if isinstance(grant, AddressGrant)] == [
            *["lan-1"] * 4, *["lan-2"] * 2,
        ]  # fmt: skip
        await remove_network(world.store, "p1")
        await trio.sleep(2)
        assert sorted(world.addresses()) == before
        world.check_books()
    async with manager_world(database) as world:
        wide = a_config_network("p3", "lan-3", config="c", ipam=[an_ipam(SUBNET, "10.1.0.8/29")])
        await world.add(wide, web(20, "s2"))
        await trio.sleep(2)
        assert len(world.running("s2")) == 2 + 4
        world.check_books()
        await world.remove_service()
        await trio.sleep(40)
        assert len(world.running("s2")) == 4 + 8
        world.check_books()


async def test_shrunk_pool_keeps_what_it_gave(autojump_clock: object) -> None:
    """What lies outside now is given to nobody again; the counts are of the new range; growing lets waiting tasks in."""
    async with manager_world() as world:
        await world.add(R1, LAN, a_node("n1"), web(6))
        await trio.sleep(2)
        assert (len(world.running()), usage(world, "p1")) == (4, (4, 4, 0, 0))
        warning = await set_pool(world, "p1", an_ipam(SUBNET, "10.1.0.10/31"))
        assert warning == "2 tasks keep addresses outside of the new range to the end"
        await trio.sleep(1)
        assert (len(world.running()), usage(world, "p1")) == (4, (2, 2, 0, 0))
        for task in world.running():
            await world.report(task.id, S.FAILED)
        await trio.sleep(60)
        assert sorted(world.addresses()) == ["10.1.0.10/24", "10.1.0.11/24"]
        assert usage(world, "p1") == (2, 2, 0, 0)
        await set_pool(world, "p1", an_ipam("10.1.0.0/16", "10.1.4.0/29", aux={"nas": "10.1.4.1"}))
        await trio.sleep(1)
        assert len(world.running()) == 6
        assert usage(world, "p1") == (7, 4, 0, 3)
        world.check_books()


async def test_pool_that_serves_other_nodes_now(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(R1, LAN, a_node("n1"), a_node("n2", labels={"rack": "r2"}), web(2))
        await trio.sleep(2)
        await set_pool(world, "p1", **{"beeyard.nodes": "node.labels.rack==r2"})
        await world.scale(4)
        await trio.sleep(2)
        assert sorted(task.node_id for task in world.running()) == ["n1", "n2", "n2", "n2"]


async def shrunk(world: ManagerWorld) -> None:
    await set_pool(world, "p1", an_ipam(SUBNET, "10.1.0.12/30"))


async def removed(world: ManagerWorld) -> None:
    await create_network(world.store, msgspec.structs.replace(R2, ipam=(an_ipam(SUBNET, "10.1.0.12/30"),)))
    await remove_network(world.store, "p1")


@pytest.mark.parametrize("change", [shrunk, removed])
async def test_plan_on_a_changed_pool_is_made_anew(
    autojump_clock: object, change: Callable[[ManagerWorld], Awaitable[None]]
) -> None:
    """It had its address and waited for another hook: what is stored is an address of the pool as it is now."""
    slow = Scripted("slow", Window(Stage.SCHEDULED, Stage.ASSIGNED), takes_s=5.0)
    async with manager_world(hooks=[slow.hook]) as world:
        await world.add(R1, LAN, a_node("n1"), web(1))
        await trio.sleep(2)
        assert world.ledger.grants()
        await change(world)
        await trio.sleep(20)
        assert len(world.running()) == 1
        (address,) = world.addresses()
        assert address in ("10.1.0.12/24", "10.1.0.13/24")
        assert len(slow.began) == 2
        world.check_books_of([*world.ledger.grants(), *slow.held])


async def test_pools_with_one_range_give_each_address_once(autojump_clock: object) -> None:
    """The scheduler counts their addresses twice; the book refuses the node for those that are not there, and they wait."""
    same = msgspec.structs.replace(R1, id="p2", name="lan-2")
    async with manager_world() as world:
        await world.add(R1, same, LAN, a_node("n1"), web(6))
        await trio.sleep(10)
        assert len(world.running()) == len(set(world.addresses())) == 4
        waiting = [task.status.err for task in world.tasks(live=True) if not task.node_id]
        assert len(waiting) == 2
        assert all("no address left in pool lan-" in err for err in waiting)
        await set_pool(world, "p2", an_ipam(SUBNET, "10.1.0.16/30"))
        await trio.sleep(60)
        assert len(world.running()) == len(set(world.addresses())) == 6
        world.check_books()
