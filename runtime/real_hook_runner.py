"""The process that holds one call of a node hook: `python -I -S -B real_hook_runner.py LIFELINE PROGRAM [ARGUMENT…]`.

Theory of operation
-------------------
The agent starts it for each call, with the hook's three streams as its own and with the end of a pipe whose other end the
agent alone holds. The hook runs in a session and process group of its own. When it ends, or when the pipe ends (the agent
says that it is enough, or is dead), every process that came from the hook is killed and reaped, those included that went
into a session of their own: as *subreaper* this process becomes the parent of whoever loses theirs. Then it ends with the
hook's exit code.

Standard library alone. Source: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys

_PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN = 126  # as a shell says it


def main(lifeline: int, argv: list[str]) -> int:
    """Run the hook to its end or to that of the lifeline; its exit code."""
    os.set_inheritable(lifeline, False)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _become(argv)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1):  # the hook's alone: who reads its output sees the end when it has ended
        os.dup2(null, stream)
    status = _wait(pid, lifeline, woken)
    _end_all(pid)
    if status is None:
        return 128 + signal.SIGKILL
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _become(argv: list[str]) -> None:
    """In the child: become the hook, or say why not. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        os.execve(argv[0], argv, os.environ)
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
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    me = os.getpid()
    with open(f"/proc/self/task/{me}/children") as file:
        return [int(child) for child in file.read().split()]


if __name__ == "__main__":
    # Not `sys.exit`: nothing of the interpreter's own end is needed, and the agent waits.
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
