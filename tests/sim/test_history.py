"""What follows the manager's store finds what it is there for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import trio
from trio.testing import MockClock

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.model import Task, TaskSpec, TaskStatus
from beeyard.core.states import TaskState
from beeyard.runtime.host import Database, Record
from beeyard.runtime.sim import SimWorld
from tests.sim.history import History, check_store_is
from tests.sim.test_lan import GRANT, a_world, bring_up, kernel_of

STORE = "/store.db"
TASK = Task(id="t1", service_id="s1", service_name="web", slot=1, spec=TaskSpec())


def changed(task: Task, *, state: TaskState | None = None, **fields: object) -> Task:
    """A task with other values."""
    if state is not None:
        fields["status"] = TaskStatus(state=state)
    return msgspec.structs.replace(task, **fields)  # type: ignore[arg-type]


GRANTED = changed(TASK, state=TaskState.ASSIGNED, node_id="n1", grants=(GRANT,))
ENDED = changed(GRANTED, state=TaskState.FAILED)


async def store(database: Database, *tasks: Task) -> None:
    """Commit each on its own."""
    index, _ = await database.load()
    for number, task in enumerate(tasks, index + 1):
        await database.commit([Record(index=number, kind="task", id=task.id, data=msgspec.msgpack.encode(task))])


async def a_watched_store(world: SimWorld) -> tuple[History, Database]:
    """A machine's store and its history."""
    history = History(world, STORE)
    history.watch("m1")
    return history, await world.host("m1").open_database(STORE)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ({"state": TaskState.RUNNING}, {"state": TaskState.STARTING}, "from RUNNING to STARTING"),
        ({"state": TaskState.FAILED}, {"state": TaskState.RUNNING}, "from FAILED to RUNNING"),
        ({"desired_state": TaskState.SHUTDOWN}, {"desired_state": TaskState.RUNNING}, "was to be SHUTDOWN"),
        ({"node_id": "n1"}, {"node_id": "n2"}, "moved from n1 to n2"),
        ({}, {"spec": TaskSpec(image="host")}, "spec of task t1 changed"),
        ({"state": TaskState.ASSIGNED, "node_id": "n1"}, {"grants": (GRANT,)}, "grants of task t1 changed"),
        ({"state": TaskState.ASSIGNED}, {"state": TaskState.RUNNING}, ""),
        ({}, {}, ""),
    ],
)
async def test_a_task_that_goes_back_is_found(
    autojump_clock: MockClock, before: dict[str, object], after: dict[str, object], sentence: str
) -> None:
    """Everything that was ever stored of a task is compared with what came next."""
    one = changed(TASK, **before)  # type: ignore[arg-type]
    other = changed(one, **after)  # type: ignore[arg-type]
    async with SimWorld(1) as world:
        _, database = await a_watched_store(world)
        if not sentence:
            await store(database, one, other)
            return
        with pytest.raises(AssertionError, match=sentence):
            await store(database, one, other)


async def test_an_address_that_is_granted_twice_is_found(autojump_clock: MockClock) -> None:
    """Whether or not both tasks ever come up."""
    async with SimWorld(1) as world:
        _, database = await a_watched_store(world)
        with pytest.raises(AssertionError, match=r"10\.77\.0\.64 of task t1 was also granted to task t2"):
            await store(database, GRANTED, changed(GRANTED, id="t2"))


@pytest.mark.parametrize("rest_s", [COOL_DOWN_S - 1, COOL_DOWN_S])
async def test_an_address_that_is_granted_before_its_rest_is_over_is_found(
    autojump_clock: MockClock, rest_s: float
) -> None:
    """Counted from when the end of the task before was stored."""
    async with SimWorld(1) as world:
        _, database = await a_watched_store(world)
        await store(database, GRANTED, ENDED)
        await trio.sleep(rest_s)
        if rest_s == COOL_DOWN_S:
            await store(database, changed(GRANTED, id="t2"))
            return
        with pytest.raises(AssertionError, match=r"was granted to task t2 29\.\d* s after"):
            await store(database, changed(GRANTED, id="t2"))


async def test_an_end_that_is_stored_while_the_links_are_up_is_found(autojump_clock: MockClock) -> None:
    """The stored end is the word on which the address goes to somebody else."""
    async with a_world() as world:
        _, database = await a_watched_store(world)
        netns = await bring_up(world, "a1", "t1")
        await store(database, GRANTED)
        with pytest.raises(AssertionError, match=r"t1 was stored as FAILED while 10\.77\.0\.64 was up on a1"):
            await store(database, ENDED)
        kernel_of(world, "a1").kernel.links_down(netns)
        await store(database, ENDED)


def cut_power(world: SimWorld) -> None:
    """Between writing and syncing the tail may be kept, lost or torn."""
    world.power_cut("m1")


@pytest.mark.parametrize("lose", [cut_power, lambda world: world.machine("m1").disk.truncate(STORE, 0)])
async def test_what_was_durable_and_is_gone_is_found(
    autojump_clock: MockClock, lose: Callable[[SimWorld], None]
) -> None:
    """A power cut loses nothing that was synced; a disk that loses it is found out."""
    async with SimWorld(1) as world:
        history, database = await a_watched_store(world)
        await store(database, GRANTED)
        await database.aclose()
        lose(world)
        if lose is cut_power:
            await check_store_is(history, "m1")
            return
        with pytest.raises(AssertionError, match="the store ends at 0, and 1 was durable"):
            await check_store_is(history, "m1")
