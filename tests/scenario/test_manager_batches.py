"""Many tasks that wait together and are to be packed: decided in one batch, with what that achieved."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio
from structlog.testing import capture_logs

from beeyard.core import decision_log
from beeyard.core.batch import TASKS_MIN, PackingReport
from beeyard.core.labels import LABEL_STRATEGY
from beeyard.core.model import Service, TaskSpec
from beeyard.core.placement import Decision, Demand, PlacementIndex
from beeyard.core.recorded_index import RecordedIndex
from beeyard.core.replay import replay
from beeyard.manager.batches import Lot, in_lots
from beeyard.manager.blocked import Group
from tests.support.builders import CPU, GIB, a_node, a_service, a_task_spec
from tests.support.manager_world import ManagerWorld, manager_world

HALF = TASKS_MIN // 2
# Two kinds of tasks that fill a node together: one after another they would not meet.
MUCH_CPU = a_task_spec(cpu_nano=7 * CPU, memory_bytes=2 * GIB)
MUCH_MEMORY = a_task_spec(cpu_nano=3 * CPU, memory_bytes=8 * GIB)


def packed(service_id: str, replicas: int, task: TaskSpec, strategy: str = "pack") -> Service:
    service = a_service(service_id, name=service_id, replicas=replicas, task=task)
    labels = {**service.spec.labels, LABEL_STRATEGY: strategy}
    return msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, labels=labels))


async def add_nodes(world: ManagerWorld, n_nodes: int) -> None:
    await world.add(*(a_node(f"n{n}", cpu_nano=10 * CPU, memory_bytes=10 * GIB) for n in range(n_nodes)))


async def test_services_to_be_packed_are_decided_together_when_many_tasks_wait(autojump_clock: object) -> None:
    """They need no node more than the bound, which is logged for each resource, and a replay decides the same."""
    written: list[bytes] = []
    async with manager_world(index=RecordedIndex(written.append)) as world:
        with capture_logs() as logged:
            await world.add(packed("a", HALF, MUCH_CPU), packed("b", HALF, MUCH_MEMORY), a_service("s1", replicas=3))
            await trio.sleep(1)  # There is no node yet: all wait.
            await add_nodes(world, 2 * HALF)
            await trio.sleep(2)
        assert [len(world.running(service_id)) for service_id in ("a", "b", "s1")] == [HALF, HALF, 3]
        on = {task.node_id for service_id in ("a", "b") for task in world.running(service_id)}
        batches = world.planner.batches
        assert (batches.n_batches, batches.n_tasks) == (1, TASKS_MIN)
        assert batches.last is not None
        assert (batches.last.opened, batches.last.bound, batches.last.gap) == (HALF, HALF, 0.0)
        assert len(on) == HALF
        assert batches.by_kind() == [("cpu", HALF, 0.0), ("memory", HALF, 0.0)]
        (said,) = [entry for entry in logged if entry["event"] == "packed"]
        assert said["gap"] == {"cpu": 0.0, "memory": 0.0}
        world.check_books()
    data = b"".join(written)
    groups = [entry.groups for entry in decision_log.entries(data) if isinstance(entry, decision_log.PlaceMany)]
    assert [len(task_ids) for _, task_ids in groups[-1]] == [HALF, HALF]
    assert replay(data).difference == ""


async def test_what_a_batch_has_no_room_for_waits_with_the_reason_and_goes_on_alone(autojump_clock: object) -> None:
    async with manager_world() as world:
        await add_nodes(world, 100)
        await world.add(packed("a", TASKS_MIN, MUCH_CPU), packed("b", 5, MUCH_MEMORY))
        await trio.sleep(2)
        assert len(world.running("a")) + len(world.running("b")) >= 100
        waiting = [task for task in world.tasks(live=True, service_id="a") if not task.node_id]
        assert {task.status.err for task in waiting} == {"no suitable node (insufficient resources on 100 nodes)"}
        index = world.store.index
        await trio.sleep(100)
        assert world.store.index == index, "waiting costs no writes"
        await add_nodes_from(world, 100, 200)
        await trio.sleep(2)
        assert len(world.running("a")) == TASKS_MIN
        world.check_books()


async def add_nodes_from(world: ManagerWorld, begin: int, n_nodes: int) -> None:
    await world.add(*(a_node(f"n{n}", cpu_nano=10 * CPU, memory_bytes=10 * GIB) for n in range(begin, begin + n_nodes)))


async def test_few_tasks_and_those_to_be_spread_are_not_packed_together(autojump_clock: object) -> None:
    async with manager_world() as world:
        await add_nodes(world, 50)
        await world.add(packed("a", TASKS_MIN - 1, a_task_spec()), packed("b", TASKS_MIN, a_task_spec(), "spread"))
        await trio.sleep(2)
        assert len(world.running("a")) + len(world.running("b")) == 2 * TASKS_MIN - 1
        assert (world.planner.batches.n_batches, world.planner.batches.by_kind()) == (0, [])


class Defective(PlacementIndex):
    """Raises in batches, when their tasks are held already."""

    def place_many(
        self, groups: Sequence[tuple[Demand, Sequence[str]]], *, now_s: float = 0.0, rounds: int = 0
    ) -> tuple[list[Decision], PackingReport | None]:
        super().place_many(groups, now_s=now_s, rounds=rounds)
        raise OverflowError("value too large to convert to int32_t")


async def test_a_defect_met_in_a_batch_has_its_services_decided_one_by_one(autojump_clock: object) -> None:
    async with manager_world(index=Defective()) as world:
        with capture_logs() as logged:
            await add_nodes(world, 50)
            await world.add(packed("a", HALF, a_task_spec()), packed("b", HALF, a_task_spec()))
            await trio.sleep(2)
        assert sum(entry["event"] == "scheduling failed" for entry in logged) == 2
        assert len(world.running("a")) + len(world.running("b")) == TASKS_MIN
        assert not any(task.status.err for task in world.tasks(service_id="a"))
        world.check_books()


def test_lots_are_no_larger_than_what_can_be_decided_at_once() -> None:
    """The work of a lot is its tasks times its groups."""
    groups: list[Group] = [(f"s{n}", 1, 0, "n7" if n % 50 == 3 else "") for n in range(400)]
    lots = in_lots(groups, lambda group: 400, lambda group: not group[3] and group[0] != "s8")
    assert sorted(group for lot in lots for group in lot.groups) == sorted(groups)
    assert [lot.groups[0][3] for lot in lots[:8]] == ["n7"] * 8
    assert lots[-1] == Lot([("s8", 1, 0, "")], packed=False)
    assert [len(lot.groups) for lot in lots[8:-1]] == [158, 158, 75]
    assert all(lot.packed for lot in lots[8:-1])
    assert in_lots(groups[:1], lambda group: 999, lambda group: False) == [Lot(groups[:1], packed=False)]
