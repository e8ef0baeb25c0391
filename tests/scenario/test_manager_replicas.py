"""Replicas kept, scaled, restarted and replaced, with agents played by a script."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.core.model import Cluster, RestartCondition, RestartPolicy, Service, Task
from beeyard.core.states import Availability, NodeState, TaskState
from tests.support.builders import a_network, a_node, a_service, a_task, a_task_spec
from tests.support.manager_world import ManagerWorld, manager_world, obedient
from tests.support.memory_database import MemoryDatabase

S = TaskState


def with_restart(policy: RestartPolicy, replicas: int = 1) -> Service:
    return a_service(replicas=replicas, task=a_task_spec(restart=policy))


def states(world: ManagerWorld) -> list[tuple[int, TaskState, TaskState]]:
    return [(t.slot, t.desired_state, t.status.state) for t in world.tasks()]


async def test_scale_up_and_down(autojump_clock: object) -> None:
    """1 → 3 adds two; 3 → 1 asks exactly two to go (REMOVE, not SHUTDOWN), and one keeps running."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(replicas=1))
        await trio.sleep(1)
        (first,) = world.running()
        await world.scale(3)
        await trio.sleep(1)
        assert [t.slot for t in world.running()] == [1, 2, 3]
        world.script = lambda task: None
        await world.scale(1)
        await trio.sleep(1)
        assert states(world) == [(1, S.RUNNING, S.RUNNING), (2, S.REMOVE, S.RUNNING), (3, S.REMOVE, S.RUNNING)]
        assert world.running()[0].id == first.id
        world.script = obedient
        await world.scale(1)
        await world.report(world.tasks()[1].id, S.SHUTDOWN)
        await trio.sleep(1)
        assert states(world) == [(1, S.RUNNING, S.RUNNING)]


async def test_scaled_up_again_while_stopping_waits_for_the_slot(autojump_clock: object) -> None:
    """A slot whose old task still stops is taken again, but its new task starts only when the old one has ended."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(replicas=2))
        await trio.sleep(1)
        world.script = lambda task: None if task.desired_state == S.REMOVE else obedient(task)
        await world.scale(1)
        await trio.sleep(1)
        await world.scale(2)
        await trio.sleep(5)
        assert states(world) == [
            (1, S.RUNNING, S.RUNNING),
            (2, S.REMOVE, S.RUNNING),
            (2, S.READY, S.READY),
        ]
        await world.report(world.tasks()[1].id, S.SHUTDOWN)
        await trio.sleep(1)
        assert states(world) == [(1, S.RUNNING, S.RUNNING), (2, S.RUNNING, S.RUNNING)]


async def test_failed_task_is_replaced_after_the_delay(autojump_clock: object) -> None:
    """The replacement is prepared at once in the same slot and starts when the restart delay is over."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service())
        await trio.sleep(1)
        await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(4.5)
        assert states(world) == [(1, S.SHUTDOWN, S.FAILED), (1, S.READY, S.READY)]
        await trio.sleep(1)
        assert states(world) == [(1, S.SHUTDOWN, S.FAILED), (1, S.RUNNING, S.RUNNING)]


@pytest.mark.parametrize(("delay_s", "per_minute"), [(5.0, 12), (20.0, 3), (0.0, 60), (0.3, 60)])
@pytest.mark.parametrize("state", [S.REJECTED, S.FAILED])
async def test_tasks_that_never_run_are_replaced_no_faster_than_the_delay(
    autojump_clock: object, state: TaskState, delay_s: float, per_minute: int
) -> None:
    """A preparation that always fails is tried again once a delay (once a second at most), two minutes long."""
    made: list[str] = []

    async with manager_world(script=lambda task: state) as world:
        async with world.store.subscribe("task") as wakeups:
            await world.add(a_node("n1"), with_restart(RestartPolicy(delay_s=delay_s)))
            with trio.move_on_after(120):
                async for wake in wakeups:
                    made += [change.id for change in wake.changes if change.old is None]
        # Two more: the first task and its replacement are not delayed. Some are lost to the turns of the loop.
        assert 0.8 * 2 * per_minute <= len(made) <= 2 * per_minute + 2


async def test_when_a_rejected_task_is_tried_again(autojump_clock: object) -> None:
    """As it then comes: a replacement that was rejected within its delay waits until that is over."""
    async with manager_world(script=lambda task: S.REJECTED) as world:
        await world.add(a_node("n1"), with_restart(RestartPolicy(delay_s=20.0)))
        await trio.sleep(3)
        due_at_s = world.orchestrator.next_try_at_s("s1", 1)
        assert due_at_s is not None
        assert 15 < due_at_s - world.host.wall_now_s() < 20
        n_tasks = len(world.tasks())
        await trio.sleep(due_at_s - world.host.wall_now_s() - 0.2)
        assert len(world.tasks()) == n_tasks
        await trio.sleep(1)
        assert len(world.tasks()) == n_tasks + 1
        await world.scale(0)
        assert world.orchestrator.next_try_at_s("s1", 9) is None
        assert world.orchestrator.next_try_at_s("s9", 1) is None


async def test_who_is_not_restarted_is_not_tried_again(autojump_clock: object) -> None:
    async with manager_world(script=lambda task: S.REJECTED) as world:
        await world.add(a_node("n1"), with_restart(RestartPolicy(condition=RestartCondition.NONE)))
        await trio.sleep(3)
        assert world.orchestrator.next_try_at_s("s1", 1) is None


async def test_on_failure_leaves_completed_tasks(autojump_clock: object) -> None:
    """On-failure: FAILED is replaced, COMPLETE only shut down; a forced update fills the completed slot again."""
    policy = RestartPolicy(condition=RestartCondition.ON_FAILURE, delay_s=0.1)
    async with manager_world() as world:
        await world.add(a_node("n1"), with_restart(policy, 2))
        await trio.sleep(1)
        one, two = world.running()
        await world.report(one.id, S.FAILED)
        await world.report(two.id, S.COMPLETE)
        await trio.sleep(2)
        assert states(world) == [
            (1, S.SHUTDOWN, S.FAILED),
            (1, S.RUNNING, S.RUNNING),
            (2, S.SHUTDOWN, S.COMPLETE),
        ]
        await world.store.commit(lambda tx: tx.update(forced(tx.find(Service, "s1"))))
        await trio.sleep(20)
        assert [t.spec_version for t in world.running()] == [2, 2]


def forced(service: Service) -> Service:
    task = msgspec.structs.replace(service.spec.task, force_update=service.spec.task.force_update + 1)
    spec = msgspec.structs.replace(service.spec, task=task)
    return msgspec.structs.replace(
        service, spec=spec, previous_spec=service.spec, spec_version=service.spec_version + 1, update_status=None
    )


async def test_restart_none_shuts_down_on_failed_and_drained_nodes_only(autojump_clock: object) -> None:
    """With restart none: tasks on DOWN and DRAIN nodes are told to stop, those on UNKNOWN and PAUSE stay; none is added."""
    async with manager_world(script=lambda task: None) as world:
        nodes = [
            a_node("ready"),
            a_node("down", state=NodeState.DOWN),
            a_node("unknown", state=NodeState.UNKNOWN),
            a_node("pause", availability=Availability.PAUSE),
            a_node("drain", availability=Availability.DRAIN),
        ]
        service = with_restart(RestartPolicy(condition=RestartCondition.NONE), 5)
        tasks = [
            a_task(f"t{i}", slot=i, spec=service.spec.task, state=S.RUNNING, node_id=node.id)
            for i, node in enumerate(nodes, start=1)
        ]
        await world.add(*nodes, service, *tasks)
        await trio.sleep(1)
        assert {t.node_id: t.desired_state for t in world.tasks()} == {
            "ready": S.RUNNING, "down": S.SHUTDOWN, "unknown": S.RUNNING, "pause": S.RUNNING, "drain": S.SHUTDOWN,
        }  # fmt: skip
        await world.set_node("pause", availability=Availability.DRAIN)
        await trio.sleep(1)
        assert world.store.tasks["t4"].desired_state == S.SHUTDOWN
        assert len(world.tasks()) == 5


async def test_max_attempts(autojump_clock: object) -> None:
    """Max attempts 1: a slot is restarted once; its second failure is its last until the spec changes."""
    policy = RestartPolicy(delay_s=0.1, max_attempts=1)
    async with manager_world() as world:
        await world.add(a_node("n1"), with_restart(policy))
        for expected in (2, 2):
            await trio.sleep(1)
            for task in world.running():
                await world.report(task.id, S.FAILED)
            await trio.sleep(1)
            assert len(world.tasks()) == expected
        assert not world.running()
        await trio.sleep(100)
        assert len(world.tasks()) == 2
        await world.store.commit(lambda tx: tx.update(forced(tx.find(Service, "s1"))))
        await trio.sleep(2)
        assert len(world.running()) == 1


async def test_attempts_count_within_the_window(autojump_clock: object) -> None:
    """Max attempts 1, window 10 s: a second failure inside it is not restarted, one after a long run is."""
    policy = RestartPolicy(delay_s=0.1, max_attempts=1, window_s=10)
    async with manager_world() as world:
        await world.add(a_node("n1"), with_restart(policy))
        await trio.sleep(1)
        await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(20)
        await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(2)
        assert len(world.running()) == 1
        await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(100)
        assert not world.running()


async def test_drained_node_is_left_without_delay(autojump_clock: object) -> None:
    """Tasks of a drained node move on as soon as they have stopped, with no restart delay."""
    async with manager_world() as world:
        await world.add(a_node("n1"), a_node("n2"), a_service(replicas=4))
        await trio.sleep(1)
        await world.set_node("n1", availability=Availability.DRAIN)
        await trio.sleep(0.5)
        assert [t.node_id for t in world.running()] == ["n2"] * 4


async def test_mass_failure_holds_replacement_back(autojump_clock: object) -> None:
    """While the manager seems to be the one cut off nothing is replaced; when that ends, what is still down is."""
    async with manager_world() as world:
        await world.add(*(a_node(f"n{i}") for i in (1, 2, 3)), a_service(replicas=3))
        await trio.sleep(1)
        before = [t.id for t in world.running()]
        world.mass_failure = "2 of 3 nodes seem to have failed at once"
        await world.set_node("n1", state=NodeState.DOWN)
        await world.set_node("n2", state=NodeState.DOWN)
        await trio.sleep(100)
        assert [t.id for t in world.tasks()] == before
        told = {t.node_id: world.orchestrator.held_back(t) for t in world.tasks()}
        waits = f"not replaced: {world.mass_failure}"
        assert told == {"n1": waits, "n2": waits, "n3": ""}
        world.mass_failure = ""
        await world.set_node("n2", state=NodeState.READY)
        await trio.sleep(6)
        assert len(world.running()) == 3
        assert {t.node_id for t in world.running()} == {"n2", "n3"}
        assert [world.orchestrator.held_back(t) for t in world.tasks()] == [""] * 4


async def test_mass_failure_is_told_by_a_manager_that_starts_in_it(autojump_clock: object) -> None:
    """What a manager finds at its start needs no event to be explained; ended and unwanted tasks say nothing."""
    database = MemoryDatabase()
    reason = "2 of 3 nodes seem to have failed at once"
    async with manager_world(database, mass_failure=reason) as world:
        await world.add(
            a_node("n1", state=NodeState.DOWN),
            a_service(replicas=3),
            a_task("runs", slot=1, state=S.RUNNING, node_id="n1"),
            a_task("goes", slot=2, state=S.RUNNING, node_id="n1", desired_state=S.SHUTDOWN),
            a_task("ended", slot=3, state=S.FAILED, node_id="n1", desired_state=S.SHUTDOWN),
        )
    async with manager_world(database, mass_failure=reason) as world:
        await trio.sleep(1)
        told = {
            task_id: world.orchestrator.held_back(world.store.tasks[task_id]) for task_id in ("runs", "goes", "ended")
        }
        assert told == {"runs": f"not replaced: {reason}", "goes": "", "ended": ""}


async def test_history_keeps_five_a_slot(autojump_clock: object) -> None:
    """Of a slot that fails again and again the last five tasks are kept."""
    async with manager_world() as world:
        await world.add(a_node("n1"), with_restart(RestartPolicy(delay_s=0.1)))
        for _ in range(9):
            await trio.sleep(1)
            await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(1)
        assert len(world.tasks()) == 5
        assert len(world.running()) == 1


async def test_history_with_addresses_is_cut_when_they_have_rested(autojump_clock: object) -> None:
    """Ended tasks beyond the history stay for the 30 s that their addresses rest, no longer; scaled away ones all go."""
    async with manager_world() as world:
        await world.add(a_network(), a_node("n1"))
        spec = a_task_spec(network_ids=["net1"], restart=RestartPolicy(delay_s=0.1))
        await world.add(a_service(replicas=2, task=spec))
        for _ in range(12):
            await trio.sleep(1)
            await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(1)
        assert len(world.tasks()) == 12 + 2, "each one is the record of an address that rests"
        await trio.sleep(29.5)
        assert [t.slot for t in world.tasks()] == [1] * 5 + [2]
        await world.scale(1)
        await trio.sleep(29)
        assert [t.slot for t in world.tasks()] == [1] * 5 + [2]
        await trio.sleep(3)
        assert [t.slot for t in world.tasks()] == [1] * 5
        world.check_books()


async def test_tasks_scaled_away_without_addresses_vanish_at_once(autojump_clock: object) -> None:
    """Nothing rests, so nothing is kept: neither the task nor the history of its slot."""
    async with manager_world() as world:
        await world.add(a_node("n1"), with_restart(RestartPolicy(delay_s=0.1), 2))
        await trio.sleep(1)
        await world.report(world.running()[1].id, S.FAILED)
        await trio.sleep(1)
        assert [t.slot for t in world.tasks()] == [1, 2, 2]
        await world.scale(1)
        await trio.sleep(0.5)
        assert [t.slot for t in world.tasks()] == [1]


async def test_short_history_does_not_cut_the_delay(autojump_clock: object) -> None:
    """A slot keeps the ended predecessor of its task even with a history of none, so that the delay still applies."""
    async with manager_world() as world:
        await world.store.commit(
            lambda tx: tx.update(msgspec.structs.replace(tx.find(Cluster, "c1"), task_history_limit=0))
        )
        await world.add(a_node("n1"), a_service())
        for _ in range(3):
            await trio.sleep(6)
            await world.report(world.running()[0].id, S.FAILED)
        await trio.sleep(3)
        assert states(world) == [(1, S.SHUTDOWN, S.FAILED), (1, S.READY, S.READY)]


async def test_tasks_of_a_node_out_of_reach_are_orphaned_after_their_lease(autojump_clock: object) -> None:
    """A fenced task is given up 60 s + 30 s after the last contact with its node, another after a day and 2 %."""
    async with manager_world() as world:
        fenced = a_service("s1", replicas=1, labels={"beeyard.on-isolation": "fence"})
        await world.add(a_node("n1"), fenced, a_service("s2", name="plain"))
        await trio.sleep(1)
        world.contact_s["n1"] = 100.0
        await trio.sleep(104)
        await world.set_node("n1", state=NodeState.DOWN)
        one, two = world.tasks()[0], world.tasks(service_id="s2")[0]
        await trio.sleep_until(189)
        assert state_of(world, one) == S.RUNNING
        await trio.sleep_until(191)
        assert state_of(world, one) == S.ORPHANED
        await trio.sleep_until(100 + 86400 * 1.02 - 1)
        assert state_of(world, two) == S.RUNNING
        await trio.sleep_until(100 + 86400 * 1.02 + 1)
        assert state_of(world, two) == S.ORPHANED


def state_of(world: ManagerWorld, task: Task) -> TaskState:
    return world.store.tasks[task.id].status.state
