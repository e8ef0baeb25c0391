"""Task records survive a restart, and a damaged one harms nobody."""

from __future__ import annotations

import pytest
import trio

from beeyard.agent.local_state import KIND, LocalState, TaskRecord
from beeyard.core.errors import DiskError
from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from beeyard.runtime import real
from beeyard.runtime.host import Record
from beeyard.runtime.sqlite_database import SqliteDatabase
from tests.support.agent_machine import RECORDS, STATE_DIR, Machine
from tests.support.agent_tasks import an_assigned


@pytest.fixture
def machine() -> Machine:
    return Machine()


def a_record(task_id: str, state: TaskState = TaskState.STARTING) -> TaskRecord:
    return TaskRecord(assigned=an_assigned(task_id, address="10.77.0.64/24"), status=TaskStatus(state=state))


async def a_state(machine: Machine) -> LocalState:
    """In a new life of the agent, which the machine gives the database to."""
    machine.disk.opened.pop(RECORDS, None)
    state = LocalState(machine.host(), STATE_DIR)
    await state.load()
    return state


async def test_what_was_saved_is_there_after_a_power_cut(machine, autojump_clock):
    state = await a_state(machine)
    await state.save(a_record("t1", TaskState.ASSIGNED))
    await state.save(a_record("t1"))
    await state.save(a_record("t2"))
    await state.remove("t2")
    machine.disk.power_cut()
    assert await (await a_state(machine)).load() == {"t1": a_record("t1")}


async def test_a_damaged_record_is_dropped_alone(machine, autojump_clock):
    state = await a_state(machine)
    await state.save(a_record("t1"))
    await state.aclose()
    database = await machine.host().open_database(RECORDS)
    await database.commit([Record(index=2, kind=KIND, id="t2", data=b"\xc1garbage")])
    await database.aclose()
    assert await (await a_state(machine)).load() == {"t1": a_record("t1")}
    assert await machine.records() == ["t1"]


async def test_removing_what_is_not_there_costs_no_write(machine, autojump_clock):
    n_commits = 0

    def count(path: str, batch: object) -> None:
        nonlocal n_commits
        n_commits += 1

    machine.disk.on_commit = count
    state = await a_state(machine)
    await state.remove("t9")
    assert n_commits == 0
    await state.save(a_record("t9"))
    await state.remove("t9")
    assert n_commits == 2


async def test_a_full_disk_is_an_error_and_leaves_the_older_record(machine, autojump_clock):
    state = await a_state(machine)
    await state.save(a_record("t1", TaskState.ASSIGNED))
    machine.disk.full = True
    with pytest.raises(DiskError):
        await state.save(a_record("t1", TaskState.STARTING))
    with pytest.raises(DiskError):
        await state.save(a_record("t2"))
    assert {t: r.status.state for t, r in (await state.load()).items()} == {"t1": TaskState.ASSIGNED}
    machine.disk.full = False
    await state.remove("t2")
    await state.save(a_record("t1", TaskState.STARTING))
    assert {t: r.status.state for t, r in (await state.load()).items()} == {"t1": TaskState.STARTING}


async def test_what_many_write_at_one_time_is_synced_together(machine, autojump_clock):
    """Each is answered once its own is durable; those who come while the disk is busy share the next transaction."""
    batches: list[int] = []
    machine.disk.on_commit = lambda path, batch: batches.append(len(batch))
    state = await a_state(machine)
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(state.save, a_record(f"t{number:02}"))
    assert sum(batches) == 50
    assert len(batches) <= 2
    assert len(await state.load()) == 50


async def test_a_caller_that_gives_up_leaves_the_others_alone(machine, autojump_clock):
    state = await a_state(machine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state.save, a_record("first"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await state.save(a_record("given-up"))
        nursery.start_soon(state.save, a_record("second"))
    records = await state.load()
    assert {"first", "second"} <= set(records) <= {"first", "second", "given-up"}


async def test_a_disk_that_failed_to_sync_is_read_anew(tmp_path):
    """Nobody knows what it holds then; the caller hears of it, and the next one writes on what is really there."""

    state = LocalState(real.host(), str(tmp_path))
    assert await state.load() == {}
    assert list(tmp_path.iterdir()) == []
    await state.save(a_record("t1"))
    assert isinstance(state._database, SqliteDatabase)
    state._database._failed = "the disk failed to sync; restart the daemon to read what it holds"
    with pytest.raises(DiskError, match="failed to sync"):
        await state.save(a_record("t2"))
    await state.save(a_record("t3"))
    assert set(await state.load()) == {"t1", "t3"}
    await state.aclose()
