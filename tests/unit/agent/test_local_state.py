"""Task records survive a restart, and a damaged one harms nobody."""

from __future__ import annotations

import random

import pytest

from beeyard.agent.local_state import LocalState, TaskRecord
from beeyard.core.errors import DiskError
from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from beeyard.runtime.sim_disk import SimDisk, SimFiles
from beeyard.runtime.sim_life import Life, PauseSwitch
from tests.support.agent_tasks import an_assigned


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


@pytest.fixture
def files(disk: SimDisk) -> SimFiles:
    return SimFiles(disk, Life("n1", PauseSwitch()))


def a_record(task_id: str, state: TaskState = TaskState.STARTING) -> TaskRecord:
    return TaskRecord(assigned=an_assigned(task_id, address="10.77.0.64/24"), status=TaskStatus(state=state))


async def test_what_was_saved_is_there_after_a_power_cut(disk, files, autojump_clock):
    state = LocalState(files, "/state")
    await state.save(a_record("t1", TaskState.ASSIGNED))
    await state.save(a_record("t1"))
    await state.save(a_record("t2"))
    await state.remove("t2")
    disk.power_cut()
    assert await LocalState(files, "/state").load() == {"t1": a_record("t1")}


async def test_a_damaged_record_is_dropped_alone(files, autojump_clock):
    state = LocalState(files, "/state")
    await state.save(a_record("t1"))
    await files.replace("/state/tasks/t2", b"\xc1garbage")
    assert await state.load() == {"t1": a_record("t1")}
    assert await files.list("/state/tasks") == ["t1"]


async def test_removing_what_is_not_there_is_fine(files, autojump_clock):
    await LocalState(files, "/state").remove("t9")


async def test_a_full_disk_is_an_error_and_leaves_the_older_record(disk, files, autojump_clock):
    state = LocalState(files, "/state")
    await state.save(a_record("t1", TaskState.ASSIGNED))
    disk.full = True
    with pytest.raises(DiskError):
        await state.save(a_record("t1", TaskState.STARTING))
    assert (await state.load())["t1"].status.state is TaskState.ASSIGNED


@pytest.mark.parametrize("task_id", ["../identity", "a/b", "", "."])
async def test_an_id_cannot_leave_the_directory(files, task_id):
    with pytest.raises(AssertionError):
        await LocalState(files, "/state").remove(task_id)
