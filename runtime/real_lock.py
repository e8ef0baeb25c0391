"""A directory that one daemon at a time may use."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from beeyard.core.errors import DiskError

LOCK_FILE = "lock"


@contextlib.contextmanager
def sole_use(directory: str, who: str) -> Iterator[None]:
    """Have a directory to oneself, against all processes of this machine that ask the same way, until the block is left.

    However the process ends, the kernel gives the lock back: neither an exec nor a child that outlives it takes it along.
    A directory that did not exist and is empty in the end is removed again.

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
        raise DiskError("use", directory, f"another {who} (pid {_pid_in(path)}) uses it") from error
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


def _locked(path: str) -> int:
    """The locked file, with our pid in it; BlockingIOError when another process has it."""
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


def _pid_in(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(20).strip() or "unknown"
    except OSError:
        return "unknown"


__all__ = ["LOCK_FILE", "sole_use"]
