"""A directory, or a network namespace, that one daemon at a time may use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator

import structlog

from beeyard.core.errors import DiskError, HostError

LOCK_FILE = "lock"
# Source: Linux struct ucred: pid, uid, gid.
_CREDENTIALS = struct.Struct("3i")
# 5 s: what a process held is given back when its last thread is gone, and the last copy of the descriptor in a child that is
# just about to exec. Both take milliseconds, more on a busy machine.
ENDING_S = 5.0
# Each look asks whose it is, which nobody hears: of these, the kernel keeps as many as a listener may have waiting.
LOOK_S = 0.1

log = structlog.get_logger(__name__)


class NetworkTaken(HostError):
    """A daemon of the same kind has this network namespace. `pid`: its process, 0 if it is not known."""

    def __init__(self, who: str, pid: int) -> None:
        super().__init__(who, pid)
        self.who = who
        self.pid = pid

    def __str__(self) -> str:
        pid = f" (pid {self.pid})" if self.pid else ""
        return (
            f"another {self.who}{pid} is in this network namespace: they would take each other's VLANs, routes and host-side "
            "links away; stop that one, or set share_network for both"
        )


@contextlib.contextmanager
def sole_use(directory: str, who: str) -> Iterator[None]:
    """Have a directory to oneself, against all processes of this machine that ask the same way, until the block is left.

    However the process ends, the kernel gives the lock back: neither an exec nor a child that outlives it takes it along.
    That of a process which is just ending is waited for. A directory that did not exist and is empty in the end is removed
    again.

    Args:
        directory: absolute; made when it is not there.
        who: of which kind the users of the directory are, "agent"; the error says so.

    Raises:
        DiskError: somebody else uses it, or it cannot be made.
    """
    path = f"{directory}/{LOCK_FILE}"
    try:
        existed = os.path.isdir(directory)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = _locked(path)
    except BlockingIOError as error:
        raise DiskError("use", directory, f"another {who} (pid {_pid_in(path) or 'unknown'}) uses it") from error
    except OSError as error:
        raise DiskError("use", directory, error.strerror or str(error)) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if not existed and os.listdir(directory) == [LOCK_FILE]:
                os.unlink(path)
                os.rmdir(directory)  # Refused when somebody has come this instant and made a lock of its own.
        os.close(descriptor)


@contextlib.contextmanager
def sole_in_network(who: str) -> Iterator[None]:
    """Have the network namespace of this thread to oneself, against all that ask the same way, until the block is left.

    The lock is a unix socket without a file, whose names each namespace has for itself; the kernel gives it back however
    the process ends, and no exec takes it along. That of a process which is just ending is waited for. Any user may have
    taken the name: one who is not this process's does not count.

    Args:
        who: of which kind the users of the namespace are, "agent"; the error says so.

    Raises:
        NetworkTaken: somebody else has it.
    """
    name = f"\0beeyard-{who}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as held:
        deadline_s = time.monotonic() + ENDING_S
        while not _bound(held, name):
            pid, uid = _owner(name)
            if uid not in (None, os.geteuid()):
                log.warning("the lock of this network namespace is in the hands of another user", pid=pid, uid=uid)
                break
            if not _is_ending(pid) or time.monotonic() > deadline_s:
                raise NetworkTaken(who, pid)
            time.sleep(LOOK_S)
        yield


def _bound(held: socket.socket, name: str) -> bool:
    """Take a name; False when somebody else has it."""
    try:
        held.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    held.listen()  # Else nobody could ask whose it is.
    return True


def _owner(name: str) -> tuple[int, int | None]:
    """(process, user) that listens at a name; (0, None) when that cannot be told, as in its first instant."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as asking:
        try:
            asking.connect(name)
        except OSError:
            return 0, None
        pid, uid, _ = _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return pid, uid


def _is_ending(pid: int) -> bool:
    """Whether a process is gone, or is as good as that; 0, which is nobody known, is not."""
    if pid <= 0:
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"  # its other threads may live a moment longer, and hold what was its


def _locked(path: str) -> int:
    """The locked file, with our pid in it; BlockingIOError when another process has it."""
    deadline_s = time.monotonic() + ENDING_S
    while True:
        try:
            return _locked_at_once(path)
        except BlockingIOError:
            if not _is_ending(_pid_in(path)) or time.monotonic() > deadline_s:
                raise
        time.sleep(LOOK_S)


def _locked_at_once(path: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    _sign(descriptor)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # Its last owner removed it between our two calls: it locks nothing any more.


def _sign(descriptor: int) -> None:
    """Say whose lock it is; on a full disk nobody will know, and the lock holds all the same."""
    with contextlib.suppress(OSError):
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)


def _pid_in(path: str) -> int:
    """Who has signed; 0 when that cannot be told."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return int(file.read(20))
    except (OSError, ValueError):
        return 0


__all__ = ["LOCK_FILE", "NetworkTaken", "sole_in_network", "sole_use"]
