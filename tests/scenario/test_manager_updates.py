"""Rolling updates: order, parallelism, delay, failure and completion."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest
import trio

from beeyard.core.model import FailureAction, Service, Task, UpdateConfig, UpdateOrder, UpdateState
from beeyard.core.states import TaskState
from tests.support.builders import a_node, a_service
from tests.support.manager_world import ManagerWorld, Script, manager_world, obedient

S = TaskState


async def update(world: ManagerWorld, *args: str, constraints: tuple[str, ...] = ()) -> None:
    """What `docker service update` does with a new command or new constraints."""

    def change(service: Service) -> Service:
        task = msgspec.structs.replace(service.spec.task, args=args, constraints=constraints)
        return msgspec.structs.replace(
            service,
            spec=msgspec.structs.replace(service.spec, task=task),
            previous_spec=service.spec,
            spec_version=service.spec_version + 1,
            update_status=None,
        )

    await world.store.commit(lambda tx: tx.update(change(tx.find(Service, "s1"))))


async def a_running_service(world: ManagerWorld, config: UpdateConfig, replicas: int = 3) -> None:
    await world.add(a_node("n1"), a_node("n2"), a_service(replicas=replicas, update=config))
    await trio.sleep(1)
    assert len(world.running()) == replicas


def status(world: ManagerWorld) -> tuple[UpdateState, str]:
    update_status = world.store.services["s1"].update_status
    assert update_status is not None
    return update_status.state, update_status.message


def new_ones_do(what: Callable[[Task], TaskState | None]) -> Script:
    """Old tasks obey; those of the new spec version do something else."""
    return lambda task: what(task) if task.spec_version == 2 else obedient(task)


def slow_to_start(seconds: float) -> Script:
    """Tasks run only so long after they were told to."""
    since: dict[str, float] = {}

    def script(task: Task) -> TaskState | None:
        told_s = since.setdefault(f"{task.id} {task.desired_state}", trio.current_time())
        state = obedient(task)
        return state if state != S.RUNNING or trio.current_time() >= told_s + seconds else S.STARTING

    return script


@pytest.mark.parametrize("order", list(UpdateOrder))
@pytest.mark.parametrize("parallelism", [0, 1, 2])
async def test_every_slot_ends_on_the_new_spec(autojump_clock: object, order: UpdateOrder, parallelism: int) -> None:
    """Whatever order and parallelism, the same slots run the new spec in the end and the update is completed."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(order=order, parallelism=parallelism, delay_s=0.5))
        await update(world, "new")
        await trio.sleep(30)
        assert [(t.slot, t.spec.args) for t in world.running()] == [(1, ("new",)), (2, ("new",)), (3, ("new",))]
        assert status(world) == (UpdateState.COMPLETED, "update completed")


async def test_stop_first_takes_one_slot_after_another(autojump_clock: object) -> None:
    """Parallelism 1: never are two slots without a running task, and the delay lies between two slots."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(delay_s=10))
        await update(world, "new")
        done_s: list[float] = []
        for _ in range(3):
            while len([t for t in world.running() if t.spec_version == 2]) <= len(done_s):
                assert len(world.running()) >= 2
                await trio.sleep(0.1)
            done_s.append(trio.current_time())
        assert [round(b - a) for a, b in itertools.pairwise(done_s)] == [10, 10]


async def test_start_first_starts_before_it_stops(autojump_clock: object) -> None:
    """Start-first: three run at every moment; old tasks that are slow to stop do not hold the update up."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(order=UpdateOrder.START_FIRST))
        world.script = lambda task: None if task.desired_state >= S.SHUTDOWN else obedient(task)
        await update(world, "new")
        for _ in range(100):
            assert len(world.running()) >= 3
            await trio.sleep(0.1)
        still = [t for t in world.tasks() if t.status.state == S.RUNNING]
        assert sorted((t.spec_version, t.desired_state) for t in still) == [(1, S.SHUTDOWN)] * 3 + [(2, S.RUNNING)] * 3


async def test_stop_first_goes_on_after_a_minute(autojump_clock: object) -> None:
    """An old task that never reports its end holds its slot up for one minute, no longer."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(), replicas=1)
        world.script = lambda task: None if task.desired_state >= S.SHUTDOWN else obedient(task)
        await update(world, "new")
        await trio.sleep(58)
        assert not world.running()
        await trio.sleep(4)
        assert [t.spec_version for t in world.running()] == [2]


async def test_failing_update_is_paused(autojump_clock: object) -> None:
    """Every new task fails: after the first one the update is paused and says which; two slots keep the old spec."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig())
        world.script = new_ones_do(lambda task: S.FAILED if task.desired_state == S.RUNNING else S.READY)
        await update(world, "bad")
        await trio.sleep(8)
        state, message = status(world)
        assert state is UpdateState.PAUSED
        failed = [t.id for t in world.tasks() if t.spec_version == 2 and t.status.state == S.FAILED]
        assert message.removeprefix("update paused due to failure or early termination of task ") in failed
        await trio.sleep(60)
        assert sorted(t.spec_version for t in world.running()) == [1, 1]
        world.script = obedient
        await update(world, "good")
        await trio.sleep(60)
        assert [t.spec.args for t in world.running()] == [("good",)] * 3
        assert status(world)[0] is UpdateState.COMPLETED


async def test_failures_below_the_ratio_are_borne(autojump_clock: object) -> None:
    """One failure in four slots with ratio 0.4 goes on; a second makes it pause."""
    for n_bad, expected in ((1, UpdateState.COMPLETED), (2, UpdateState.PAUSED)):
        async with manager_world() as world:
            await a_running_service(world, UpdateConfig(max_failure_ratio=0.4), replicas=4)
            bad: dict[int, str] = {}

            def fate(task: Task, bad: dict[int, str] = bad, n_bad: int = n_bad) -> TaskState | None:
                if (
                    task.slot <= n_bad
                    and task.desired_state == S.RUNNING
                    and bad.setdefault(task.slot, task.id) == task.id
                ):
                    return S.FAILED
                return obedient(task)

            world.script = new_ones_do(fate)
            await update(world, "new")
            await trio.sleep(100)
            assert status(world)[0] is expected


async def test_continue_goes_through_whatever_fails(autojump_clock: object) -> None:
    """Failure action continue: every slot gets the new spec though each task of it fails."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(failure_action=FailureAction.CONTINUE))
        world.script = new_ones_do(lambda task: S.FAILED if task.desired_state == S.RUNNING else S.READY)
        await update(world, "bad")
        await trio.sleep(60)
        assert {t.slot for t in world.tasks() if t.spec_version == 2} == {1, 2, 3}
        assert not [t for t in world.tasks(live=True) if t.spec_version == 1]


async def test_constraints_that_hold_keep_their_tasks(autojump_clock: object) -> None:
    """When only constraints change, tasks on nodes that satisfy them stay; the others are replaced."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig(), replicas=4)
        before = {t.id: t.node_id for t in world.running()}
        await update(world, constraints=("node.id==n1",))
        await trio.sleep(60)
        after = {t.id: t.node_id for t in world.running()}
        assert set(after.values()) == {"n1"}
        assert len(after) == 4
        assert {i for i, node in before.items() if node == "n1"} <= set(after)


async def test_new_spec_during_an_update_takes_over(autojump_clock: object) -> None:
    """A second change while the first is rolled out: every slot ends on the second."""
    async with manager_world(script=slow_to_start(0)) as world:
        await a_running_service(world, UpdateConfig(delay_s=3))
        await update(world, "second")
        await trio.sleep(4)
        await update(world, "third")
        await trio.sleep(60)
        assert [t.spec.args for t in world.running()] == [("third",)] * 3
        assert len(world.running()) == 3


async def test_scaling_alone_replaces_nothing(autojump_clock: object) -> None:
    """A change of replicas is no update: no task is replaced and no update status appears."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig())
        before = [t.id for t in world.running()]
        await world.scale(5)
        await trio.sleep(10)
        assert [t.id for t in world.running()][:3] == before
        assert world.store.services["s1"].update_status is None


async def test_pending_new_task_stalls_the_update(autojump_clock: object) -> None:
    """A new spec that fits nowhere takes one slot, not all of them."""
    async with manager_world() as world:
        await a_running_service(world, UpdateConfig())
        await update(world, constraints=("node.id==nowhere",))
        await trio.sleep(100)
        assert sorted(t.spec_version for t in world.running()) == [1, 1]
        (waiting,) = [t for t in world.tasks(live=True) if t.spec_version == 2]
        assert waiting.status.err == "no suitable node (scheduling constraints not satisfied on 2 nodes)"
