"""What agents are told of routes to tasks on other hosts, over real sessions."""

from __future__ import annotations

import msgspec

from beeyard.core.model import Task
from beeyard.core.states import TaskState
from beeyard.core.wire import Assignments, Routes, Welcome
from tests.support.builders import a_service, a_task
from tests.support.dispatch_world import a_dispatch_world
from tests.support.grants import a_grant

S = TaskState


def a_routed_task(task_id: str, node_id: str, address: str) -> Task:
    grant = a_grant(address, driver="ipvlan", mode="l3", gateways=())
    return msgspec.structs.replace(a_task(task_id, state=S.ASSIGNED, node_id=node_id), grants=(grant,))


async def test_routes_come_before_the_tasks_that_need_them(autojump_clock: object) -> None:
    """When a task comes to a node that had none, and with the first words of a session."""
    async with a_dispatch_world() as world:
        here, there = await world.join("yard1"), await world.join("yard2")
        await world.put(a_service(), a_routed_task("far", there.node_id, "10.8.0.2/24"))
        agent = await world.session(here)
        await agent.hear_nothing()
        await world.put(a_routed_task("near", here.node_id, "10.8.0.1/24"))
        routes = await agent.hear(Routes)
        assert ([r.destination for r in routes.routes], routes.complete) == (["10.8.0.2/32"], False)
        assert [task.id for task in (await agent.hear(Assignments)).tasks] == ["near"]
        await agent.close()
        again = await world.say_hello(here)
        await again.hear(Welcome)
        routes = await again.hear(Routes)
        assert ([r.destination for r in routes.routes], routes.complete) == (["10.8.0.2/32"], True)
        assert (await again.hear(Assignments)).complete


async def test_a_crowd_of_tasks_elsewhere_is_told_in_few_messages(autojump_clock: object) -> None:
    """A hundred tasks that come one by one within a second give a handful of messages."""
    async with a_dispatch_world() as world:
        here, there = await world.join("yard1"), await world.join("yard2")
        await world.put(a_service(), a_routed_task("near", here.node_id, "10.8.0.1/24"))
        agent = await world.session(here)
        for number in range(100):
            await world.put(a_routed_task(f"far{number}", there.node_id, f"10.8.1.{number}/24"))
        told: list[Routes] = []
        while sum(len(message.routes) for message in told) < 100:
            told.append(await agent.hear(Routes))
        assert len(told) < 6
