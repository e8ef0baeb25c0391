"""What is seldom, done by a fork that may block: calling node hooks, ending and removing what tasks left, pruning logs.

The zygote (`native/zygote.c`) starts this process when there is something for it, and passes requests on: one datagram of
JSON with the descriptor of a socket on which the answer goes, and perhaps more. It forks for each and does nothing itself, so
no request waits for another; therefore it is single-threaded and has few imports. It ends when the zygote does.
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
from beeyard.agent.executors.process.order import HELPER_TITLE, Places, reason_of
from beeyard.runtime import real_hook_runner

SOCKET_FD = 3
# 64 KiB: a request holds paths and an id, or the environment of a hook. As in native/zygote.c.
REQUEST_BYTES_MAX = 1 << 16
FDS_MAX = 4  # a socket to answer on, and the streams of a hook
# As in native/launch.c.
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Serve the zygote on descriptor 3 until it is gone."""
    _set_signals()
    kernel.set_title(HELPER_TITLE, *sys.argv[1:2])
    os.chdir("/")
    os.umask(0o022)
    server = socket.socket(fileno=SOCKET_FD)
    server.set_inheritable(False)
    cgroups.here()  # once, and not in every child
    # Objects that exist now are never traversed again, so that their pages stay shared with every child.
    gc.disable()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(server, REQUEST_BYTES_MAX, FDS_MAX)
        if not data:
            return
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            if json.loads(data)["op"] != "hook":  # its caller sees the descriptors end
                _say(fds[0], error=f"cannot start a process for it: {error.strerror}")
        if pid == 0:
            _child(server, data, fds)
        for fd in fds:
            os.close(fd)


def _set_signals() -> None:
    """Reap forks, and leave those that the zygote ignores."""
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
