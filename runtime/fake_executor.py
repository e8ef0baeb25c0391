"""An executor without processes: for the simulator and for scenarios. The real one is `agent.executors.process`.

Theory of operation
-------------------
*Who outlives whom.* `FakeTasks` is what lives on a machine: the shims and their tasks. A `FakeExecutor` is what one life
of the agent holds of them. A crash of the agent is `executor.crash()`: its controllers refuse from then on, the tasks
stay, and the next agent gets `FakeExecutor(kernel, tasks)`. A power cut is `tasks.power_cut()`: processes, namespaces and
links are gone at once; what a shim keeps on disk is not, so the tasks that ran are found again, ended.

*The shim* is modelled whole, in trio's time: it holds the lease and takes the links down when it lapses, stops the task
then if it is fenced, ends the task when its script says so, and kills it when the grace is over. It runs beside the agent
as a system task of trio, because no nursery of the agent may own it. On a paused machine (`running`) it acts when the
machine runs again.
"""

from __future__ import annotations

import dataclasses
import math
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller, ExitStatus
from beeyard.runtime.stop_signal import signal_number


class NamespaceKernel(Protocol):
    """The part of a fake kernel that shims use."""

    def create_netns(self) -> str:
        """A fresh network namespace with loopback up; gives the path that `Netlink` takes."""

    def drop_netns(self, netns: str) -> None:
        """Drop a namespace and every link in it. Idempotent: yes."""

    def links_down(self, netns: str) -> None:
        """Take every link of the namespace except loopback down. Idempotent: yes; a namespace that is gone is fine."""


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """What a scripted task does. Times in seconds of trio's clock."""

    prepare_s: float = 0.0
    start_s: float = 0.0
    run_s: float = math.inf  # ends by itself so long after its start
    exit_code: int = 0  # of that end
    stop_s: float = 0.0  # from the stop signal to its end; beyond the grace it is killed
    links_down_s: float = 0.0  # what `links_down` takes
    fail_at: str = ""  # "prepare", "start", "stop", "links_down", "renew_lease" or "remove" raises ExecutorError
    fail_reason: str = "scripted failure"
    n_failures: int = 1 << 30  # so many calls fail, later ones work


Script = Callable[[AssignedTask], Behaviour]


def _behave(task: AssignedTask) -> Behaviour:
    """The script of tasks without a script: run until stopped."""
    return Behaviour()


async def _always_running() -> None:
    """A machine that is never paused."""


class FakeTask:
    """One task with its shim."""

    def __init__(self, tasks: FakeTasks, task: AssignedTask, pid: int, additions: Additions = NO_ADDITIONS) -> None:
        self.task, self.additions = task, additions
        self.behaviour = tasks.script(task)
        self.own_netns = HOST_NETWORK_ID not in task.spec.network_ids
        self.netns = tasks.kernel.create_netns() if self.own_netns else ""
        self.phase = "prepared"
        self.pid = 0
        self.exit: ExitStatus | None = None
        self.ended = trio.Event()
        self.lapsed = False
        self.gone = False  # its shim ended, or never was
        self._tasks = tasks
        self._shim_pid = pid
        self._lease_until = trio.current_time() + task.lease_s
        self._ends_at = math.inf
        self._end = ExitStatus(code=self.behaviour.exit_code)
        self._changed = trio.Event()
        trio.lowlevel.spawn_system_task(self._shim, name=f"shim of {task.id}")

    async def _shim(self) -> None:
        """Act when the lease lapses or the process ends, until the shim ends."""
        while not self.gone:
            self._changed = trio.Event()
            lapses_at = math.inf if self.lapsed else self._lease_until
            with trio.move_on_at(min(lapses_at, self._ends_at)):
                await self._changed.wait()
            await self._tasks.running()
            if self.gone:
                return
            now = trio.current_time()
            if not self.lapsed and self._lease_until <= now:
                self._lapse()
            if self._ends_at <= now:
                self._finish(self._end)

    def _lapse(self) -> None:
        self.lapsed = True
        self.links_down()
        if self.task.fence:
            self.signal(f"stopped: no word from a manager for {self.task.lease_s:g} s")

    def _finish(self, status: ExitStatus) -> None:
        self._ends_at = math.inf
        if self.phase == "started":
            self.exit = status
            self.phase = "exited"
            self.links_down()
            self.ended.set()

    def start(self) -> None:
        """Run from now on."""
        self.phase = "started"
        self.pid = self._shim_pid + 1
        self._ends_at = trio.current_time() + self.behaviour.run_s
        self._changed.set()

    def signal(self, reason: str = "") -> None:
        """Send the stop signal; the process ends `stop_s` later, or is killed when the grace is over."""
        if self.phase == "prepared":
            self.links_down()
            self.phase = "exited"
            self.ended.set()
        if self.phase != "started":
            return
        spec, stop_s = self.task.spec, self.behaviour.stop_s
        number = signal_number(spec.stop_signal)
        if stop_s > spec.stop_grace_s:
            number = int(signal.SIGKILL)
            reason = reason or f"killed: did not stop within {spec.stop_grace_s:g} s"
        ends_at = trio.current_time() + min(stop_s, spec.stop_grace_s)
        if ends_at < self._ends_at:
            self._ends_at = ends_at
            self._end = ExitStatus(code=128 + number, signal=number, reason=reason)
        self._changed.set()

    def finish(self, code: int = 0, *, reason: str = "") -> None:
        """The process ends by itself now."""
        self._finish(ExitStatus(code=code, reason=reason))

    def links_down(self) -> None:
        """As the shim does it: at once, for good."""
        if self.netns:
            self._tasks.kernel.links_down(self.netns)

    def renew_lease(self, remaining_s: float) -> None:
        """The lease ends so long from now; one that has lapsed stays lapsed."""
        self._lease_until = trio.current_time() + remaining_s
        self._changed.set()

    def shim_killed(self, reason: str) -> None:
        """Shim, process and namespace are gone; what was on disk is not."""
        self.gone = True
        self._finish(ExitStatus(code=128 + signal.SIGKILL, signal=signal.SIGKILL, reason=reason))
        self.drop()

    def drop(self) -> None:
        """The namespace goes, and with it the shim."""
        self.gone = True
        self.phase = "exited"
        self.pid = 0
        self.ended.set()
        self._changed.set()
        if self.netns:
            self._tasks.kernel.links_down(self.netns)
            self._tasks.kernel.drop_netns(self.netns)


class FakeTasks:
    """All tasks on one machine, by id. Survives every life of its agent."""

    def __init__(
        self,
        kernel: NamespaceKernel,
        *,
        script: Script = _behave,
        running: Callable[[], Awaitable[None]] = _always_running,
    ) -> None:
        self.kernel = kernel
        self.script = script
        self.running = running
        self.by_id: dict[str, FakeTask] = {}
        self._last_pid = 1000

    def add(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> FakeTask:
        """A new prepared task."""
        self._last_pid += 2
        made = self.by_id[task.id] = FakeTask(self, task, self._last_pid, additions)
        return made

    @property
    def started(self) -> list[str]:
        """Ids of the tasks whose process runs now, sorted."""
        return sorted(task_id for task_id, task in self.by_id.items() if task.phase == "started")

    def power_cut(self) -> None:
        """Everything in memory is gone. Tasks that had started are found ended by the next `recover`."""
        for task_id, task in list(self.by_id.items()):
            never_started = task.phase == "prepared"
            task.shim_killed("its shim is gone: killed, or this host restarted")
            if never_started:
                del self.by_id[task_id]


class FakeController:
    """A `Controller` on a `FakeTask`."""

    def __init__(self, executor: FakeExecutor, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> None:
        self._executor = executor
        self._task, self._additions = task, additions
        self._removed = False
        self._lapsed = self._fake is not None and self._fake.lapsed

    @property
    def _fake(self) -> FakeTask | None:
        return self._executor.tasks.by_id.get(self._task.id)

    @property
    def task_id(self) -> str:
        return self._task.id

    @property
    def netns(self) -> str:
        return self._fake.netns if self._fake else ""

    @property
    def phase(self) -> str:
        if self._fake is not None:
            return self._fake.phase
        return "exited" if self._removed else "new"

    @property
    def pid(self) -> int:
        return self._fake.pid if self._fake else 0

    @property
    def lapsed(self) -> bool:
        return self._lapsed

    async def _enter(self, phase: str) -> None:
        """A checkpoint, then the scripted failure of this call, if it has one."""
        await trio.lowlevel.checkpoint()
        self._executor.assert_alive(phase)
        fake = self._fake
        behaviour = fake.behaviour if fake else self._executor.tasks.script(self._task)
        if behaviour.fail_at == phase and self._executor.take_failure(self._task.id, behaviour.n_failures):
            raise ExecutorError(phase, behaviour.fail_reason)

    def _answered(self, phase: str) -> None:
        """The shim's answer is here, if there is still somebody to read it."""
        self._executor.assert_alive(phase)
        self._lapsed = self._fake.lapsed if self._fake else self._lapsed

    async def prepare(self) -> None:
        await self._enter("prepare")
        signal_number(self._task.spec.stop_signal)
        if self._fake is None:
            await trio.sleep(self._executor.tasks.script(self._task).prepare_s)
            self._executor.assert_alive("prepare")
        if self._fake is None:
            self._executor.tasks.add(self._task, self._additions)

    async def start(self) -> None:
        await self._enter("start")
        fake = self._fake
        if fake is None or (fake.phase == "exited" and fake.exit is None):
            raise ExecutorError("start", "the task is not prepared")
        if fake.lapsed and fake.phase == "prepared":
            fake.links_down()
            raise ExecutorError("start", "the lease lapsed before the task started")
        if fake.phase == "prepared":
            await trio.sleep(fake.behaviour.start_s)
            self._executor.assert_alive("start")
        if fake.phase == "prepared":
            fake.start()

    async def run(self) -> None:
        await self.prepare()
        await self.start()

    async def wait(self) -> ExitStatus:
        await self._enter("wait")
        fake = self._fake
        if fake is None:
            raise ExecutorError("wait", "the task never started")
        await fake.ended.wait()
        self._answered("wait")
        if fake.exit is None:
            raise ExecutorError("wait", "the task never started")
        return fake.exit

    async def stop(self, *, links_first: bool = False) -> ExitStatus | None:
        await self._enter("stop")
        fake = self._fake
        if fake is None:
            return None
        if links_first:
            fake.links_down()
        fake.signal()
        await fake.ended.wait()
        self._answered("stop")
        return fake.exit

    async def links_down(self) -> None:
        await self._enter("links_down")
        if self._fake is not None:
            await trio.sleep(self._fake.behaviour.links_down_s)
            self._answered("links_down")
        if self._fake is not None:
            self._fake.links_down()

    async def renew_lease(self, remaining_s: float) -> None:
        await self._enter("renew_lease")
        if self._fake is not None:
            self._fake.renew_lease(remaining_s)
            self._answered("renew_lease")

    async def remove(self) -> None:
        await self._enter("remove")
        fake = self._executor.tasks.by_id.pop(self._task.id, None)
        self._removed = True
        if fake is not None:
            fake.drop()


class FakeExecutor:
    """The `Executor` of one life of an agent, for image `host`.

    Args:
        kernel: the fake kernel of this host.
        tasks: what earlier lives left on it; None: a fresh machine.
        script: how each task behaves, for a fresh machine.
        running: returns when the machine is not paused, for a fresh machine.
    """

    name = "process"
    images: tuple[str, ...] = ("host",)
    log_drivers: tuple[str, ...] = ("local",)

    def __init__(
        self,
        kernel: NamespaceKernel,
        tasks: FakeTasks | None = None,
        *,
        script: Script = _behave,
        running: Callable[[], Awaitable[None]] = _always_running,
    ) -> None:
        self.tasks = tasks if tasks is not None else FakeTasks(kernel, script=script, running=running)
        self._crashed = False
        self._n_failed: dict[str, int] = {}

    def runs(self, image: str) -> bool:
        """Whether the image is `host`."""
        return image in self.images

    def crash(self) -> None:
        """The agent is dead: from now on nothing that its code still calls has an effect."""
        self._crashed = True

    def assert_alive(self, phase: str) -> None:
        """Refuse what a dead agent's clean-up code calls, with ExecutorError."""
        if self._crashed:
            raise ExecutorError(phase, "this agent has crashed")

    def take_failure(self, task_id: str, n_failures: int) -> bool:
        """Count one scripted failure; False when all of them have happened."""
        failed = self._n_failed.get(task_id, 0)
        self._n_failed[task_id] = failed + 1
        return failed < n_failures

    async def recover(self) -> list[Controller]:
        await trio.lowlevel.checkpoint()
        self.assert_alive("recover")
        return [FakeController(self, task.task) for _, task in sorted(self.tasks.by_id.items())]

    async def create(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> Controller:
        await trio.lowlevel.checkpoint()
        self.assert_alive("create")
        return FakeController(self, task, additions)


__all__ = ["Behaviour", "FakeController", "FakeExecutor", "FakeTask", "FakeTasks", "NamespaceKernel", "Script"]
