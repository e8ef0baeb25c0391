"""A real machine for the executor's conformance suite: this one, with directories and cgroups of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from beeyard.agent.executors.process import cgroups, remains
from beeyard.agent.executors.process.executor import ProcessExecutor
from beeyard.agent.executors.process.logs import KEEP, Keep
from beeyard.core.model import Limits
from beeyard.runtime.host import Controller, ExitStatus
from tests.support.executor_machine import EXITS_3, IGNORES_TERM, MISSING, RUNS, a_task

COMMANDS = {
    EXITS_3: ("sh", "-c", "echo ready; sleep 0.05; exit 3"),
    RUNS: ("sh", "-c", "echo ready; exec sleep 3600"),
    IGNORES_TERM: ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"),
    MISSING: ("no-such-program-here", "--at-all"),
}
# 30 s: what the kernel finishes after the fact takes milliseconds, and a program a second to start on a very busy machine.
SETTLE_S = 30.0


class ProcessMachine:
    """A `Machine` with the real executor."""

    def __init__(self, directory: str, keep: Keep = KEEP) -> None:
        self.directory = directory
        self._keep = keep
        self.executor = self._new_executor()
        self._netns: dict[str, int] = {}

    def _new_executor(self) -> ProcessExecutor:
        return ProcessExecutor(
            f"{self.directory}/state", f"{self.directory}/log", hidden=(f"{self.directory}/secret",), keep=self._keep
        )

    def command(self, kind: str) -> tuple[str, ...]:
        return COMMANDS[kind]

    def log(self, task_id: str = "t" * 25) -> str:
        """A task's output."""
        with open(self.executor.places.log(task_id)) as file:
            return file.read()

    async def until_ready(self, controller: Controller) -> None:
        with trio.fail_after(SETTLE_S):
            while "ready" not in self.log(controller.task_id):  # noqa: ASYNC110 - the log sends no event
                await trio.sleep(0.01)

    async def restart_agent(self) -> None:
        if self.executor.zygote_pid:
            os.kill(self.executor.zygote_pid, signal.SIGKILL)
        await self.executor.aclose()
        self.executor = self._new_executor()

    def processes(self, task_id: str = "t" * 25) -> list[int]:
        """Shim and init of a task."""
        found = remains.processes(self.executor.places).get(task_id, [])
        return [
            pid for pid in found if os.path.exists(f"/proc/{pid}/exe")
        ]  # the dead that wait for their reaper have none

    async def until_zygote_is_childless(self) -> None:
        """Wait until all that the zygote and its helper were asked for has been started, and has ended."""
        await self.executor._zygote.ask("sweep", places=self.executor.places, spared=["t" * 25])
        with trio.fail_after(SETTLE_S):
            while len(self._below(self.executor.zygote_pid)) > 1:  # noqa: ASYNC110 - the kernel sends no event
                await trio.sleep(0.005)

    def _below(self, pid: int) -> list[int]:
        """Children of a process, and theirs."""
        found: list[int] = []
        with contextlib.suppress(OSError):
            for child in map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
                found += [child, *self._below(child)]
        return found

    async def kill_shim(self, task_id: str) -> None:
        os.kill(self.processes(task_id)[0], signal.SIGKILL)

    def _netns_fd(self, controller: Controller) -> int:
        """The task's namespace, held from the first time it is asked for, as a neighbour on the LAN would see it."""
        if controller.task_id not in self._netns:
            self._netns[controller.task_id] = os.open(controller.netns, os.O_RDONLY)
        return self._netns[controller.task_id]

    async def ip(self, controller: Controller, *words: str) -> str:
        """Run ip(8) in a task's namespace, or in this one."""
        inside: list[str] = []
        fds: list[int] = []
        if controller.netns or controller.task_id in self._netns:
            fds = [self._netns_fd(controller)]
            inside = ["nsenter", f"--net=/proc/self/fd/{fds[0]}"]
        done = await trio.run_process([*inside, "ip", *words], capture_stdout=True, pass_fds=fds)
        return done.stdout.decode()

    async def add_link(self, controller: Controller) -> None:
        await self.ip(controller, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0peer")
        await self.ip(controller, "link", "set", "eth0", "up")

    async def links_up(self, controller: Controller) -> list[str]:
        lines = (await self.ip(controller, "-o", "link", "show", "up")).splitlines()
        return [name for line in lines if (name := line.split(": ")[1]) != "lo"]

    def _leftovers(self) -> list[str]:
        places = self.executor.places
        found = [
            f"process {pid} of {task_id}" for task_id in remains.processes(places) for pid in self.processes(task_id)
        ]
        found += [f"cgroup {name}" for name in cgroups.children(places.hierarchies(), places.cgroup_parent)]
        for name in ("shims", "tasks"):
            with contextlib.suppress(FileNotFoundError):
                found += [f"{name}/{entry}" for entry in os.listdir(f"{places.state_dir}/{name}")]
        with open("/proc/self/mountinfo") as file:
            found += [line for line in file if self.directory in line]
        with open("/proc/net/unix") as file:
            found += [line for line in file if places.state_dir in line]
        return found

    async def leftovers_now(self) -> list[str]:
        """Without waiting for the kernel."""
        await trio.lowlevel.checkpoint()
        return self._leftovers()

    async def leftovers(self) -> list[str]:
        for fd in self._netns.values():
            os.close(fd)
        self._netns.clear()
        with trio.move_on_after(SETTLE_S):
            while self._leftovers():  # noqa: ASYNC110 - the kernel sends no event
                await trio.sleep(0.01)
        return self._leftovers()

    async def aclose(self) -> None:
        """Remove all that a failed check may have left."""
        await self.executor.aclose()
        places = self.executor.places
        for task_id, pids in remains.processes(places).items():
            await trio.to_thread.run_sync(remains.clean, places, task_id, pids)
        for task_id in cgroups.children(places.hierarchies(), places.cgroup_parent):
            await trio.to_thread.run_sync(remains.clean, places, task_id, [])
        cgroups.remove_parent(places.hierarchies(), places.cgroup_parent)
        shutil.rmtree(self.directory)

    async def run(self, script: str, **spec: object) -> tuple[ExitStatus, str]:
        """Run a shell script as a task to its end; gives that and its output, after the task is removed."""
        limits = spec.pop("limits", Limits())
        task = a_task(self, RUNS, command=("sh", "-c", script), limits=limits, **spec)  # type: ignore[arg-type]
        controller = await self.executor.create(task)
        await controller.prepare()
        try:
            await controller.start()
            with trio.fail_after(20):
                return await controller.wait(), self.log()
        finally:
            await controller.remove()


@asynccontextmanager
async def a_process_machine(parent: str = "/var/lib", *, keep: Keep = KEEP) -> AsyncIterator[ProcessMachine]:
    """A fresh one, with its files in a new directory below `parent`, and so many logs kept."""
    directory = tempfile.mkdtemp(prefix="beeyard-test-", dir=parent)
    os.chmod(directory, 0o755)
    machine = ProcessMachine(directory, keep)
    try:
        yield machine
    finally:
        await machine.aclose()


__all__ = ["ProcessMachine", "a_process_machine"]
