"""A manager that dies at every possible commit, or whose disk refuses one, and its next life on the same database."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.lowlevel

from beeyard.core.errors import DiskError
from beeyard.core.grant import AddressGrant
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.hooks import Stage, Window
from tests.support.builders import a_config_network, a_network_from, a_node, a_service, a_task_spec, an_ipam
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase
from tests.support.scripted_hook import Scripted

S = TaskState


async def set_up(world: ManagerWorld) -> None:
    await world.add(
        a_config_network("pool", "lan-r1", config="racks", ipam=[an_ipam(ip_range="10.77.0.64/29")]),
        a_network_from("racks", "lan"),
        a_node("n1"),
        a_node("n2"),
    )


async def story(world: ManagerWorld) -> None:
    """What users do in a first life: create, fail one, scale up beyond the pool, scale down."""
    if "s1" not in world.store.services:
        await world.add(a_service(replicas=3, task=a_task_spec(network_ids=["lan"])))
    await trio.sleep(2)
    for task in world.running()[:1]:
        await world.report(task.id, S.FAILED)
    await trio.sleep(7)
    await world.scale(10)
    await trio.sleep(2)
    await world.scale(2)
    await trio.sleep(2)


async def converge(world: ManagerWorld, replicas: int) -> None:
    """Given time, exactly the replicas run, each with an address of its own, and nothing else is held."""
    await trio.sleep(80)
    assert len(world.running()) == replicas
    assert sorted(t.slot for t in world.running()) == list(range(1, replicas + 1))
    assert all(len(t.grants) == 1 for t in world.running())
    world.check_books()
    usage = world.ledger.usage("pool")
    assert usage is not None
    assert (usage.used, usage.cooling, usage.free) == (replicas, 0, 8 - replicas)


async def test_crash_at_every_commit(autojump_clock: object) -> None:
    """Kill the manager when its Nth commit is on the disk but nobody knows, for every N: the next life sets all right."""
    n_commits = 0
    while True:
        n_commits += 1
        survived = False
        database = MemoryDatabase()
        async with manager_world(database) as world:
            await set_up(world)
            at = database.n_commits + n_commits
            database.after_commit = lambda n, at=at, kill=world.kill: kill() if n == at else None
            await story(world)
            survived = True
        database.after_commit = lambda n: None
        async with manager_world(database) as world:
            if "s1" in world.store.services:
                await world.scale(4)
                await converge(world, 4)
            else:
                assert not world.store.tasks
        if survived:
            break
    assert n_commits > 15, "the story is too short to mean something"


async def test_refused_commit_at_every_point(autojump_clock: object) -> None:
    """The disk refuses the Nth commit, for every N: it is done again or its caller told, and all converges."""
    n_refused = 0
    while True:
        n_refused += 1
        database = MemoryDatabase()
        async with manager_world(database) as world:
            await set_up(world)
            at = database.n_commits + n_refused
            database.fail_when = lambda n, at=at: n == at
            await insistently(story, world)
            await insistently(scale_to_four, world)
            await converge(world, 4)
            if database.n_commits < at:
                break
    assert n_refused > 15


async def test_disk_is_full_for_minutes(autojump_clock: object) -> None:
    """While every commit is refused the manager tries again at its leisure, users are told, and then all is made up for."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await set_up(world)
        # In flight when the disk fills up: the service's own tasks, on their way.
        full_from = database.n_commits + 3
        database.fail_when = lambda n: n >= full_from
        await world.add(a_service(replicas=6, task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(10)
        n_tries = database.n_commits
        await trio.sleep(200)
        assert database.n_commits - n_tries < 3 * 200, "somebody is in a hurry"
        with pytest.raises(DiskError):
            await world.scale(2)
        assert not world.running()
        database.fail_when = lambda n: False
        await trio.sleep(3)
        assert len(world.running()) == 6, "it goes on within seconds"
        database.fail_when = lambda n: True
        await trio.sleep(40)
        assert [t.status.state for t in world.tasks()] == [S.RUNNING] * 6
        database.fail_when = lambda n: False
        await world.scale(4)
        await converge(world, 4)


async def scale_to_four(world: ManagerWorld) -> None:
    await world.scale(4)


async def insistently(act: Callable[[ManagerWorld], Awaitable[None]], world: ManagerWorld) -> None:
    """Users begin again when they are told that the disk was full."""
    for _ in range(2):
        with contextlib.suppress(DiskError):
            await act(world)
            return
    raise AssertionError("one refusal was to be seen once")


async def test_recorded_grants_come_before_new_ones(autojump_clock: object) -> None:
    """A new life of the manager hands out nothing that an old task still holds, nor what rests."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await set_up(world)
        await world.add(a_service(replicas=6, task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(2)
        await world.scale(5)
        await trio.sleep(1)
        held = sorted(world.addresses())
        ended = [t for t in world.store.tasks.values() if t.status.state.is_terminal]
        (resting,) = [a for t in ended for g in t.grants if isinstance(g, AddressGrant) for a in g.addresses]
    async with manager_world(database) as world:
        assert len(world.ledger.grants()) == 5
        await world.scale(8)
        await trio.sleep(5)
        addresses = world.addresses()
        assert len(addresses) == 7
        assert set(held) < set(addresses)
        assert resting not in addresses
        await trio.sleep(30)
        assert len(world.addresses()) == 8
        assert resting in world.addresses()


async def test_no_address_comes_back_early_however_often_the_manager_dies(autojump_clock: object) -> None:
    """Not of a service that was removed either, nor when the clock on the wall has jumped a day forward."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await set_up(world)
        await world.add(a_service(replicas=8, task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(2)
        assert len(world.running()) == 8
        await world.remove_service()
        await trio.sleep(1)
        assert all(task.status.state.is_terminal for task in world.store.tasks.values())
        await world.add(a_service(service_id="s2", name="next", replicas=1, task=a_task_spec(network_ids=["lan"])))
        ended_s = trio.current_time()
    day_s = 86_400.0
    for ahead_s in (0.0, day_s, day_s):
        async with manager_world(database, wall_ahead_s=ahead_s) as world:
            await trio.sleep(5)
            assert world.running("s2") == []
    assert trio.current_time() < ended_s + 20
    async with manager_world(database, wall_ahead_s=day_s) as world:
        await trio.sleep(35)
        assert len(world.running("s2")) == 1


@pytest.mark.parametrize(
    ("window", "has_node"),
    [
        (Window(Stage.NEW, Stage.PENDING), False),
        (Window(Stage.NEW, Stage.PENDING), True),
        (Window(Stage.NEW, Stage.ASSIGNED), True),
        (Window(Stage.SCHEDULED, Stage.ASSIGNED), True),
    ],
)
async def test_every_hook_is_told_what_it_granted(autojump_clock: object, window: Window, has_node: bool) -> None:
    """In a new life of the manager each hook holds what is stored as its own before it is asked for more."""
    database = MemoryDatabase()
    first = Scripted("volume", window)
    async with manager_world(database, hooks=[first.hook]) as world:
        await world.add(*([a_node("n1")] if has_node else []), a_service(replicas=3))
        await trio.sleep(2)
        await world.scale(2)
        await trio.sleep(2)
        recorded = sorted(g.id for t in world.tasks(live=True) for g in t.grants)
        assert len(recorded) == 2
    second = Scripted("volume", window, life="again-")
    async with manager_world(database, hooks=[second.hook]) as world:
        assert sorted(second.held) == recorded
        await world.scale(4)
        await trio.sleep(2)
        if not has_node:
            await world.add(a_node("n1"))
            await trio.sleep(2)
        assert len(world.running()) == 4
        world.check_books_of(second.held)
        await world.scale(0)
        await trio.sleep(2)
        assert second.held == []


async def test_release_that_a_crash_swallowed_is_made_up_for(autojump_clock: object) -> None:
    """The end of a task is stored and the manager dies before it tells the hook: its next life does."""
    database = MemoryDatabase()
    hook = Scripted("volume", Window(Stage.NEW, Stage.PENDING))
    async with manager_world(database, hooks=[hook.hook]) as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(2)
        (task,) = world.running()
        database.after_commit = lambda n: world.kill()
        await world.report(task.id, S.FAILED)
    database.after_commit = lambda n: None
    assert hook.held == ["volume-1"], "what it granted lies somewhere else and outlives the manager"
    async with manager_world(database, hooks=[hook.hook]) as world:
        assert world.store.tasks[task.id].status.state is S.FAILED
        assert "volume-1" not in hook.held


async def test_plans_vanish_harmlessly(autojump_clock: object) -> None:
    """A manager that dies while plans wait for their hooks leaves tasks PENDING, and the next one places them."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await set_up(world)
        # The service and its tasks are stored; the commit that would assign them hangs.
        database.hangs_from = database.n_commits + 3
        await world.add(a_service(replicas=3, task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(1)
        assert len(world.ledger.grants()) == 3
        assert [t.status.state for t in world.tasks()] == [S.PENDING] * 3
    database.hangs_from = math.inf
    async with manager_world(database) as world:
        await trio.sleep(10)
        assert len(world.running()) == 3
        world.check_books()


async def test_restart_while_a_node_is_down(autojump_clock: object) -> None:
    """Tasks of a node that is down keep their addresses over a restart, and are not replaced twice."""
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await set_up(world)
        await world.add(a_service(replicas=4, task=a_task_spec(network_ids=["lan"])))
        await trio.sleep(2)
        await world.set_node("n1", state=NodeState.DOWN)
        await trio.sleep(1)
    async with manager_world(database) as world:
        await trio.sleep(20)
        assert len([t for t in world.running() if t.node_id == "n2"]) == 4
        assert len(world.store.tasks) == 6
        assert len(world.addresses()) == 6
        world.check_books()
