"""The process that holds one call of a node hook.

Theory of operation
-------------------
The agent has one for each call, with the hook's three streams and one end of a socket pair whose other end the agent alone
holds. The hook runs in a session and process group of its own. When it ends, or when the socket does (the agent says that it
is enough, or is dead), every process that came from the hook is killed and reaped, those included that went into a session
of their own: as *subreaper* this process becomes the parent of whoever loses theirs. Then the hook's exit code goes over the
socket, as a line of JSON, and this process ends.

It is two processes, one in the other: who kills the one that holds the hook (the kernel when memory is short, or a hook its
own parent) leaves what came from the hook to the outer one, which only waits, and then ends that. The inner one ends with it.

It is a fork of the process that forks for the agent, see `agent.executors.process.helper`, which may have rights that the
agent has not; without one it is a program: `python -I -S -B real_hook_runner.py SOCKET IN OUT ERR PROGRAM [ARGUMENT…]`.

Standard library alone. Source: prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN = 126  # as a shell says it


def serve(fds: Sequence[int], argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Hold one call, and answer; who calls this ends then, in both processes.

    Args:
        fds: the socket, then what the hook gets as its standard streams.
    """
    _adopt_orphans()
    outer = os.getpid()
    inner = os.fork()
    if inner:
        for stream in fds[1:4]:  # the hook's alone: who reads its output sees the end when it has ended
            os.close(stream)
        os.waitpid(inner, 0)
        _end_children()  # nobody, unless the inner one was killed
        return
    _die_with(outer)
    code = _run(fds[0], fds[1:4], argv, environment)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        os.write(fds[0], json.dumps({"exit": code}).encode() + b"\n")


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _run(lifeline: int, streams: Sequence[int], argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the hook to its end or to that of the lifeline; its exit code."""
    _adopt_orphans()
    woken, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _become(streams, argv, environment)
    for stream in streams:
        os.close(stream)
    status = _wait(pid, lifeline, woken)
    _end_all(pid)
    if status is None:
        return 128 + signal.SIGKILL
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _become(streams: Sequence[int], argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """In the child: become the hook, or say why not. Never returns."""
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        signal.set_wakeup_fd(-1)
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # if somebody kills the runner itself
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        os.execve(argv[0], list(argv), dict(environment))
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


def _wait(pid: int, lifeline: int, woken: int) -> int | None:
    """Reap until the hook has ended, and give its wait status; None when the lifeline ended first, or a signal came."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if woken in ready:
            if set(os.read(woken, 4096)) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
                return None
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == pid:
                    return ended[1]
        if lifeline in ready:
            return None


def _end_all(pid: int) -> None:
    """Kill and reap the hook's group, and then whoever is left or comes to us, until nobody does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _end_children()


def _end_children() -> None:
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    me = os.readlink("/proc/self")
    with open(f"/proc/self/task/{me}/children") as file:
        return [int(child) for child in file.read().split()]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    serve([int(word) for word in sys.argv[1:5]], sys.argv[5:], os.environ)
    os._exit(0)  # nothing of the interpreter's own end is needed, and the agent waits
