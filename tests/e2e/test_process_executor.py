"""The real process executor on the real kernel: the conformance suite, and what only a kernel can show."""

from __future__ import annotations

import os

import pytest

from beeyard.agent.executors.process.executor import PRUNE_EVERY
from beeyard.agent.executors.process.logs import Keep
from tests.support.executor_conformance import CHECKS, Check
from tests.support.executor_machine import RUNS, a_task
from tests.support.process_machine import a_process_machine

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_process_executor_keeps_the_promise(check: Check) -> None:
    """Every promise of the conformance suite holds on the real kernel."""
    async with a_process_machine() as machine:
        await check(machine)


async def test_an_executor_that_ran_nothing_leaves_nothing() -> None:
    """An agent looks for its tasks before it joins; when no cluster lets it in, no directory tells of it."""
    async with a_process_machine() as machine:
        assert await machine.executor.recover() == []
        await machine.executor.aclose()
        assert os.listdir(machine.directory) == []


async def test_logs_of_removed_tasks_do_not_pile_up() -> None:
    """They are looked after when an agent starts, and now and then; a task that is here keeps its own."""
    async with a_process_machine(keep=Keep(n_tasks=2)) as machine:
        here = await machine.executor.create(a_task(machine, RUNS, task_id="h" * 25))
        await here.prepare()
        await here.start()
        for number in range(PRUNE_EVERY + 1):
            controller = await machine.executor.create(a_task(machine, RUNS, task_id=f"t{number:024}"))
            await controller.prepare()
            await controller.start()
            await controller.remove()
        logs = f"{machine.directory}/log"
        newest = sorted(f"t{PRUNE_EVERY - back:024}.log" for back in range(3))
        assert sorted(os.listdir(logs)) == [f"{'h' * 25}.log", *newest]
        await machine.restart_agent()
        (found,) = await machine.executor.recover()
        assert sorted(os.listdir(logs)) == [f"{'h' * 25}.log", *newest[1:]]
        await found.remove()
        assert await machine.leftovers() == []
