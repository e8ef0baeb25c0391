"""System calls that Python 3.11 does not have, and what a namespace's own processes need of them.

Standard library alone. Every failure is an `OSError` that names the call.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import socket
import struct

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
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

# Source: <linux/if.h>, <linux/sockios.h>
_IFF_UP = 1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914

CLOCK_BOOTTIME = 7

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


def set_hostname(name: str) -> None:
    """The name in this process's UTS namespace."""
    socket.sethostname(name)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2); an error names the target."""
    try:
        _call(
            "mount",
            ctypes.c_char_p(source.encode()),
            ctypes.c_char_p(target.encode()),
            ctypes.c_char_p(kind.encode()),
            ctypes.c_ulong(flags),
            ctypes.c_char_p(options.encode()),
        )
    except OSError as error:
        raise OSError(
            error.errno, f"cannot mount {kind or source} on {target}: {os.strerror(error.errno or 0)}"
        ) from None


def _prctl(option: int, *args: int) -> int:
    padded = [*args, 0, 0, 0, 0][:4]
    return _call("prctl", ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded))


def set_no_new_privileges() -> None:
    """No program that is executed from here on can gain privileges."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


@functools.cache
def last_capability() -> int:
    """The greatest capability that this kernel knows."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def bound_capabilities(kept: frozenset[int]) -> None:
    """No program that is executed from here on can have another capability than `kept`. Needs CAP_SETPCAP."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(last_capability() + 1):
        if capability not in kept:
            _prctl(_PR_CAPBSET_DROP, capability)


def set_capabilities(allowed: int) -> None:
    """Make the effective and permitted sets `allowed` (a bit mask) and the inheritable one empty."""
    # Source: <linux/capability.h>, version 3: two records of (effective, permitted, inheritable), 32 bits each.
    header = struct.pack("=Ii", 0x20080522, 0)
    low, high = allowed & 0xFFFFFFFF, allowed >> 32
    data = struct.pack("=6I", low, low, 0, high, high, 0)
    _call("capset", ctypes.c_char_p(header), ctypes.c_char_p(data))


class LeaseTimer:
    """A timer that also counts the time that the machine is suspended. Readable when it has run out."""

    def __init__(self) -> None:
        self.fd = _call("timerfd_create", ctypes.c_int(CLOCK_BOOTTIME), ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """For poll."""
        return self.fd

    def set(self, remaining_s: float) -> None:
        """Run out so long from now, at once when that is not positive."""
        # 100 years: whoever asks for more means "never", and struct timespec has an end.
        nanoseconds = max(1, int(min(remaining_s, 3.2e9) * 1e9))
        seconds, nanoseconds = divmod(nanoseconds, 10**9)
        value = struct.pack("=qqqq", 0, 0, seconds, nanoseconds)
        _call("timerfd_settime", ctypes.c_int(self.fd), ctypes.c_int(0), ctypes.c_char_p(value), None)


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


def own_network() -> None:
    """Give this process a network namespace with loopback up."""
    unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        loopback = struct.pack("16s", b"lo")
        (flags,) = struct.unpack_from("H", fcntl.ioctl(control, _SIOCGIFFLAGS, loopback + bytes(16)), 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, loopback + struct.pack("H14x", flags | _IFF_UP))
    # As Docker does: in a network of its own a task may use any port, and ping, without privileges.
    for name, value in (("ip_unprivileged_port_start", b"0"), ("ping_group_range", b"0 2147483647")):
        fd = os.open(f"/proc/sys/net/ipv4/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, value)
        os.close(fd)


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
    "LeaseTimer",
    "bound_capabilities",
    "enter_namespace",
    "last_capability",
    "mount",
    "own_network",
    "set_capabilities",
    "set_hostname",
    "set_no_new_privileges",
    "set_title",
    "unshare",
]
