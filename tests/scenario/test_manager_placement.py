"""From a service to assigned tasks with addresses: pools, waiting, releasing, removing."""

from __future__ import annotations

import msgspec
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.mac_address import mac_address
from beeyard.core.model import Network, Node
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.manager.control.network import remove_network
from beeyard.manager.store import Transaction
from tests.support.builders import (
    a_config_network,
    a_network_from,
    a_node,
    a_service,
    a_task_spec,
    an_ipam,
)
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState


def racks(n_addresses_prefix: int = 30) -> list[Network]:
    """Pool lan-r1 for rack r1, lan-r2 for rack r2, of four addresses each, and the network that draws from them."""
    return [
        a_config_network(
            f"pool-{rack}",
            f"lan-{rack}",
            config="racks",
            nodes=f"node.labels.rack=={rack}",
            ipam=[an_ipam(ip_range=f"10.77.0.{begin}/{n_addresses_prefix}", gateway="10.77.0.1")],
        )
        for rack, begin in (("r1", 64), ("r2", 128))
    ] + [a_network_from("racks", "lan")]


async def a_yard(world: ManagerWorld) -> None:
    """Three nodes in two racks."""
    await world.add(*racks(), *(a_node(f"n{i}", labels={"rack": "r1" if i < 3 else "r2"}) for i in (1, 2, 3)))


def web(replicas: int, service_id: str = "s1", name: str = "web"):  # type: ignore[no-untyped-def]
    return a_service(service_id, name=name, replicas=replicas, task=a_task_spec(network_ids=["lan"]))


async def test_tasks_get_an_address_of_their_nodes_rack(autojump_clock: object) -> None:
    """Every task runs on a node with one address of the pool that serves this node, none twice."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(6))
        await trio.sleep(1)
        tasks = world.running()
        assert [t.slot for t in tasks] == [1, 2, 3, 4, 5, 6]
        for task in tasks:
            (grant,) = task.grants
            assert isinstance(grant, AddressGrant)
            assert grant.pool_name == ("lan-r2" if task.node_id == "n3" else "lan-r1")
            assert grant.gateways == ("10.77.0.1",)
            assert grant.mac == mac_address(grant.segment, grant.addresses[0])
            assert (grant.network_id, grant.network_name, grant.parent) == ("lan", "lan", "eth0")
        assert sorted(t.node_id for t in tasks) == ["n1", "n1", "n2", "n2", "n3", "n3"]
        world.check_books()


async def test_full_pools_leave_the_rest_waiting_with_the_reason(autojump_clock: object) -> None:
    """Eight addresses, twelve replicas: eight run, four say which pools are empty; others schedule; then all goes back."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(12))
        await trio.sleep(2)
        assert len(world.running()) == 8
        waiting = [t for t in world.tasks(live=True) if t.status.state == S.PENDING]
        assert len(waiting) == 4
        assert {t.status.err for t in waiting} == {
            "no suitable node (no address left in pool lan-r1 on 2 nodes; no address left in pool lan-r2 on 1 node)"
        }
        index = world.store.index
        await trio.sleep(100)
        assert world.store.index == index, "waiting costs no writes"

        await world.add(a_service("s2", name="plain", replicas=3))
        await trio.sleep(1)
        assert len(world.running("s2")) == 3

        await world.scale(2)
        await trio.sleep(5)
        assert len(world.running()) == 2
        world.check_books()
        usage = world.ledger.usage("pool-r1")
        assert usage is not None
        assert usage.used + usage.cooling == 4
        await trio.sleep(31)
        free = [u.free for pool in ("pool-r1", "pool-r2") if (u := world.ledger.usage(pool)) is not None]
        assert sum(free) == 6
        assert len(world.tasks()) == 2, "tasks that were scaled away are gone once their addresses have rested"


async def test_waiting_task_gets_the_address_that_has_rested(autojump_clock: object) -> None:
    """A freed address rests 30 s; then, without anything else happening, the task that waits for it is placed."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(8), web(1, "s2", "late"))
        await trio.sleep(2)
        assert len(world.running()) + len(world.running("s2")) == 8
        late = "s2" if not world.running("s2") else "s1"
        full = "s1" if late == "s2" else "s2"
        await world.scale(7 if full == "s1" else 0, full)
        if late == "s1":
            await world.scale(8, "s1")
        ended_s = trio.current_time()
        await trio.sleep(25)
        assert len(world.running()) + len(world.running("s2")) == 7
        await trio.sleep(8)
        assert len(world.running(late)) == (1 if late == "s2" else 8), trio.current_time() - ended_s
        world.check_books()


async def test_new_pool_lets_waiting_tasks_in(autojump_clock: object) -> None:
    """A config-only network that is made later, with the network's label, serves the tasks that wait."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(12))
        await trio.sleep(2)
        assert len(world.running()) == 8
        more = a_config_network("pool-z", "lan-z", config="racks", ipam=[an_ipam(ip_range="10.77.0.192/26")])
        await world.add(more)
        await trio.sleep(2)
        assert len(world.running()) == 12
        assert all(t.status.err == "" for t in world.running())
        world.check_books()


async def test_no_node_then_one(autojump_clock: object) -> None:
    """Without nodes tasks wait and say so; the first node gets them all."""
    async with manager_world() as world:
        await world.add(a_service(replicas=3))
        await trio.sleep(1)
        assert {(t.status.state, t.status.err) for t in world.tasks()} == {(S.PENDING, "no suitable node")}
        await world.add(a_node("n1"))
        await trio.sleep(1)
        assert len(world.running()) == 3


async def test_removed_service_leaves_nothing(autojump_clock: object) -> None:
    """A removed service's tasks are stopped, then deleted; those never assigned at once. Its addresses come back."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(12))
        await trio.sleep(2)
        world.script = lambda task: None
        await world.remove_service()
        await trio.sleep(2)
        assert {(t.desired_state, t.status.state) for t in world.tasks()} == {(S.REMOVE, S.RUNNING)}
        world.check_books()
        for task in world.tasks():
            await world.report(task.id, S.SHUTDOWN)
        await trio.sleep(1)
        assert world.ledger.grants() == []
        assert len(world.tasks()) == 8, "kept as the record of resting addresses"
        await trio.sleep(32)
        assert world.tasks() == []


async def test_address_of_a_node_is_never_handed_out(autojump_clock: object) -> None:
    """An address that a node reports as its own is left out, also when it is reported later."""
    from tests.support.builders import a_link

    async with manager_world() as world:
        links = [a_link("eth0", "10.77.0.65/24", "10.77.0.66/24")]
        await world.add(*racks(), a_node("n1", labels={"rack": "r1"}, links=links))
        await world.add(web(4))
        await trio.sleep(2)
        assert sorted(world.addresses()) == ["10.77.0.64/24", "10.77.0.67/24"]


async def test_pool_of_a_down_node_keeps_its_addresses(autojump_clock: object) -> None:
    """When a node goes down its tasks are replaced elsewhere, and their addresses stay taken until their end is known."""
    async with manager_world() as world:
        await a_yard(world)
        await world.add(web(3))
        await trio.sleep(1)
        old = [t for t in world.running() if t.node_id == "n3"]
        assert len(old) == 1
        await world.set_node("n3", state=NodeState.DOWN)
        await trio.sleep(10)
        running = [t for t in world.running() if t.node_id != "n3"]
        assert len(running) == 3
        assert old[0].grants[0].id in world.ledger.grants()
        world.check_books()
        await world.set_node("n3", state=NodeState.READY)
        await trio.sleep(1)
        assert world.store.tasks[old[0].id].status.state == S.SHUTDOWN
        assert old[0].grants[0].id not in world.ledger.grants()


async def test_many_waiting_tasks_do_not_repeat_themselves(autojump_clock: object) -> None:
    """A node that changes every second changes the reason of 300 waiting tasks: they tell it every ten seconds at most."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(a_node("n1"), a_node("n2"), a_node("n3"))
        await world.add(a_service(replicas=300, task=a_task_spec(memory_bytes=10**15)))
        await trio.sleep(5)
        n_told = sum(database.n_batches)
        for i in range(60):
            await world.set_node("n3", availability=(Availability.PAUSE, Availability.ACTIVE)[i % 2])
            await trio.sleep(1)
        assert sum(database.n_batches) - n_told <= 60 + 6 * 300
        await world.set_node("n3", state=NodeState.DOWN)
        await trio.sleep(11)
        assert {t.status.err for t in world.tasks()} == {
            "no suitable node (insufficient resources on 2 nodes; 1 node not available for new tasks)"
        }
        n_told = sum(database.n_batches)
        await trio.sleep(100)
        assert sum(database.n_batches) == n_told


async def test_new_task_of_a_waiting_group_says_why_at_once(autojump_clock: object) -> None:
    """Scaling a service that waits up: the new tasks tell the present reason without delay."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(replicas=2, task=a_task_spec(memory_bytes=10**15)))
        await trio.sleep(1)
        await world.add(a_node("n2"))
        await world.scale(4)
        await trio.sleep(1)
        assert [t.status.err for t in world.tasks()][2:] == ["no suitable node (insufficient resources on 2 nodes)"] * 2


async def test_waiting_tasks_are_placed_when_room_is_made(autojump_clock: object) -> None:
    """Room for one of three waiting tasks, again and again: one more is placed each time, the others go on waiting."""
    async with manager_world() as world:
        await world.add(a_node("n1", memory_bytes=1000), a_service(replicas=4, task=a_task_spec(memory_bytes=1000)))
        for n in (1, 2, 3):
            await trio.sleep(1)
            assert len(world.running()) == n
            waiting = [t for t in world.tasks() if t.status.state == S.PENDING]
            assert len({t.status.err for t in waiting}) == 1
            assert waiting[0].status.err.startswith("no suitable node (insufficient resources on ")
            await world.add(a_node(f"n{n + 1}", memory_bytes=1000))
        await trio.sleep(1)
        assert len(world.running()) == 4


async def test_networks_come_and_go_while_tasks_wait(autojump_clock: object) -> None:
    """A pool removed takes the waiting tasks' last chance away, one made lets them in; each time they are looked at anew."""
    async with manager_world() as world:
        await a_yard(world)
        await world.set_node("n3", availability=Availability.DRAIN)
        await world.add(web(6))
        await trio.sleep(1)
        assert len(world.running()) == 4
        assert {t.status.err for t in world.tasks() if t.status.err} == {
            "no suitable node (no address left in pool lan-r1 on 2 nodes; 1 node not available for new tasks)"
        }
        await remove_network(world.store, "pool-r2")
        await world.set_node("n3", availability=Availability.ACTIVE)
        await trio.sleep(11)
        assert {t.status.err for t in world.tasks() if t.status.err} == {
            "no suitable node (no address left in pool lan-r1 on 2 nodes; network lan has no pool for this node on 1 node)"
        }
        again = a_config_network(
            "pool-r2b",
            "lan-r2",
            config="racks",
            nodes="node.labels.rack==r2",
            ipam=[an_ipam(ip_range="10.77.0.128/30")],
        )
        await world.add(again)
        await trio.sleep(1)
        assert [t.node_id for t in world.running()].count("n3") == 2
        assert len(world.running()) == 6
        world.check_books()


async def test_node_moves_to_another_rack(autojump_clock: object) -> None:
    """A node whose label changes keeps its tasks with their addresses; new ones get an address of its new rack."""
    async with manager_world() as world:
        await world.add(*racks(), a_node("n1", labels={"rack": "r1"}), web(2))
        await trio.sleep(1)
        before = world.running()

        def move(tx: Transaction) -> None:
            node = tx.find(Node, "n1")
            tx.update(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, labels={"rack": "r2"})))

        await world.store.commit(move)
        await trio.sleep(1)
        assert world.tasks() == before
        await world.scale(4)
        await trio.sleep(1)
        grants = [g for t in world.running() for g in t.grants if isinstance(g, AddressGrant)]
        assert [g.pool_name for g in grants] == ["lan-r1", "lan-r1", "lan-r2", "lan-r2"]
        await world.report(before[0].id, S.FAILED)
        await trio.sleep(6)
        grants = [g for t in world.running() for g in t.grants if isinstance(g, AddressGrant)]
        assert [g.pool_name for g in grants] == ["lan-r2", "lan-r1", "lan-r2", "lan-r2"]
        world.check_books()
