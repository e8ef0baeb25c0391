"""System calls that Python 3.11 does not have, and the kernel's numbers for what a shim is told to do.

Standard library alone. Every failure is an `OSError` that names the call.
"""

from __future__ import annotations

import ctypes
import functools
import os

# Source: <linux/sched.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# Source: <linux/mount.h>
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19

# Source: <linux/prctl.h>
_PR_SET_NAME = 15

# No ctypes buffers here: each size of them makes a type of its own, which costs a small process 400 KiB of shared pages.
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> int:
    """Call a libc function that gives -1 and errno on failure."""
    result = int(getattr(_libc, name)(*args))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Give this process namespaces of its own; CLONE_NEWPID counts for its next child."""
    _call("unshare", ctypes.c_int(flags))


def enter_namespace(fd: int, flag: int) -> None:
    """Move this process into a namespace; with CLONE_NEWPID its later children."""
    _call("setns", ctypes.c_int(fd), ctypes.c_int(flag))


@functools.cache
def _title_place() -> tuple[int, int]:
    """Where this process's command line begins and ends in memory; a child has it in the same place."""
    with open("/proc/self/stat", "rb") as file:
        # Source: proc(5); fields 48 and 49 of the line, counted after the name, which may hold blanks.
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])


def set_title(*words: str) -> None:
    """Show another command line for this process, as far as the one it was started with leaves room."""
    start, end = _title_place()
    room = end - start
    text = b"\0".join(word.encode() for word in words)[: room - 1]
    # Safety: the kernel put the arguments between these addresses; Python copied them when it started.
    ctypes.memmove(start, text + b"\0" * (room - len(text)), room)
    name = words[0].encode()[:15]
    _call("prctl", ctypes.c_int(_PR_SET_NAME), ctypes.c_char_p(name), *(ctypes.c_ulong(0),) * 3)


__all__ = [
    "CLONE_NEWIPC",
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUTS",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "MS_SLAVE",
    "enter_namespace",
    "set_title",
    "unshare",
]
