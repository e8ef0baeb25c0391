"""The node hooks of this machine: executables in a directory, then Python entry points; see `NodeHooks` for the port.

Each call is a process of its own, held by a small one that knows how to end it, `real_hook_runner`: a hook that hangs,
crashes, or starts what never ends costs this node one call. A Python callable gets a process as well: a thread could not be
ended at its deadline, and in the agent's own process it could stop the agent.

What may be called at all is root's word: an executable, its directory, and all above it belong to root and nobody else
may write them (a directory of all, such as /tmp, with its sticky bit is fine). One that is not safe makes every call fail
until it is put right: to leave out a hook that guards something is no better than to run a stranger's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
import trio

from beeyard.core.errors import NodeHookError
from beeyard.runtime import real_hook_entry, real_hook_runner
from beeyard.runtime.host_tasks import HOOK_ANSWER_BYTES_MAX, HookAnswer, SeenPath
from beeyard.runtime.real_hook_streams import HookStreams, Kept

ENTRY_POINTS = "beeyard.node_hooks"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# 64 KiB of a hook's standard error are kept: its last words are in it.
STDERR_BYTES_MAX = 64 << 10
# 1 MiB: three calls of a dozen hooks that say all they may. Turned over once, as a task's log is.
LOG_BYTES_MAX = 1 << 20
# 5 s: killed processes end within milliseconds; one that waits for a dead disk does not end at all.
DEATH_S = 5.0
_RUNNER = os.path.abspath(real_hook_runner.__file__)
_ENTRY = os.path.abspath(real_hook_entry.__file__)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")

log = structlog.get_logger(__name__)

# Has a runner made for a command, with an environment and four descriptors, see `real_hook_runner.serve`; raises HostError.
# Gives what is awaited once it has ended.
Reap = Callable[[], Awaitable[object]]
Spawn = Callable[[Sequence[str], Mapping[str, str], Sequence[int]], Awaitable[Reap]]


class RealHooks:
    """The port `NodeHooks`.

    Args:
        directory: of the executables; it need not exist, and is read anew for each task.
        log_dir: where output is kept, a file a task; "": nowhere.
        python_path: where entry points are looked for, when the agent starts; None: where this process imports from.
        spawn: what makes the processes; None: this process does.
    """

    def __init__(
        self, directory: str, log_dir: str, *, python_path: Sequence[str] | None = None, spawn: Spawn | None = None
    ) -> None:
        self._directory = directory
        self._log_dir = log_dir
        self._python_path = list(sys.path if python_path is None else python_path)
        self._spawn = spawn or _spawn_here
        found = importlib.metadata.distributions(path=self._python_path)
        self._targets = {
            f"python:{entry.name}": entry.value
            for distribution in found
            for entry in distribution.entry_points
            if entry.group == ENTRY_POINTS
        }

    async def names(self) -> tuple[str, ...]:
        """See `NodeHooks.names`."""
        await trio.lowlevel.checkpoint()
        return (*self._executables(), *sorted(self._targets))

    def _executables(self) -> list[str]:
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise NodeHookError(self._directory, f"cannot be read: {error.strerror}") from error
        names = [name for name in names if not name.startswith(".") and not name.endswith("~")]
        for name in names:
            self._check(name)
        return names

    def _check(self, name: str) -> str:
        """The file of a hook, symbolic links resolved.

        Raises:
            NodeHookError: it is not safe to call.
        """
        if not _NAME.fullmatch(name):
            raise NodeHookError(repr(name), "has a name that cannot be: use letters, digits, '_', '.', '+' and '-'")
        path = os.path.realpath(f"{self._directory}/{name}")
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                raise NodeHookError(name, f"is not safe to call: {path} is no regular file")
            if not status.st_mode & stat.S_IXUSR:
                raise NodeHookError(
                    name, f"is not executable: chmod 755 {path}, or rename it to .{name} to switch it off"
                )
            for place in (os.path.realpath(self._directory), path):
                while True:
                    self._check_owner(name, place)
                    if place == "/":
                        break
                    place = os.path.dirname(place)
        except OSError as error:
            raise NodeHookError(name, f"cannot be read: {error.strerror}") from error
        return path

    def _check_owner(self, name: str, path: str) -> None:
        status = os.stat(path)
        if status.st_uid != 0:
            raise NodeHookError(name, f"is not safe to call: {path} belongs to user {status.st_uid}: it must be root's")
        sticky_directory = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky_directory:
            mode = stat.S_IMODE(status.st_mode)
            raise NodeHookError(
                name, f"is not safe to call: {path} has mode {mode:o}: others than its owner may not write it"
            )

    async def look(self, path: str) -> SeenPath | None:
        """See `NodeHooks.look`."""
        await trio.lowlevel.checkpoint()
        return _look(path)

    async def run(self, name: str, moment: str, task_id: str, document: bytes, *, timeout_s: float) -> HookAnswer:
        """See `NodeHooks.run`."""
        command = self._command(name, moment)
        started_s = time.monotonic()
        answer = None
        try:
            answer = await self._call(command, moment, task_id, document, timeout_s)
        except OSError as error:  # no process or descriptor more
            raise NodeHookError(name, f"cannot be called at {moment}: {error.strerror}") from error
        finally:
            path = self._keep(name, moment, task_id, answer, time.monotonic() - started_s)
        return HookAnswer(
            exit_code=answer.exit_code,
            stdout=answer.stdout,
            stderr=answer.stderr,
            late=answer.late,
            too_long=answer.too_long,
            output_path=path,
        )

    def _command(self, name: str, moment: str) -> list[str]:
        target = self._targets.get(name)
        if target is not None:
            return [sys.executable, "-I", "-B", _ENTRY, json.dumps(self._import_path()), target, moment]
        if not os.path.lexists(f"{self._directory}/{name}"):
            raise NodeHookError(name, f"is not in {self._directory} any more")
        return [self._check(name), moment]

    def _import_path(self) -> list[str]:
        return list(dict.fromkeys([*self._python_path, *sys.path]))

    async def _call(
        self, command: list[str], moment: str, task_id: str, document: bytes, timeout_s: float
    ) -> HookAnswer:
        """One process from its start until nothing of it is left."""
        environment = {"PATH": PATH, "LANG": "C.UTF-8", "BEEYARD_MOMENT": moment, "BEEYARD_TASK_ID": task_id}
        stdout, stderr = Kept(HOOK_ANSWER_BYTES_MAX), Kept(STDERR_BYTES_MAX, end=True)
        with HookStreams() as streams:
            try:
                reap = await self._spawn(command, environment, streams.theirs)
            finally:
                streams.hand_over()
            exit_code: int | None = None
            late = True
            try:
                with trio.move_on_after(timeout_s):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(streams.feed, document)
                        nursery.start_soon(stdout.take, streams.stdout)
                        nursery.start_soon(stderr.take, streams.stderr)
                        exit_code = await streams.exit_code()
                        if exit_code is None:  # then what is left of the hook may hold its streams for ever
                            nursery.cancel_scope.cancel()
                    late = False
            finally:
                streams.let_go()
                # Safety: bounded, and needed so that nothing is left when the caller goes on.
                with trio.CancelScope(shield=True), trio.move_on_after(DEATH_S) as scope:
                    await streams.exit_code()
                    await reap()
                if scope.cancelled_caught:
                    log.error("a process of a node hook does not die", command=command[0], task=task_id)
        if exit_code is None and not late:
            name = os.path.basename(command[0])
            raise NodeHookError(name, f"was lost at {moment}: the process that held it was killed")
        return HookAnswer(
            exit_code=128 if exit_code is None else exit_code,
            stdout=bytes(stdout.data),
            stderr=stderr.data.decode(errors="replace"),
            late=late,
            too_long=stdout.n_dropped > 0,
        )

    def _keep(self, name: str, moment: str, task_id: str, answer: HookAnswer | None, took_s: float) -> str:
        """Append a call to the task's file; its path, or "" when that failed."""
        if not self._log_dir:
            return ""
        path = f"{self._log_dir}/{task_id}.hooks.log"
        if answer is None:
            end = "killed: nobody waits for it any more"
        else:
            end = "killed: too late" if answer.late else f"exit code {answer.exit_code}"
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = f"--- {when} {name} {moment}: {end} after {took_s:.3f} s\n".encode()
        if answer is not None and answer.stderr:
            text += answer.stderr.rstrip().encode() + b"\n"
        if answer is not None and answer.stdout:
            text += b"--- answer\n" + answer.stdout.rstrip() + b"\n"
        try:
            os.makedirs(self._log_dir, mode=0o755, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_size + len(text) > LOG_BYTES_MAX:
                    os.replace(path, f"{path}.1")
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with open(fd, "ab") as file:
                file.write(text)
        except OSError as error:
            log.warning("the output of a node hook was not kept", hook=name, path=path, reason=error.strerror)
            return ""
        return path


def _look(path: str) -> SeenPath | None:
    try:
        real = os.path.realpath(path)  # fails at a link that cannot be read, as those of some processes in /proc
        mode = os.stat(real).st_mode
    except (OSError, ValueError):
        return None
    kind = "other"
    if stat.S_ISDIR(mode):
        kind = "directory"
    elif stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        kind = "device"
    return SeenPath(path=real, kind=kind)


async def _spawn_here(argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]) -> Reap:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", "-B", _RUNNER, *map(str, fds), *argv],
        pass_fds=tuple(fds),
        start_new_session=True,
        cwd="/",
        env=dict(environment),
    )
    return process.wait


__all__ = ["ENTRY_POINTS", "RealHooks"]
