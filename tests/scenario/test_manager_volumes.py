"""Cluster volumes from the service to the node and back (SwarmKit's scenarios V10, V12 to V14, and what it gets wrong)."""

from __future__ import annotations

import msgspec
import trio

from beeyard.core.model import Service, Task
from beeyard.core.mounts import Mount
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.core.volume import Published, PublishState, Volume
from beeyard.manager.control.volume import remove_volume
from beeyard.manager.store import Transaction
from tests.support.builders import a_node, a_service, a_task, a_task_spec
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.volumes import a_volume

S = TaskState
NO_VOLUME = "no suitable node (cannot fulfill requested CSI volume mounts on 2 nodes)"


def db(*sources: str, replicas: int = 1, read_only: bool = False, service_id: str = "s1") -> Service:
    """A service whose tasks mount these volumes."""
    mounts = [
        Mount(type="cluster", source=source, target=f"/data{n}", read_only=read_only)
        for n, source in enumerate(sources)
    ]
    return a_service(service_id, name=f"db-{service_id}", replicas=replicas, task=a_task_spec(mounts=mounts))


def places(world: ManagerWorld, volume_id: str = "v1") -> dict[str, str]:
    """Where a volume is published, and how far."""
    return {place.node_id: str(place.state) for place in world.store.volumes[volume_id].published}


async def set_availability(world: ManagerWorld, availability: Availability, volume_id: str = "v1") -> None:
    """What `docker volume update --availability` does."""

    def build(tx: Transaction) -> None:
        volume = tx.find(Volume, volume_id)
        spec = msgspec.structs.replace(volume.spec, availability=availability)
        tx.update(msgspec.structs.replace(volume, spec=spec))

    await world.store.commit(build)


async def test_a_task_has_its_volumes_published_where_it_runs(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume("v1"), a_volume("v2", group="g"), a_volume("v3"))
        await world.add(db("data-v1", "group:g", replicas=2))
        await trio.sleep(1)
        assert sorted(task.node_id for task in world.running()) == ["n1", "n2"]
        for task in world.running():
            assert [(use.volume_id, use.target) for use in task.volumes] == [("v1", "/data0"), ("v2", "/data1")]
        assert places(world) == places(world, "v2") == {"n1": "published", "n2": "published"}
        assert places(world, "v3") == {}
        world.check_books()


async def test_v10_a_volume_goes_back_only_from_the_node_that_needs_it_no_more(autojump_clock: object) -> None:
    """First the node's part, then the rest; the other nodes keep it. What was in between is in the store's history."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume(), db("data-v1", replicas=2))
        await trio.sleep(1)
        since = world.store.index
        stopped = world.running()[1].node_id
        kept = world.running()[0].node_id
        await world.scale(1)
        await trio.sleep(1)
        steps = [c.new for c in await world.store.history(since) if c.kind == "volume"]
        states = [{p.node_id: str(p.state) for p in v.published} for v in steps if isinstance(v, Volume)]
        assert states == [
            {kept: "published", stopped: "pending-node-unpublish"},
            {kept: "published", stopped: "pending-controller-unpublish"},
            {kept: "published"},
        ]


async def test_v12_a_task_waits_for_a_volume_that_is_not_there(autojump_clock: object) -> None:
    """As long as it takes, without a write; one that is bound to a node too. Then the volume lets them in."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), db("data-v1"), db("data-v1", service_id="s2"))
        bound = a_task("b1", service_id="s2", spec=db("data-v1").spec.task)
        await world.add(msgspec.structs.replace(bound, bound_node_id="n2"))
        await trio.sleep(1)
        index = world.store.index
        await trio.sleep(10)
        assert world.store.index == index
        assert [(t.status.state, t.status.err) for t in world.tasks()] == [(S.PENDING, NO_VOLUME)]
        only = "cannot fulfill requested CSI volume mounts on 1 node"
        assert [(t.status.state, t.status.err) for t in world.tasks(service_id="s2")] == [(S.PENDING, only)]
        await world.add(a_volume())
        await trio.sleep(1)
        assert len(world.running()) == 1
        assert [t.node_id for t in world.running("s2")] == ["n2"]


async def test_v13_volumes_of_tasks_that_run_are_taken_from_the_start(autojump_clock: object) -> None:
    """Those of a task that is over are not, and a waiting task has none."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(a_node("n1"), a_node("n2"), *(a_volume(f"v{n}", sharing="none") for n in (1, 2)))
        await world.add(db("data-v1"), db("data-v2", service_id="s2"), db("data-v1", service_id="s3"))
        await trio.sleep(1)
        world.script = lambda task: None
        await world.report(world.running("s2")[0].id, S.SHUTDOWN)
        await world.scale(0, "s2")
        await trio.sleep(1)
    async with manager_world(database) as world:
        await world.add(db("data-v2", service_id="s4"))
        await trio.sleep(1)
        waits = [t.service_id for t in world.store.tasks.values() if t.status.state == S.PENDING]
        assert len(waits) == 1, "one of the two that want volume v1"
        assert len(world.running("s4")) == 1
        users = world.lifecycle._planner.index.volumes.users
        assert len(users("v1")) == 1
        assert len(users("v2")) == 1


async def test_v14_a_drained_volume_is_left(autojump_clock: object) -> None:
    """SwarmKit writes REJECTED over what the agent says. That would give the address away while the task still has it up, so
    here the task is told to stop, and is over when its agent says so; the orchestrator replaces it as SwarmKit's does."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume("v1", group="g"), a_volume("v2", group="g"))
        await world.add(db("group:g", replicas=2), db("data-v2", service_id="s2"))
        await trio.sleep(1)
        first, others = world.running(), world.running("s2")
        assert {use.volume_id for task in first for use in task.volumes} == {"v1"}
        for availability in (Availability.PAUSE, Availability.ACTIVE):
            await set_availability(world, availability)
            await trio.sleep(10)
            assert world.running() == first
        await set_availability(world, Availability.DRAIN)
        await trio.sleep(1)
        left = [world.store.tasks[task.id] for task in first]
        assert [(task.desired_state, task.status.state) for task in left] == [(S.SHUTDOWN, S.SHUTDOWN)] * 2
        assert {use.volume_id for task in world.running() for use in task.volumes} == {"v2"}
        assert len(world.running()) == 2
        assert world.running("s2") == others
        assert places(world) == {}
        world.check_books()


async def test_tasks_of_a_drained_volume_wait_for_another(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume(), db("data-v1"))
        await trio.sleep(1)
        await set_availability(world, Availability.DRAIN)
        await trio.sleep(1)
        assert [t.status.err for t in world.tasks(live=True)] == [NO_VOLUME]
        await set_availability(world, Availability.ACTIVE)
        await trio.sleep(1)
        assert len(world.running()) == 1


async def test_a_volume_of_one_node_s_scope_moves_when_its_last_user_has_gone(autojump_clock: object) -> None:
    """Its users stay together, whichever service they are of; a node that is down keeps it, for nobody knows."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume(scope="single"))
        await world.add(db("data-v1", replicas=3), db("data-v1", service_id="s2"))
        await trio.sleep(1)
        (home,) = {task.node_id for task in [*world.running(), *world.running("s2")]}
        assert len(world.running()) + len(world.running("s2")) == 4
        await world.set_node(home, state=NodeState.DOWN)
        await trio.sleep(30)
        assert {t.status.state for t in world.tasks(live=True)} == {S.PENDING}
        assert places(world) == {home: "published"}
        await world.set_node(home, state=NodeState.READY, availability=Availability.DRAIN)
        await trio.sleep(10)
        (other,) = {task.node_id for task in [*world.running(), *world.running("s2")]}
        assert other != home
        assert len(world.running()) == 3
        assert places(world) == {other: "published"}
        world.check_books()


async def test_a_volume_removed_while_a_task_is_planned_on_it_is_not_given(autojump_clock: object) -> None:
    """The commit looks at the volume again, in the same transaction: it may have gone in the very group of writes before."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume(), db("data-v1", replicas=0))
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.scale, 1)
            # When its hooks are done its commit is a checkpoint or two away.
            while not any(plan.volumes for plan in world.lifecycle._plans.values()):
                await trio.lowlevel.checkpoint()
            await remove_volume(world.store, "v1", force=False)
        await trio.sleep(1)
        assert [(t.status.state, t.status.err) for t in world.tasks()] == [(S.PENDING, NO_VOLUME)]


async def test_a_volume_that_is_used_again_on_its_way_back_is_published_anew(autojump_clock: object) -> None:
    going = [Published(node_id="n1", state=PublishState.PENDING_UNPUBLISH)]
    async with manager_world() as world:
        await world.add(a_node("n1"), a_volume(scope="single", published=going), db("data-v1"))
        await trio.sleep(1)
        assert len(world.running()) == 1
        assert places(world) == {"n1": "published"}


async def test_of_tasks_that_may_not_share_one_runs(autojump_clock: object) -> None:
    """Each task alone changes what the next can have, in one group too: one writer, and readers beside it."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_volume(sharing="onewriter"))
        await world.add(db("data-v1", replicas=3), db("data-v1", replicas=3, read_only=True, service_id="s2"))
        await trio.sleep(1)
        assert len(world.running()) == 1
        assert len(world.running("s2")) == 3
        waiting: list[Task] = [t for t in world.tasks() if t.status.state == S.PENDING]
        assert {t.status.err for t in waiting} == {NO_VOLUME}
        await world.report(world.running()[0].id, S.COMPLETE)
        await trio.sleep(10)
        assert len(world.running()) == 1
