"""The node hooks of this machine: executables in a directory, then Python entry points; see `NodeHooks` for the port.

Each call is a process of its own, held by a small one that knows how to end it, `real_hook_runner`: 20 ms a call, and a
hook that hangs, crashes, or starts what never ends costs this node one call. A Python callable gets a process as well: a
thread could not be ended at its deadline, and in the agent's own process it could stop the agent.

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
import subprocess
import sys
import time
from collections.abc import Sequence

import structlog
import trio

from beeyard.core.errors import NodeHookError
from beeyard.runtime import real_hook_entry, real_hook_runner
from beeyard.runtime.host_tasks import HOOK_ANSWER_BYTES_MAX, HookAnswer, SeenPath

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


class RealHooks:
    """The port `NodeHooks`.

    Args:
        directory: of the executables; it need not exist, and is read anew for each task.
        log_dir: where output is kept, a file a task; "": nowhere.
        python_path: where entry points are looked for, when the agent starts; None: where this process imports from.
        owner: user id that has to own what is called.
    """

    def __init__(
        self, directory: str, log_dir: str, *, python_path: Sequence[str] | None = None, owner: int = 0
    ) -> None:
        self._directory = directory
        self._log_dir = log_dir
        self._python_path = list(sys.path if python_path is None else python_path)
        self._owner = owner
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
        if status.st_uid not in (0, self._owner):
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
            answer = await _call(command, moment, task_id, document, timeout_s)
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
    real = os.path.realpath(path)
    try:
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


async def _call(command: list[str], moment: str, task_id: str, document: bytes, timeout_s: float) -> HookAnswer:
    """One process from its start until nothing of it is left."""
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "BEEYARD_MOMENT": moment, "BEEYARD_TASK_ID": task_id}
    ours, theirs = os.pipe2(os.O_CLOEXEC)[::-1]  # what the runner reads ends when we close ours, or die
    try:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", "-B", _RUNNER, str(theirs), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs,),
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    stdout, stderr = _Kept(HOOK_ANSWER_BYTES_MAX), _Kept(STDERR_BYTES_MAX, end=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    late = True
    try:
        with trio.move_on_after(timeout_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process.stdin, document)
                nursery.start_soon(stdout.take, process.stdout)
                nursery.start_soon(stderr.take, process.stderr)
                await process.wait()
            late = False
    finally:
        os.close(ours)
        # Safety: bounded, and needed so that nothing is left when the caller goes on.
        with trio.CancelScope(shield=True):
            with trio.move_on_after(DEATH_S):
                await process.wait()
            if process.returncode is None:
                log.error("a process of a node hook does not die", command=command[0], task=task_id)
                process.kill()
                await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                await stream.aclose()
    return HookAnswer(
        exit_code=process.returncode or 0,
        stdout=bytes(stdout.data),
        stderr=stderr.data.decode(errors="replace"),
        late=late,
        too_long=stdout.n_dropped > 0,
    )


async def _feed(stream: trio.abc.SendStream, document: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # a hook need not read
        await stream.send_all(document)
    await stream.aclose()


class _Kept:
    """A bounded part of what comes: its beginning, or its end."""

    def __init__(self, n_bytes_max: int, *, end: bool = False) -> None:
        self.data = bytearray()
        self.n_dropped = 0
        self._n_bytes_max = n_bytes_max
        self._end = end

    async def take(self, stream: trio.abc.ReceiveStream) -> None:
        """Read to the end."""
        while chunk := await stream.receive_some(65536):
            self.data += chunk
            surplus = max(0, len(self.data) - self._n_bytes_max)
            self.n_dropped += surplus
            if surplus:
                if self._end:
                    del self.data[:surplus]
                else:
                    del self.data[self._n_bytes_max :]


__all__ = ["ENTRY_POINTS", "RealHooks"]
