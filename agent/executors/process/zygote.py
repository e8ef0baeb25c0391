"""The one process that starts others: started by the agent, single-threaded, with few imports, so that it is cheap and safe.

A request is one datagram with the descriptor of a socket on which its child answers, and perhaps a second one. For a task
the child is a shim, the program `beeyard-shim` (`native/`), which gets its order from the agent itself; it is started without
a fork of this process (vfork and exec), as process 1 of a PID namespace. For all else, which is seldom, the request is JSON
and the child a fork. The zygote does nothing itself, so no request waits for another. It ends when the agent does; shims go
on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

from beeyard.agent.executors.process import cgroups, kernel, logs, remains
from beeyard.agent.executors.process.order import ZYGOTE_TITLE, Places, reason_of
from beeyard.runtime import real_hook_runner

SOCKET_FD = 3
SHIM_FD = 3  # where a shim has the agent's socket
# Made of native/ when Beeyard is built.
SHIM_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "beeyard-shim")
# How a request for a shim begins; its command line follows, by which tasks are found.
SHIM = b"beeyard-shim\0"
# 64 KiB: a request holds paths and an id.
REQUEST_BYTES_MAX = 1 << 16
FDS_MAX = 4  # a socket to answer on, and the streams of a hook
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Serve the agent on descriptor 3 until it is gone."""
    _set_signals()
    kernel.set_title(ZYGOTE_TITLE, *sys.argv[1:2])
    os.chdir("/")
    os.umask(0o022)
    server = socket.socket(fileno=SOCKET_FD)
    server.set_inheritable(False)
    starter = _ShimStarter()
    cgroups.here()  # once, and not in every child
    # Objects that exist now are never traversed again, so that their pages stay shared with every child.
    gc.disable()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(server, REQUEST_BYTES_MAX, FDS_MAX)
        if not data:
            return
        if data.startswith(SHIM):
            starter.start(data, fds[0])
        elif os.fork() == 0:
            _child(server, data, fds)
        for fd in fds:
            os.close(fd)


def _set_signals() -> None:
    """For itself and for every child: what the agent's parent may have ignored or blocked has its default again."""
    mine = os.getpid()

    def reap(*_: object) -> None:
        if os.getpid() != mine:
            return  # a fork
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in _IGNORED else signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGTERM, reap)  # at shutdown: shims stop their tasks, the zygote ends with the agent
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class _ShimStarter:
    """What starting a shim needs, made ready once."""

    def __init__(self) -> None:
        self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._why_not = ""
        try:
            # Kept open: when an upgrade replaces the program, this zygote's agent goes on with the one that it knows.
            self._program = f"/proc/self/fd/{os.open(SHIM_PROGRAM, os.O_RDONLY | os.O_CLOEXEC)}"
        except OSError as error:
            self._why_not = f"the program of the shim is missing: {reason_of(error)}"

    def start(self, command: bytes, answer: int) -> None:
        """Start one with the agent's socket as its descriptor 3; on that a failure is told."""
        if self._why_not:
            _say(answer, error=self._why_not)
            return
        null, dup2 = self._null, os.POSIX_SPAWN_DUP2
        kernel.unshare(kernel.CLONE_NEWPID)  # the next child is process 1 of a namespace of its own
        try:
            os.posix_spawn(
                self._program,
                command.split(b"\0"),
                {},
                # A shim outlives whoever reads the agent's standard error.
                file_actions=[(dup2, answer, SHIM_FD), (dup2, null, 0), (dup2, null, 1), (dup2, null, 2)],
            )
        except OSError as error:
            _say(answer, error=f"cannot start a shim: {error.strerror}")
        finally:
            kernel.enter_namespace(self._pid_namespace, kernel.CLONE_NEWPID)


def _say(fd: int, **fields: object) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(fields).encode() + b"\n")


def _child(server: socket.socket, data: bytes, fds: list[int]) -> None:
    """In a fork, do what one request asks for; never returns."""
    try:
        server.close()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        if (request := json.loads(data))["op"] == "hook":
            real_hook_runner.serve(fds, request["argv"], request["env"])
        else:
            _say(fds[0], **_answer(request, fds[1:]))
    except BaseException:  # nobody above could handle it
        _say(fds[0], error=traceback.format_exc())
    finally:
        os._exit(0)


def _answer(request: dict[str, Any], fds: list[int]) -> dict[str, object]:
    """Serve a request that is no hook's."""
    places = Places(*request["places"])
    task_id = str(request.get("task_id"))
    try:
        match request["op"]:
            case "sweep":
                return dict(remains.sweep(places, frozenset(request["spared"])))
            case "prune":
                logs.prune(places, logs.Keep(*request["keep"]))
                return {}
            case "bury":
                status = remains.bury(places, task_id)
                if fds:
                    remains.take_links_down(fds[0])
                return {"exit": status._asdict() if status else None}
            case "clean":
                if fds:
                    remains.take_links_down(fds[0])
                remains.clean(places, task_id)
                return {}
            case unknown:
                return {"error": f"unknown request {unknown}"}
    except OSError as error:
        return {"error": reason_of(error)}


__all__ = ["main"]
