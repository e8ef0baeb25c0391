"""Hooks by their windows: before, beside and after scheduling; refusals, deadlines and cancellation leave nothing held."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio

from beeyard.core.grant import AnyGrant
from beeyard.core.model import Node, Service, Task
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.manager.control.network import remove_network
from beeyard.manager.control.node import remove_node
from beeyard.manager.hooks import Stage, Window
from beeyard.manager.store import Transaction
from tests.support.builders import a_config_network, a_network_from, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.scripted_hook import Scripted

S = TaskState


BESIDE = Window(Stage.NEW, Stage.ASSIGNED)
BEFORE = Window(Stage.NEW, Stage.PENDING)
AFTER = Window(Stage.SCHEDULED, Stage.ASSIGNED)


async def test_hook_runs_beside_scheduling(autojump_clock: object) -> None:
    """While a (NEW, ASSIGNED) hook works for 10 s the task is scheduled and gets its address; then it is assigned."""
    beside = Scripted("volume", BESIDE, takes_s=10)
    async with manager_world(hooks=[beside.hook]) as world:
        await world.add(
            a_config_network("pool", "lan-r1", config="racks", ipam=[an_ipam()]), a_network_from("racks", "lan")
        )
        await world.add(a_node("n1"))
        await trio.sleep(1)
        await world.add(a_service(task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(0.5)
        (task,) = world.tasks()
        assert beside.began == [(task.id, "", 1.0)]
        assert task.status.state == S.PENDING, "it left NEW without waiting for the hook"
        assert world.lifecycle.waiting_for(task.id) == "planned on node n1, waiting for hook volume"
        assert len(world.ledger.grants()) == 1, "the address hook has run meanwhile"
        await trio.sleep(3)
        (task,) = world.tasks()
        assert task.status.message == "planned on node n1, waiting for hook volume"
        await trio.sleep(7)
        (task,) = world.tasks()
        assert task.status.state == S.RUNNING
        assert [g.hook for g in task.grants] == ["volume", "address"]
        world.check_books_of([*world.ledger.grants(), *beside.held])


async def test_hook_before_scheduling_holds_the_task_in_new(autojump_clock: object) -> None:
    """A (NEW, PENDING) hook ends before the task is PENDING, and its grant is stored then."""
    before = Scripted("port", BEFORE, takes_s=5)
    async with manager_world(hooks=[before.hook]) as world:
        await world.add(a_service())
        await trio.sleep(4)
        assert world.tasks()[0].status.state == S.NEW
        await trio.sleep(2)
        (task,) = world.tasks()
        assert (task.status.state, [g.id for g in task.grants]) == (S.PENDING, ["port-1"])
        await world.add(a_node("n1"))
        await trio.sleep(1)
        assert [g.id for g in world.running()[0].grants] == ["port-1"]
        await world.scale(0)
        await trio.sleep(1)
        assert before.held == []


async def test_windows_alone_decide_the_order(autojump_clock: object) -> None:
    """Two node-bound hooks of 3 s run at once, after one before scheduling of 2 s, beside one of 4 s."""
    hooks = [
        Scripted("a", AFTER, takes_s=3),
        Scripted("b", AFTER, takes_s=3),
        Scripted("c", BEFORE, takes_s=2),
        Scripted("d", BESIDE, takes_s=4),
    ]
    async with manager_world(hooks=[h.hook for h in hooks]) as world:
        await trio.sleep(1)
        await world.add(a_node("n1"), a_service())
        await trio.sleep(4.9)
        assert not world.running()
        await trio.sleep(0.3)
        assert len(world.running()) == 1
        assert [(h.hook.name, h.began[0][2]) for h in hooks] == [("a", 3.0), ("b", 3.0), ("c", 1.0), ("d", 1.0)]


async def test_refused_node_is_masked(autojump_clock: object) -> None:
    """A node that a hook refuses is left out, the task goes elsewhere, and its room there is free again."""
    after = Scripted("remote", AFTER)
    after.refused_nodes = ["n1"]
    async with manager_world(hooks=[after.hook]) as world:
        await world.add(a_node("n1"), a_node("n2"), a_service(replicas=4))
        await trio.sleep(2)
        assert [t.node_id for t in world.running()] == ["n2"] * 4
        assert len(after.held) == 4


async def test_refused_three_times_waits_with_the_reason(autojump_clock: object) -> None:
    """After three refusals in a row the task waits 30 s and says why; then it is tried again."""
    after = Scripted("remote", AFTER)
    after.refused_nodes = [f"n{i}" for i in range(1, 6)]
    async with manager_world(hooks=[after.hook]) as world:
        await world.add(*(a_node(f"n{i}") for i in range(1, 6)), a_service())
        await trio.sleep(5)
        assert len(after.began) == 3
        (task,) = world.tasks()
        assert task.status.state == S.PENDING
        assert task.status.err.startswith("remote: not on n")
        await trio.sleep(20)
        assert len(after.began) == 3
        after.refused_nodes = []
        await trio.sleep(10)
        assert len(world.running()) == 1


async def test_refused_everywhere_rests(autojump_clock: object) -> None:
    """A hook that refuses the task itself is asked again after 30 s, not in a loop."""
    before = Scripted("port", BEFORE)
    before.refused_everywhere = True
    async with manager_world(hooks=[before.hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(25)
        assert len(before.began) == 1
        assert world.tasks()[0].status.err == "port: closed"
        before.refused_everywhere = False
        await trio.sleep(10)
        assert len(world.running()) == 1


async def test_deadline_gives_the_room_back(autojump_clock: object) -> None:
    """A hook that does not finish in time is cancelled; what was held for the task, room and address, is free again."""
    slow = Scripted("remote", AFTER, takes_s=100, deadline_s=20)
    async with manager_world(hooks=[slow.hook]) as world:
        await world.add(
            a_config_network("pool", "lan-r1", config="racks", ipam=[an_ipam(ip_range="10.77.0.64/32")]),
            a_network_from("racks", "lan"),
            a_node("n1", memory_bytes=1000),
            a_service(task=a_task_spec(network_ids=["lan"], memory_bytes=1000)),
        )
        await trio.sleep(19)
        assert len(world.ledger.grants()) == 1
        await trio.sleep(2)
        assert world.ledger.grants() == []
        usage = world.ledger.usage("pool")
        assert usage is not None
        assert usage.free == 1, "an address that nobody used needs no rest"
        assert slow.held == []
        slow.takes_s = 1
        await trio.sleep(40)
        assert len(world.running()) == 1
        world.check_books_of([*world.ledger.grants(), *slow.held])


async def test_slow_hook_holds_up_nobody_else(autojump_clock: object) -> None:
    """While one service's plans wait for a hook, another service is placed at once."""
    slow = Scripted("remote", AFTER, takes_s=50)
    hook = dataclasses.replace(slow.hook, applies=lambda task: task.service_name == "slow")
    async with manager_world(hooks=[hook]) as world:
        await world.add(a_node("n1"), a_service("s1", name="slow", replicas=5), a_service("s2", name="quick"))
        await trio.sleep(1)
        assert len(world.running("s2")) == 1
        assert not world.running("s1")


async def test_unwanted_plan_ends_without_a_trace(autojump_clock: object) -> None:
    """A service removed while its plans wait for hooks: the hooks are cancelled, nothing stays held, nothing is assigned."""
    slow = Scripted("remote", AFTER, takes_s=50)
    beside = Scripted("volume", BESIDE)
    async with manager_world(hooks=[slow.hook, beside.hook]) as world:
        await world.add(a_node("n1", memory_bytes=1000), a_service(task=a_task_spec(memory_bytes=1000)))
        await trio.sleep(5)
        assert beside.held == ["volume-1"]
        await world.remove_service()
        await trio.sleep(2)
        assert (slow.held, beside.held, world.tasks()) == ([], [], [])
        slow.takes_s = 0
        await world.add(a_service("s2", name="next", task=a_task_spec(memory_bytes=1000)))
        await trio.sleep(1)
        assert len(world.running("s2")) == 1, "its room is free again"


async def test_unwanted_task_ends_its_hooks_before_scheduling(autojump_clock: object) -> None:
    """A service removed while its task is held in NEW by a slow hook: the hook is cancelled and the task deleted at once."""
    slow = Scripted("port", BEFORE, takes_s=50)
    ended: list[float] = []

    async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        try:
            return await slow.hook.reserve(task, node)
        finally:
            ended.append(trio.current_time())

    hook = dataclasses.replace(slow.hook, reserve=reserve)
    async with manager_world(hooks=[hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(5)
        await world.remove_service()
        await trio.sleep(2)
        assert world.tasks() == []
        assert len(ended) == 1
        assert slow.held == []


async def down(world: ManagerWorld) -> None:
    await world.set_node("n1", state=NodeState.DOWN)


async def out_of_touch(world: ManagerWorld) -> None:
    await world.set_node("n1", state=NodeState.DISCONNECTED)


async def drained(world: ManagerWorld) -> None:
    await world.set_node("n1", availability=Availability.DRAIN)


async def paused(world: ManagerWorld) -> None:
    await world.set_node("n1", availability=Availability.PAUSE)


async def removed(world: ManagerWorld) -> None:
    await remove_node(world.store, "n1", force=True)


async def in_another_rack(world: ManagerWorld) -> None:
    def build(tx: Transaction) -> None:
        node = tx.find(Node, "n1")
        tx.update(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, labels={"rack": "r3"})))

    await world.store.commit(build)


async def without_pool(world: ManagerWorld) -> None:
    await remove_network(world.store, "pool-1")


@pytest.mark.parametrize("change", [down, out_of_touch, drained, paused, removed, in_another_rack, without_pool])
async def test_plan_ends_with_what_it_was_made_on(
    autojump_clock: object, change: Callable[[ManagerWorld], Awaitable[None]]
) -> None:
    """While a slow hook runs its node is lost: it is cancelled there and then, its grants go back, and it is planned anew."""
    slow = Scripted("remote", AFTER, takes_s=50)
    quick = Scripted("quick", AFTER)
    beside = Scripted("volume", BESIDE, takes_s=1)
    async with manager_world(hooks=[slow.hook, quick.hook, beside.hook]) as world:
        await world.add(
            a_network_from("racks", "lan"),
            *(
                a_config_network(
                    f"pool-{rack}",
                    f"lan-{rack}",
                    config="racks",
                    nodes=f"node.labels.rack==r{rack}",
                    ipam=[an_ipam(ip_range=f"10.77.0.{64 * rack}/30")],
                )
                for rack in (1, 2)
            ),
            a_node("n1", labels={"rack": "r1"}, memory_bytes=1000),
            a_service(task=a_task_spec(network_ids=["lan"], memory_bytes=1000)),
        )
        await trio.sleep(2)
        await world.add(a_node("n2", labels={"rack": "r2"}, memory_bytes=1000))
        await trio.sleep(8)
        (task,) = world.tasks()
        assert world.lifecycle.waiting_for(task.id) == "planned on node n1, waiting for hook remote"
        assert (quick.held, len(world.ledger.grants())) == (["quick-1"], 1)

        await change(world)
        await trio.sleep(0.2)
        assert slow.cancelled_s == [10.0]
        assert world.lifecycle.waiting_for(task.id) == "planned on node n2, waiting for hook remote"
        assert (quick.held, beside.held, len(world.ledger.grants())) == (["quick-2"], ["volume-1"], 1)
        slow.takes_s = 0
        await trio.sleep(51)
        (task,) = world.running()
        assert task.node_id == "n2"
        assert sorted(grant.hook for grant in task.grants) == ["address", "quick", "remote", "volume"]
        world.check_books_of([*world.ledger.grants(), *slow.held, *quick.held, *beside.held])


async def test_plan_survives_what_does_not_concern_it(autojump_clock: object) -> None:
    """Other nodes and networks come, change and go and its service is scaled while a hook runs: it goes on."""
    slow = Scripted("remote", AFTER, takes_s=10)
    async with manager_world(hooks=[slow.hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(2)
        await world.add(a_node("n2"), a_config_network("pool", "lan-r1", ipam=[an_ipam()]))
        await trio.sleep(2)
        await world.set_node("n2", state=NodeState.DOWN)
        await remove_network(world.store, "pool")
        await world.scale(2)
        await trio.sleep(7)
        assert [(t.slot, t.node_id) for t in world.running()] == [(1, "n1")]
        assert slow.cancelled_s == []


async def test_service_updated_while_its_task_is_planned(autojump_clock: object) -> None:
    """The plan of the old spec ends at once, and only the new one is ever assigned."""
    slow = Scripted("remote", AFTER, takes_s=10)
    async with manager_world(hooks=[slow.hook]) as world:
        await world.add(a_node("n1", memory_bytes=1000), a_service(task=a_task_spec(memory_bytes=1000)))
        await trio.sleep(2)

        def update(tx: Transaction) -> None:
            service = tx.find(Service, "s1")
            spec = msgspec.structs.replace(service.spec, task=a_task_spec(args=["new"], memory_bytes=900))
            tx.update(msgspec.structs.replace(service, spec=spec, spec_version=2))

        await world.store.commit(update)
        await trio.sleep(0.5)
        assert slow.cancelled_s == [2.0]
        await trio.sleep(11)
        (task,) = world.running()
        assert task.spec.args == ("new",)
        assert [t.node_id for t in world.tasks(live=False)] == [""]
        world.check_books_of(slow.held)
