"""Generic resources in the manager: counted by placement, claimed by name once the node is known."""

from __future__ import annotations

import msgspec
import trio

from beeyard.core.states import TaskState
from beeyard.manager.control.service import update_service
from tests.support.builders import a_node, a_service, a_task_spec
from tests.support.manager_world import manager_world
from tests.support.memory_database import MemoryDatabase

S = TaskState


async def test_named_devices_are_claimed_once_and_given_to_who_comes_next(autojump_clock: object) -> None:
    async with manager_world() as world:
        one_each = a_task_spec(generic={"gpu": 1, "ssd": 2})
        await world.add(
            a_node("n1", generic={"gpu": ["a", "b"], "ssd": 7}), a_node("n2"), a_service(replicas=3, task=one_each)
        )
        await trio.sleep(1)
        running = world.running()
        assert [task.node_id for task in running] == ["n1", "n1"]
        assert sorted(claim.names for task in running for claim in task.claimed) == [(), (), ("a",), ("b",)]
        assert [(claim.kind, claim.amount) for claim in running[0].claimed] == [("gpu", 1), ("ssd", 2)]
        (waiting,) = [task for task in world.tasks() if task.status.state is S.PENDING]
        assert waiting.status.err == "no suitable node (insufficient resources on 2 nodes)"
        assert waiting.claimed == ()
        world.check_books()
        ended = running[0]
        await world.report(ended.id, S.FAILED)
        await trio.sleep(1)
        (heir,) = [task for task in world.running() if task.id not in {task.id for task in running}]
        assert heir.claimed == ended.claimed
        world.check_books()


async def test_a_manager_that_comes_back_knows_what_is_claimed(autojump_clock: object) -> None:
    database = MemoryDatabase()
    node, spec = a_node("n1", generic={"gpu": ["a", "b", "c"]}), a_task_spec(generic={"gpu": 1})
    async with manager_world(database) as world:
        await world.add(node, a_service(replicas=2, task=spec))
        await trio.sleep(1)
        before = {task.id: task.claimed for task in world.running()}
        assert len(before) == 2
    async with manager_world(database) as world:
        await world.scale(3)
        await trio.sleep(1)
        after = {task.id: task.claimed for task in world.running()}
        assert before.items() <= after.items()
        assert sorted(name for (claim,) in after.values() for name in claim.names) == ["a", "b", "c"]
        world.check_books()


async def test_a_task_keeps_the_strategy_that_its_service_named_when_it_was_made(autojump_clock: object) -> None:
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service(replicas=2, labels={"beeyard.strategy": "pack"}))
        await world.add(a_service("s2", name="plain"))
        await trio.sleep(1)
        assert {task.strategy for task in world.running()} == {"pack"}
        assert {task.strategy for task in world.running("s2")} == {""}
        before = world.running()
        service = world.store.services["s1"]
        spec = msgspec.structs.replace(service.spec, labels={"beeyard.strategy": "fgd"}, replicas=3)
        await update_service(world.store, "s1", service.version, spec)
        await trio.sleep(1)
        assert [task for task in world.running() if task.strategy == "pack"] == before, "a change replaces none"
        assert sorted(task.strategy for task in world.running()) == ["fgd", "pack", "pack"]
