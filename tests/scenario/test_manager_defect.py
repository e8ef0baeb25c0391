"""What an error of ours costs that is met while deciding on one service: its own tasks wait, nobody else's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
import trio
from structlog.testing import capture_logs

from beeyard.core.placement import Decision, Demand, PlacementIndex
from beeyard.manager.blocked import FAILED_S
from tests.support.builders import a_node, a_service, a_task_spec
from tests.support.manager_world import manager_world


class Defective(PlacementIndex):
    """An index that raises for one service: before anything is held, or when all of its tasks are."""

    def __init__(self, service_id: str, *, late: bool) -> None:
        super().__init__()
        self.service_id = service_id
        self.late = late

    def place(
        self, demand: Demand, task_ids: Sequence[str], *, masked: Collection[str] = (), now_s: float = 0.0
    ) -> Decision:
        if demand.service_id != self.service_id:
            return super().place(demand, task_ids, masked=masked, now_s=now_s)
        if self.late:
            super().place(demand, task_ids, masked=masked, now_s=now_s)
        raise OverflowError("value too large to convert to int32_t")


@pytest.mark.parametrize("late", [False, True])
async def test_a_defect_in_one_service_keeps_its_tasks_waiting_and_no_others(
    autojump_clock: object, late: bool
) -> None:
    """The manager lives, other services run, the tasks say why they wait, and run once it works."""
    index = Defective("s1", late=late)
    async with manager_world(index=index) as world:
        with capture_logs() as logged:
            await world.add(a_node("n1"), a_service("s1", replicas=2), a_service("s2", name="db"))
            await trio.sleep(1)
            await world.add(a_node("n2"))  # A change that would have a blocked group looked at.
            await world.scale(2, "s2")
            await trio.sleep(FAILED_S / 2)
        assert len(world.running("s2")) == 2
        assert [task.status.err for task in world.tasks()] == ["internal error while scheduling"] * 2
        failures = [entry for entry in logged if entry["event"] == "scheduling failed"]
        assert [entry["service"] for entry in failures] == ["s1"]
        assert failures[0]["exc_info"]
        index.service_id = ""
        await trio.sleep(FAILED_S)
        assert len(world.running("s1")) == 2
        world.check_books()


async def test_a_stored_limit_that_no_column_holds_stops_nobody(autojump_clock: object) -> None:
    """Such specs may lie in the store of a manager that has to start with them."""
    huge = a_task_spec(cpu_nano=2**64 - 1, max_replicas_per_node=2**31)
    async with manager_world() as world:
        await world.add(a_node("n1"), a_service("s1", task=a_task_spec(max_replicas_per_node=2**63)))
        await world.add(a_service("s2", name="db", task=huge))
        await trio.sleep(1)
        assert len(world.running("s1")) == 1
        assert [task.status.err for task in world.tasks(service_id="s2")] == [
            "no suitable node (insufficient resources on 1 node)"
        ]
