"""SwarmKit's scheduler scenarios that need more than the kernel: its loop, the store and time (rows S4 to S33, gaps 4 and 5).

Those of the kernel alone are in tests/unit/core; those of volumes in test_manager_volumes.py.
"""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.core.model import RestartCondition, RestartPolicy, Service, Task, UpdateConfig
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.manager.config import ManagerConfig
from beeyard.manager.store import Transaction
from tests.support.builders import GIB, a_node, a_service, a_task, a_task_spec
from tests.support.manager_world import ManagerWorld, manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState
AT_ONCE = RestartPolicy(delay_s=0.0)
NEVER = RestartPolicy(condition=RestartCondition.NONE)


def bound(task: Task, node_id: str) -> Task:
    """A task that may go to one node alone, as those of global services."""
    return msgspec.structs.replace(task, bound_node_id=node_id)


def change_spec(tx: Transaction) -> None:
    """What `docker service update --args new` does to service s1."""
    service = tx.find(Service, "s1")
    spec = msgspec.structs.replace(service.spec, task=msgspec.structs.replace(service.spec.task, args=("new",)))
    version = service.spec_version + 1
    tx.update(msgspec.structs.replace(service, spec=spec, previous_spec=service.spec, spec_version=version))


async def test_s4_a_node_that_is_made_and_removed_with_a_task_gets_nothing(autojump_clock: object) -> None:
    async with manager_world() as world:

        def build(tx: Transaction) -> None:
            tx.create(a_node("n2", state=NodeState.DOWN))
            tx.create(a_service())
            tx.delete(type(a_node()), "n2")

        await world.store.commit(build)
        await trio.sleep(1)
        assert [t.status.err for t in world.tasks()] == ["no suitable node"]
        await world.add(a_node("n1"))
        await trio.sleep(1)
        assert [t.node_id for t in world.running()] == ["n1"]


async def test_s5_s6_a_node_that_comes_or_gets_ready_with_a_task_wins(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2", state=NodeState.DOWN), a_service("s1", name="a"))
        await trio.sleep(1)
        assert [t.node_id for t in world.running("s1")] == ["n1"]
        await world.add(a_node("n3"), a_service("s2", name="b"))
        await trio.sleep(1)
        assert [t.node_id for t in world.running("s2")] == ["n3"]

        def build(tx: Transaction) -> None:
            node = tx.nodes["n2"]
            tx.update(msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, state=NodeState.READY)))
            tx.create(a_service("s3", name="c"))

        await world.store.commit(build)
        await trio.sleep(1)
        assert [t.node_id for t in world.running("s3")] == ["n2"]


async def test_s2_nodes_written_again_reassign_nothing(autojump_clock: object) -> None:
    """Only the task that is new after one has gone is placed, and on the node that was emptied."""
    async with manager_world() as world:
        await world.add(*(a_node(f"n{n}") for n in (1, 2, 3)))
        await world.add(*(a_service(f"s{n}", name=f"web{n}") for n in (1, 2, 3)))
        await trio.sleep(1)
        before = {t.id: t.node_id for t in world.store.tasks.values()}
        assert sorted(before.values()) == ["n1", "n2", "n3"]
        for n in (1, 2, 3):
            await world.set_node(f"n{n}", availability=Availability.PAUSE)
            await world.set_node(f"n{n}", availability=Availability.ACTIVE)
        await trio.sleep(1)
        assert {t.id: t.node_id for t in world.store.tasks.values()} == before
        emptied = world.running("s1")[0].node_id
        await world.remove_service("s1")
        await trio.sleep(1)
        await world.add(a_service("s4", name="web4"))
        await trio.sleep(1)
        assert [t.node_id for t in world.running("s4")] == [emptied]


async def test_s17_a_node_that_failed_five_times_comes_last(autojump_clock: object) -> None:
    """n1 has a replica and the other node none, so tasks go there until it has failed five in five minutes."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(replicas=1))
        await trio.sleep(1)
        seen: list[str] = []

        def fail_slot_2(task: Task) -> TaskState | None:
            if task.slot == 2 and task.status.state == S.ASSIGNED:
                seen.append(task.node_id)
            return S.FAILED if task.slot == 2 and len(seen) <= 8 else S.RUNNING

        world.script = fail_slot_2
        await world.add(a_node("n2"))
        spec = a_task_spec(restart=AT_ONCE)
        service = world.store.services["s1"]
        task = a_task("x0", slot=2, spec=spec, spec_version=service.spec_version)
        await world.add(task)
        await world.scale(2)
        await trio.sleep(60)
        assert seen[:8] == ["n2"] * 5 + ["n1"] * 3


async def test_s17_failures_are_forgotten_after_five_minutes(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_service("s0", name="other"))
        await trio.sleep(1)
        (busy,) = (t.node_id for t in world.running("s0"))
        idle = "n2" if busy == "n1" else "n1"
        world.script = lambda task: S.FAILED if task.node_id == idle else S.RUNNING
        await world.add(a_service(task=a_task_spec(restart=AT_ONCE)))
        await trio.sleep(30)
        assert [t.node_id for t in world.running()] == [busy]
        world.script = lambda task: S.SHUTDOWN if task.desired_state >= S.SHUTDOWN else S.RUNNING
        await trio.sleep(300)
        await world.scale(0)
        await trio.sleep(1)
        await world.scale(1)
        await trio.sleep(1)
        assert [t.node_id for t in world.running()] == [idle]


async def test_s17_a_new_version_of_the_service_begins_anew(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_service("s0", name="other"))
        await trio.sleep(1)
        (busy,) = (t.node_id for t in world.running("s0"))
        idle = "n2" if busy == "n1" else "n1"
        spec = a_task_spec(restart=AT_ONCE)
        world.script = lambda task: S.FAILED if task.node_id == idle and task.spec == spec else S.RUNNING
        await world.add(a_service(task=spec))
        await trio.sleep(30)
        assert [t.node_id for t in world.running()] == [busy]
        world.script = lambda task: S.SHUTDOWN if task.desired_state >= S.SHUTDOWN else S.RUNNING

        await world.store.commit(change_spec)
        await trio.sleep(30)
        assert [(t.node_id, t.spec.args) for t in world.running()] == [(idle, ("new",))]
        world.script = lambda task: S.FAILED if task.node_id == idle else S.RUNNING
        await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(30)
        assert [t.node_id for t in world.running()] == [busy]


async def test_s18_tasks_bound_to_a_node_stay_with_it_and_are_not_held_against_it(autojump_clock: object) -> None:
    async with manager_world() as world:
        on_n2 = a_task_spec(constraints=["node.id==n2"])
        await world.add(a_node("n1"), a_node("n2"), a_service("s0", name="busy", replicas=2, task=on_n2))
        spec = a_task_spec(restart=NEVER)
        await world.add(a_service(replicas=0, task=spec))
        world.script = lambda task: S.FAILED if task.bound_node_id else S.RUNNING
        for n in range(1, 9):

            def build(tx: Transaction, n: int = n) -> None:
                service = tx.find(Service, "s1")
                tx.update(msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, replicas=n)))
                tx.create(bound(a_task(f"b{n}", slot=n, spec=spec), "n1"))

            await world.store.commit(build)
            await trio.sleep(1)
            task = world.store.tasks[f"b{n}"]
            assert (task.node_id, task.status.state) == ("n1", S.FAILED)
        # One that is bound to nothing goes to the emptier node, though that has failed eight.
        await world.scale(9)
        await trio.sleep(1)
        assert [(t.slot, t.node_id) for t in world.running()] == [(9, "n1")]


async def test_s24_what_a_dead_task_reserved_is_not_counted_from_the_start(autojump_clock: object) -> None:
    dead = a_task("t1", spec=a_task_spec(memory_bytes=GIB), state=S.SHUTDOWN, node_id="n1", desired_state=S.SHUTDOWN)
    database = MemoryDatabase()
    async with manager_world(database) as world:
        await world.add(a_node("n1", memory_bytes=GIB), dead, a_service(replicas=0))
        world.kill()
    async with manager_world(database) as world:
        await world.add(a_service("s2", name="next", task=a_task_spec(memory_bytes=GIB)))
        await trio.sleep(1)
        assert [t.node_id for t in world.running("s2")] == ["n1"]


async def test_s29_a_waiting_task_of_a_removed_service_is_dropped_without_a_word(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(task=a_task_spec(memory_bytes=10**15)))
        await trio.sleep(1)
        (task,) = world.tasks()
        assert task.status.err == "no suitable node (insufficient resources on 1 node)"
        since = world.store.index
        await world.remove_service()
        await world.add(a_node("n2", memory_bytes=10**16))
        await trio.sleep(5)
        assert world.tasks() == []
        written = [c.new.status for c in await world.store.history(since) if isinstance(c.new, Task)]
        assert all(status == task.status for status in written), written
        assert not world.lifecycle._planner.pending


async def test_s29_a_task_whose_service_is_gone_is_not_planned_again_and_again(autojump_clock: object) -> None:
    """Between the two writes, the removal of a service and the end of its tasks, nothing is placed and nothing spins."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(task=a_task_spec(memory_bytes=10**15)))
        await trio.sleep(1)

        def build(tx: Transaction) -> None:
            tx.delete(Service, "s1")
            tx.create(a_node("n2", memory_bytes=10**16))

        await world.store.commit(build)
        await trio.sleep(1)
        assert world.tasks() == []
        assert world.lifecycle._plans == {}


@pytest.mark.parametrize(("home", "other"), [("n1", "n2"), ("n2", "n1")])
async def test_s30_tasks_bound_to_a_node_are_confirmed_first(autojump_clock: object, home: str, other: str) -> None:
    async with manager_world() as world:
        since = world.store.index
        await world.add(
            a_service("s1", name="any", replicas=1),
            a_service("s2", name="each", replicas=2),
            a_task("t1", service_id="s1", service_name="any"),
            *(bound(a_task(f"t{n + 1}", service_id="s2", service_name="each", slot=n), home) for n in (1, 2)),
            a_node("n1"),
            a_node("n2"),
        )
        await trio.sleep(1)
        tasks = [world.store.tasks[f"t{n}"] for n in (1, 2, 3)]
        assert [(t.node_id, t.status.state) for t in tasks] == [(n, S.RUNNING) for n in (other, home, home)]
        written = [c.new for c in await world.store.history(since) if isinstance(c.new, Task)]
        messages = {(t.id, t.status.message) for t in written if t.status.state == S.ASSIGNED}
        confirmed = "scheduler confirmed task can run on preassigned node"
        assert messages == {("t1", "scheduler assigned task to node"), ("t2", confirmed), ("t3", confirmed)}


async def test_a_task_bound_to_a_node_that_does_not_fit_says_just_why(autojump_clock: object) -> None:
    """Without the "no suitable node (…)" around it, as SwarmKit; and it is tried again whenever that may help."""
    async with manager_world() as world:
        big = a_task_spec(memory_bytes=2 * GIB)
        await world.add(a_node("n1", memory_bytes=GIB), a_node("n2"), a_service(replicas=2))
        await world.add(bound(a_task("b1", spec=big), "n1"), bound(a_task("b2", slot=2), "n3"))
        await trio.sleep(1)
        assert [t.status.err for t in world.tasks()] == ["insufficient resources on 1 node", "node n3 is not known"]
        await world.set_node("n1", availability=Availability.PAUSE)
        await trio.sleep(11)
        assert world.tasks()[0].status.err == "1 node not available for new tasks"
        await world.set_node("n1", availability=Availability.ACTIVE)
        await world.add(a_node("n3"))
        await trio.sleep(11)
        assert [(t.node_id, t.status.state) for t in world.tasks()] == [("", S.PENDING), ("n3", S.RUNNING)]


async def scale_up_on_one_node(world: ManagerWorld) -> None:
    """One node, one replica a node, two replicas, updated at once: one runs, the other waits."""
    spec = a_task_spec(max_replicas_per_node=1)
    await world.add(a_node("n1"), a_service(replicas=2, task=spec, update=UpdateConfig(parallelism=0)))
    await trio.sleep(1)


async def test_s32_s41_what_the_limit_of_replicas_keeps_waiting_says_so(autojump_clock: object) -> None:
    async with manager_world() as world:
        await scale_up_on_one_node(world)
        assert len(world.running()) == 1
        waiting = [t.status.err for t in world.tasks() if t.status.state == S.PENDING]
        assert waiting == ["no suitable node (max replicas per node limit exceed)"]
        await world.add(a_node("n2"))
        await trio.sleep(1)
        assert sorted(t.node_id for t in world.running()) == ["n1", "n2"]


async def test_s33_a_waiting_task_that_an_update_replaces_is_shut_down(autojump_clock: object) -> None:
    """It was on no node, so nobody else could say that it is over: its desired state and its end are one write."""
    async with manager_world() as world:
        await scale_up_on_one_node(world)
        (waiting,) = (t for t in world.tasks() if t.status.state == S.PENDING)
        (running,) = world.running()
        since = world.store.index
        world.script = lambda task: S.RUNNING  # it does not stop

        await world.store.commit(change_spec)
        await trio.sleep(1)
        states = [
            (c.new.desired_state, c.new.status.state)
            for c in await world.store.history(since)
            if c.id == waiting.id and isinstance(c.new, Task)
        ]
        assert states == [(S.SHUTDOWN, S.SHUTDOWN)]
        still = world.store.tasks[running.id]
        assert (still.desired_state, still.status.state) == (S.SHUTDOWN, S.RUNNING)


async def test_gap_4_commits_are_waited_for_50_ms_each_and_a_second_in_all(autojump_clock: object) -> None:
    """The first after a quiet time is decided at once, which SwarmKit does not; those that follow it closely, together."""
    config = ManagerConfig()
    assert (config.debounce_gap_s, config.debounce_max_s) == (0.05, 1.0)
    async with manager_world() as world:
        await world.add(a_node("n1"))
        await trio.sleep(5)
        begin_s = trio.current_time()
        placed_s: dict[str, float] = {}

        async def note() -> None:
            async with world.store.subscribe("task") as wakeups:
                async for wake in wakeups:
                    for change in wake.changes:
                        if isinstance(change.new, Task) and change.new.node_id:
                            placed_s.setdefault(change.new.service_id, round(trio.current_time() - begin_s, 3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
            await trio.lowlevel.checkpoint()
            for n in range(60):
                await world.add(a_service(f"s{n}", name=f"web{n}"), a_task(f"t{n}", service_id=f"s{n}"))
                await trio.sleep(0.03)
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
        moments = sorted(set(placed_s.values()))
        assert len(placed_s) == 60
        assert moments[0] == 0.0
        # Writes every 30 ms never leave a gap of 50: each round takes what came within a second.
        assert round(moments[1] - moments[0], 1) == 1.0
        assert len(moments) <= 4


async def test_gap_5_a_node_that_leaves_between_decision_and_commit_gives_its_room_back(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1", memory_bytes=GIB), a_service(replicas=0, task=a_task_spec(memory_bytes=GIB)))
        await trio.sleep(1)

        def build(tx: Transaction) -> None:
            tx.create(a_task("t1", spec=a_task_spec(memory_bytes=GIB)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.scale, 1)
            while not world.lifecycle._plans:
                await trio.lowlevel.checkpoint()
            await world.set_node("n1", availability=Availability.PAUSE)
        await trio.sleep(1)
        assert [(t.status.state, t.status.err) for t in world.tasks()] == [
            (S.PENDING, "no suitable node (1 node not available for new tasks)")
        ]
        await world.set_node("n1", availability=Availability.ACTIVE)
        await trio.sleep(1)
        assert [t.node_id for t in world.running()] == ["n1"]
