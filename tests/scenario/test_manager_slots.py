"""Addresses and MAC addresses that belong to slots: kept, given on, waited for."""

from __future__ import annotations

import msgspec
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import AddressConflict, Service, ServiceSpec, Task, TaskStatus, UpdateConfig
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.control.service import update_service
from tests.support.builders import a_config_network, a_network, a_network_from, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState
LAN = a_network("lan", name="lan", ipam=[an_ipam("10.1.0.0/24", "10.1.0.8/29", "10.1.0.1")])


def pinned(addresses: str, replicas: int = 2, **update: int) -> Service:
    labels = {"beeyard.addresses": addresses, "beeyard.on-isolation": "fence"}
    config = UpdateConfig(**update) if update else None
    return a_service(name="db", replicas=replicas, task=a_task_spec(network_ids=["lan"]), labels=labels, update=config)


def web(replicas: int) -> Service:
    return a_service("s2", name="web", replicas=replicas, task=a_task_spec(network_ids=["lan"]))


def grant_of(task: Task) -> AddressGrant:
    (grant,) = task.grants
    assert isinstance(grant, AddressGrant)
    return grant


def places(world: ManagerWorld, service_id: str = "s1") -> dict[int, str]:
    """The address of each slot that runs."""
    return {task.slot: grant_of(task).addresses[0] for task in world.running(service_id)}


async def change(world: ManagerWorld, **fields: object) -> None:
    """What `docker service update` does; `addresses` is the label."""
    service = world.store.services["s1"]
    addresses = fields.pop("addresses", None)
    spec: ServiceSpec = msgspec.structs.replace(service.spec, **fields)
    if addresses is not None:
        spec = msgspec.structs.replace(spec, labels={**spec.labels, "beeyard.addresses": str(addresses)})
    await update_service(world.store, "s1", service.version, spec)


async def test_each_slot_has_its_address_and_nobody_else_gets_one(autojump_clock: object) -> None:
    """Also outside the range; three of the range's eight are pinned, so others get five, until the service is gone."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), a_node("n2"))
        await world.add(pinned("10.1.0.200,10.1.0.9-10.1.0.11", 2), web(8))
        await trio.sleep(2)
        assert places(world) == {1: "10.1.0.200/24", 2: "10.1.0.9/24"}
        assert len(places(world, "s2")) == 5
        assert not {"10.1.0.10/24", "10.1.0.11/24"} & set(places(world, "s2").values())
        await change(world, replicas=3)
        await trio.sleep(2)
        assert places(world)[3] == "10.1.0.10/24"
        await change(world, replicas=1)
        await trio.sleep(2)
        assert list(places(world)) == [1], "the last slots go first, wherever they run"
        world.check_books()
        await world.remove_service()
        await trio.sleep(40)
        assert len(places(world, "s2")) == 8
        world.check_books()


async def test_slot_keeps_its_address_over_its_tasks(autojump_clock: object) -> None:
    """A task that fails is replaced with the same address, without a rest."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), a_node("n2"), pinned("10.1.0.9-10.1.0.10"))
        await trio.sleep(2)
        (first, _) = world.running()
        await world.report(first.id, S.FAILED)
        await trio.sleep(7)
        assert places(world) == {1: "10.1.0.9/24", 2: "10.1.0.10/24"}
        assert world.running()[0].id != first.id
        world.check_books()


async def test_slot_waits_for_an_address_that_another_task_has(autojump_clock: object) -> None:
    """It says who has it, and starts as soon as it was given back and has rested, not some time later."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), web(2))
        await trio.sleep(2)
        taken = {address.partition("/")[0]: slot for slot, address in places(world, "s2").items()}
        await world.add(pinned(f"10.1.0.12,{next(iter(taken))}"))
        await trio.sleep(2)
        assert list(places(world)) == [1]
        (waiting,) = [task for task in world.tasks(live=True) if task.slot == 2]
        (holder,) = [task for task in world.running("s2") if task.slot == taken[next(iter(taken))]]
        assert waiting.status.err == (
            f"waits for address {next(iter(taken))}: task web.{holder.slot} ({holder.id}) on node n1 still has it"
        )
        index = world.store.index
        await trio.sleep(100)
        assert world.store.index == index, "waiting costs no writes"
        await world.remove_service("s2")
        await trio.sleep(29)
        assert list(places(world)) == [1]
        await trio.sleep(2)
        assert places(world)[2] == f"{next(iter(taken))}/24"
        assert world.running()[1].status.err == ""
        world.check_books()


async def test_an_address_that_another_service_had_rests_before_a_slot_has_it_by_name(autojump_clock: object) -> None:
    """It was nobody's by name when it was given back. The slot says that it rests, and starts as soon as it has."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), web(1))
        await trio.sleep(2)
        (text,) = places(world, "s2").values()
        address = text.partition("/")[0]
        await world.remove_service("s2")
        await trio.sleep(1)
        ended_s = trio.current_time()
        await world.add(pinned(address, 1))
        await trio.sleep(20)
        (waiting,) = world.tasks(live=True)
        assert waiting.status.err == (
            f"waits for address {address}, which rests: a task had it a moment ago, or a stranger has it"
        )
        while not world.running():
            assert trio.current_time() < ended_s + 31.0
            await trio.sleep(0.1)
        assert trio.current_time() > ended_s + 28.0
        assert places(world) == {1: text}
        world.check_books()


async def test_failover_waits_until_the_old_holder_cannot_be_on_the_lan(autojump_clock: object) -> None:
    """The node is lost: the new task says for what it waits, and gets the address when the lease there has ended."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), a_node("n2"), pinned("10.1.0.9", 1))
        await trio.sleep(2)
        (old,) = world.running()
        other = "n2" if old.node_id == "n1" else "n1"
        lost_s = trio.current_time()
        for node_id in ("n1", "n2"):
            world.contact_s[node_id] = lost_s
        await world.set_node(old.node_id, NodeState.DOWN)
        await trio.sleep(20)
        assert world.running() == []
        (new,) = [task for task in world.tasks(live=True) if task.id != old.id]
        assert new.status.err == (
            f"waits for address 10.1.0.9: task db.1 ({old.id}) on node {old.node_id} still has it, "
            "which is down: it is free when the node comes back or that task's lease has ended"
        )
        await trio.sleep(90)
        (running,) = [task for task in world.running() if task.id != old.id]
        assert (running.node_id, running.slot, grant_of(running).addresses) == (other, 1, ("10.1.0.9/24",))
        assert world.store.tasks[old.id].status.state == S.ORPHANED
        world.check_books()


async def test_task_goes_where_a_pool_has_its_address(autojump_clock: object) -> None:
    """Slots of one service are placed apart; one whose rack is not there says so."""
    pools = [
        a_config_network(
            f"p{n}", f"lan-{n}", config="c", nodes=f"node.labels.rack=={n}", ipam=[an_ipam(f"10.{n}.0.0/24")]
        )
        for n in (1, 2, 3)
    ]
    async with manager_world() as world:
        await world.add(*pools, a_network_from("c", "lan"))
        await world.add(*(a_node(f"n{n}", labels={"rack": str(n)}) for n in (1, 2)))
        await world.add(pinned("10.2.0.7,10.1.0.7,10.2.0.8,10.3.0.7", 4))
        await trio.sleep(2)
        assert {task.slot: task.node_id for task in world.running()} == {1: "n2", 2: "n1", 3: "n2"}
        (waiting,) = [task for task in world.tasks(live=True) if task.slot == 4]
        assert waiting.status.err == (
            "no suitable node (no pool with address 10.3.0.7 in network lan for this node on 2 nodes)"
        )
        await world.add(a_node("n3", labels={"rack": "3"}))
        await trio.sleep(1)
        assert places(world)[4] == "10.3.0.7/24"
        world.check_books()


async def test_pinned_address_of_both_families(autojump_clock: object) -> None:
    """A family without a pin gets the next free address."""
    both = a_network("lan", ipam=[an_ipam("10.1.0.0/24"), an_ipam("fd00::/64")])
    async with manager_world() as world:
        await world.add(both, a_node("n1"), pinned("10.1.0.9,fd00::9", 1))
        await world.add(msgspec.structs.replace(pinned("10.1.0.8", 1), id="s2", spec=named("other", "10.1.0.8")))
        await trio.sleep(2)
        assert grant_of(world.running()[0]).addresses == ("10.1.0.9/24", "fd00::9/64")
        assert grant_of(world.running("s2")[0]).addresses == ("10.1.0.8/24", "fd00::1/64")
        world.check_books()


def named(name: str, addresses: str) -> ServiceSpec:
    return msgspec.structs.replace(pinned(addresses, 1).spec, name=name)


async def test_changed_label_is_rolled_out(autojump_clock: object) -> None:
    """Slot by slot; addresses that two slots exchange are given up together, for else each would wait for the other."""
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), pinned("10.1.0.9-10.1.0.10", monitor_s=1.0))
        await trio.sleep(2)
        await change(world, addresses="10.1.0.9,10.1.0.12")
        await trio.sleep(20)
        assert places(world) == {1: "10.1.0.9/24", 2: "10.1.0.12/24"}
        assert len(world.tasks()) == 3, "the slot whose address is the same keeps its task"
        await change(world, addresses="10.1.0.12,10.1.0.9")
        await trio.sleep(20)
        assert places(world) == {1: "10.1.0.12/24", 2: "10.1.0.9/24"}
        status = world.store.services["s1"].update_status
        assert status is not None
        assert status.state == "completed"
        world.check_books()


async def test_service_that_is_pinned_later_keeps_the_first_slots_only(autojump_clock: object) -> None:
    async with manager_world() as world:
        plain = a_service(name="db", replicas=4, task=a_task_spec(network_ids=["lan"]))
        await world.add(LAN, a_node("n1"), plain)
        await trio.sleep(2)
        await world.report(world.running()[0].id, S.FAILED)
        await change(world, replicas=2)
        await trio.sleep(10)
        assert max(task.slot for task in world.running()) > 2
        await change(world, labels=pinned("10.1.0.13-10.1.0.14").spec.labels)
        await trio.sleep(60)
        assert places(world) == {1: "10.1.0.13/24", 2: "10.1.0.14/24"}
        world.check_books()


async def test_restarted_manager_keeps_pins_and_what_waits_for_them(autojump_clock: object) -> None:
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(LAN, a_node("n1"), a_node("n2"), pinned("10.1.0.9", 1))
        await trio.sleep(2)
        (old,) = world.running()
        await world.set_node(old.node_id, NodeState.DOWN)
        await trio.sleep(2)
    async with manager_world(database, script=lambda task: None) as world:
        await world.add(web(8))
        await trio.sleep(3)
        assert "10.1.0.9/24" not in [
            grant_of(task).addresses[0] for task in world.tasks(service_id="s2") if task.grants
        ]
        (new,) = [task for task in world.tasks(live=True) if task.id != old.id]
        assert (new.status.state, "waits for address 10.1.0.9" in new.status.err) == (S.PENDING, True)
        world.check_books()


async def test_address_that_a_node_takes_for_itself_is_waited_for(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"))
        node = world.store.nodes["n1"]
        link = msgspec.structs.replace(node.description.links[0], addresses=("10.1.0.9/24",))
        described = msgspec.structs.replace(node.description, links=(link,))
        await world.store.commit(lambda tx: tx.update(msgspec.structs.replace(node, description=described)))
        await world.add(pinned("10.1.0.9", 1))
        await trio.sleep(2)
        (task,) = world.tasks()
        assert task.status.err == "waits for address 10.1.0.9, which a node has itself"
        node = world.store.nodes["n1"]
        bare = msgspec.structs.replace(node.description, links=(msgspec.structs.replace(link, addresses=()),))
        await world.store.commit(lambda tx: tx.update(msgspec.structs.replace(node, description=bare)))
        await trio.sleep(0.5)
        assert places(world) == {1: "10.1.0.9/24"}


async def test_mac_address_of_a_slot_stays(autojump_clock: object) -> None:
    """Over tasks and nodes; others differ, by slot and by network; a slot waits while its MAC address may be on the LAN."""
    async with manager_world() as world:
        labels = {"beeyard.mac": "per-slot"}
        spec = a_task_spec(network_ids=["lan", "wan"])
        await world.add(LAN, a_network("wan", name="wan", ipam=[an_ipam("10.2.0.0/24")]), a_node("n1"), a_node("n2"))
        await world.add(a_service(replicas=2, task=spec, labels=labels))
        await trio.sleep(2)
        before = {t.slot: [g.mac for g in t.grants if isinstance(g, AddressGrant)] for t in world.running()}
        macs = [mac for pair in before.values() for mac in pair]
        assert len(set(macs)) == 4
        assert all(int(mac[:2], 16) & 3 == 2 for mac in macs), "locally administered, unicast"
        (first, second) = world.running()
        assert first.node_id != second.node_id
        await world.set_node(first.node_id, NodeState.DOWN)
        await trio.sleep(3)
        (waiting,) = [t for t in world.tasks(live=True) if t.slot == 1 and t.id != first.id]
        assert f"waits for MAC address {before[1][0]}: task web.1 ({first.id}) on node" in waiting.status.err
        await world.report(first.id, S.SHUTDOWN)
        await trio.sleep(7)
        running = {t.slot: t for t in world.running()}
        assert running[1].node_id == second.node_id
        assert [g.mac for g in running[1].grants if isinstance(g, AddressGrant)] == before[1]
        world.check_books()


async def test_slot_waits_for_an_address_that_a_stranger_has(autojump_clock: object) -> None:
    """It gets no other one: it says who has it, and tries again when the address is put aside no longer."""
    taken = AddressConflict(address="10.1.0.9", mac="02:00:00:00:00:99")
    async with manager_world() as world:
        await world.add(LAN, a_node("n1"), pinned("10.1.0.9", 1))
        await trio.sleep(2)
        (first,) = world.running()
        status = TaskStatus(state=S.REJECTED, conflicts=(taken,), err="taken")
        await world.store.commit(lambda tx: tx.update(msgspec.structs.replace(tx.find(Task, first.id), status=status)))
        await trio.sleep(20)
        (waiting,) = world.tasks(live=True)
        assert waiting.status.err == (
            "waits for address 10.1.0.9, which 02:00:00:00:00:99 outside the cluster has and which is put aside"
        )
        await trio.sleep(3600)
        assert places(world) == {1: "10.1.0.9/24"}
        world.check_books()
