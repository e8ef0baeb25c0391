"""The fake executor keeps the promises of the real one, and its scripts do what they say."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import attach
from beeyard.runtime.fake_executor import Behaviour, FakeExecutor
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import Controller, ExitStatus
from tests.support.executor_conformance import CHECKS, Check
from tests.support.executor_machine import EXITS_3, IGNORES_TERM, MISSING, RUNS, a_task
from tests.support.grants import a_grant


def by_command(task: AssignedTask) -> Behaviour:
    """The conformance commands, scripted."""
    return {
        EXITS_3: Behaviour(run_s=0.05, exit_code=3),
        RUNS: Behaviour(),
        IGNORES_TERM: Behaviour(stop_s=math.inf),
        MISSING: Behaviour(fail_at="start", fail_reason=f"{MISSING}: not found"),
    }[task.spec.command[0]]


class FakeMachine:
    """A `Machine` around the fake executor."""

    def __init__(self) -> None:
        self.kernel = FakeKernel()
        self.executor = FakeExecutor(self.kernel, script=by_command)

    def command(self, kind: str) -> tuple[str, ...]:
        return (kind,)

    async def until_ready(self, controller: Controller) -> None:
        await trio.lowlevel.checkpoint()

    async def restart_agent(self) -> None:
        self.executor.crash()
        self.executor = FakeExecutor(self.kernel, self.executor.tasks)

    async def kill_shim(self, task_id: str) -> None:
        self.executor.tasks.by_id[task_id].shim_killed("its shim was killed")

    async def add_link(self, controller: Controller) -> None:
        await attach(self.kernel, controller.netns, a_grant(), "eth0")

    async def links_up(self, controller: Controller) -> list[str]:
        if controller.netns and controller.netns not in self.kernel.namespaces:
            return []
        return [link.name for link in self.kernel.links_of(controller.netns) if link.answers]

    async def leftovers(self) -> list[str]:
        return [*self.kernel.namespaces, *self.executor.tasks.by_id]


@asynccontextmanager
async def a_machine() -> AsyncIterator[FakeMachine]:
    yield FakeMachine()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_fake_executor_keeps_the_promise(check: Check, autojump_clock: trio.testing.MockClock) -> None:
    """Every promise of the conformance suite holds in virtual time."""
    async with a_machine() as machine:
        await check(machine)


async def test_power_cut_ends_what_ran_and_forgets_what_did_not(autojump_clock: trio.testing.MockClock) -> None:
    """After a power cut no namespace is left; started tasks are found ended, with a reason."""
    machine = FakeMachine()
    running = await machine.executor.create(a_task(machine, task_id="a" * 25))
    prepared = await machine.executor.create(a_task(machine, task_id="b" * 25))
    await running.prepare()
    await prepared.prepare()
    await running.start()
    machine.executor.tasks.power_cut()
    assert machine.kernel.namespaces == ()
    await machine.restart_agent()
    (found,) = await machine.executor.recover()
    assert "restarted" in (await found.wait()).reason


async def test_dead_agent_changes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Clean-up code of a crashed agent cannot stop tasks that the next agent adopts."""
    machine = FakeMachine()
    old = await machine.executor.create(a_task(machine))
    await old.prepare()
    await old.start()
    await machine.restart_agent()
    for call in (old.stop, old.remove, old.links_down, old.wait):
        with pytest.raises(ExecutorError, match="crashed"):
            with trio.fail_after(100):
                await call()
    assert machine.executor.tasks.started == ["t" * 25]


@pytest.mark.parametrize("phase", ["prepare", "start", "stop", "links_down", "renew_lease", "remove"])
async def test_scripted_failure_happens_in_its_phase(phase: str, autojump_clock: trio.testing.MockClock) -> None:
    """A task fails where its script says, as often as it says, and then works."""
    kernel = FakeKernel()
    executor = FakeExecutor(kernel, script=lambda task: Behaviour(fail_at=phase, n_failures=1))
    controller = await executor.create(a_task(FakeMachine()))
    failed = []
    steps = {
        "prepare": controller.prepare,
        "start": controller.start,
        "links_down": controller.links_down,
        "renew_lease": lambda: controller.renew_lease(5),
        "stop": controller.stop,
        "remove": controller.remove,
    }
    for name, call in steps.items():
        try:
            await call()
        except ExecutorError as error:
            failed.append((name, error.phase))
            await call()
    assert [(phase, phase)] == failed
    assert kernel.namespaces == ()


async def test_scripted_times_pass_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    """Delays, run time and exit code are as scripted."""
    script = Behaviour(prepare_s=2, start_s=3, run_s=10, exit_code=7)
    executor = FakeExecutor(FakeKernel(), script=lambda task: script)
    controller = await executor.create(a_task(FakeMachine()))
    await controller.prepare()
    await controller.start()
    assert trio.current_time() == 5
    assert ExitStatus(code=7) == await controller.wait()
    assert trio.current_time() == 15


async def test_lease_on_a_paused_machine_ends_when_it_runs_again(autojump_clock: trio.testing.MockClock) -> None:
    """A paused machine's shim acts late, but before anything else can find the links up."""
    resumed = trio.Event()
    machine = FakeMachine()
    machine.executor = FakeExecutor(machine.kernel, script=by_command, running=resumed.wait)
    controller = await machine.executor.create(a_task(machine, lease_s=5.0))
    await controller.prepare()
    await machine.add_link(controller)
    await trio.sleep(60)
    assert await machine.links_up(controller) == ["eth0"]
    resumed.set()
    await trio.testing.wait_all_tasks_blocked()
    assert await machine.links_up(controller) == []
