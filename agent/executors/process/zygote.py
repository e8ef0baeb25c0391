"""The one process that forks: started by the agent, single-threaded, with few imports, so that a fork is cheap and safe.

A request is one datagram of JSON with the descriptor of a socket on which its child answers, and perhaps a second one. The
zygote forks for each and does nothing itself, so no request waits for another. It ends when the agent does; its children
that are shims go on.
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

from beeyard.agent.executors.process import cgroups, kernel, launch, logs, remains, shim
from beeyard.agent.executors.process.order import ZYGOTE_TITLE, Places, reason_of
from beeyard.runtime import real_hook_runner

SOCKET_FD = 3
# The request for a shim, which gets its order from the agent itself. Recognised without parsing: whatever the zygote
# touches between two forks is a page that the earlier child no longer shares.
SHIM = b"shim"
# 64 KiB: a request holds paths and an id.
REQUEST_BYTES_MAX = 1 << 16
FDS_MAX = 4  # a socket to answer on, and the streams of a hook


def main() -> None:
    """Serve the agent on descriptor 3 until it is gone."""
    _set_signals()
    kernel.set_title(ZYGOTE_TITLE, *sys.argv[1:2])
    os.chdir("/")
    os.umask(0o022)
    server = socket.socket(fileno=SOCKET_FD)
    server.set_inheritable(False)
    pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    _warm_up()
    # Objects that exist now are never traversed again, so that their pages stay shared with every child.
    gc.disable()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(server, REQUEST_BYTES_MAX, FDS_MAX)
        if not data:
            return
        if data == SHIM:
            kernel.unshare(kernel.CLONE_NEWPID)  # the next child is process 1 of a namespace of its own
        if os.fork() == 0:
            _child(server, data, fds)
        kernel.enter_namespace(pid_namespace, kernel.CLONE_NEWPID)
        for fd in fds:
            os.close(fd)


def _set_signals() -> None:
    """For itself and for every shim: what the agent's parent may have ignored or blocked has its default again."""
    mine = os.getpid()

    def reap(*_: object) -> None:
        if os.getpid() != mine:
            return  # a shim, which is woken by its wakeup descriptor
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in launch.IGNORED else signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGTERM, reap)  # at shutdown: shims stop their tasks, the zygote ends with the agent
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _warm_up() -> None:
    """Do once what every child would do on its own otherwise: reading tables, loading libraries."""
    cgroups.here()
    kernel.last_capability()
    launch.find_user("")


def _child(server: socket.socket, data: bytes, fds: list[int]) -> None:
    """Do what one request asks for; never returns."""
    try:
        server.close()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        if data == SHIM:
            os.dup2(null, 2)  # a shim outlives whoever reads the agent's standard error
            os.close(null)
            shim.serve(socket.socket(fileno=fds[0]))
        elif (request := json.loads(data))["op"] == "hook":
            real_hook_runner.serve(fds, request["argv"], request["env"])
        else:
            os.write(fds[0], json.dumps(_answer(request, fds[1:])).encode() + b"\n")
    except EOFError:  # the agent gave up before it had asked for anything
        pass
    except BaseException:  # nobody above could handle it
        with contextlib.suppress(OSError):
            os.write(fds[0], json.dumps({"error": traceback.format_exc()}).encode() + b"\n")
    finally:
        os._exit(0)


def _answer(request: dict[str, Any], fds: list[int]) -> dict[str, object]:
    """Serve a request that is no shim's."""
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
