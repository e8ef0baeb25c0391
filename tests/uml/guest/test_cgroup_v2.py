"""The process executor where cgroup v2 is all there is: those of its tests that a cgroup decides, here once more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.test_process_crash import test_idle_executor_leaves_no_cgroup, test_killed_zygote_is_replaced
from tests.e2e.test_process_task import (
    test_cpu_limit_throttles,
    test_hostile_work_dir_is_removed,
    test_memory_limit_kills_and_says_so,
    test_orphans_end_with_the_program,
    test_own_stop_signal_is_sent,
    test_pids_limit_bounds_a_fork_bomb,
    test_task_has_no_privileges,
)
from tests.support.executor_conformance import Check, check_phases_come_in_order, check_stop_kills_after_the_grace
from tests.support.executor_survival import check_tasks_outlive_the_agent
from tests.support.process_machine import ProcessMachine, a_process_machine

__all__ = [
    "test_cpu_limit_throttles",
    "test_hostile_work_dir_is_removed",
    "test_idle_executor_leaves_no_cgroup",
    "test_killed_zygote_is_replaced",
    "test_memory_limit_kills_and_says_so",
    "test_orphans_end_with_the_program",
    "test_own_stop_signal_is_sent",
    "test_pids_limit_bounds_a_fork_bomb",
    "test_task_has_no_privileges",
]


@pytest.fixture
async def machine() -> AsyncIterator[ProcessMachine]:
    """This host with an executor; what it leaves behind fails the test."""
    async with a_process_machine() as made:
        yield made
        assert await made.leftovers() == []


@pytest.mark.parametrize(
    "check", [check_phases_come_in_order, check_stop_kills_after_the_grace, check_tasks_outlive_the_agent]
)
async def test_process_executor_keeps_the_promise(check: Check, machine: ProcessMachine) -> None:
    """The order of a task's life, its hard end, and its life without an agent."""
    await check(machine)


def test_cgroup_v2_is_all_there_is() -> None:
    """No hierarchy of version 1 is mounted, so no limit is set there."""
    kinds = {line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    assert {kind for kind in kinds if kind.startswith("cgroup")} == {"cgroup2"}
