"""Who a task runs as, what it may do, and which program it is: what the child of a shim is told (`native/launch.c`)."""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
from typing import NamedTuple

DEFAULT_USER = "beeyard-task"
NOBODY = 65534
# The greatest number that is somebody: the one above it says "leave as it is" to every system call that sets a user.
# Source: setresuid(2)
ID_MAX = 2**32 - 2
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What a task keeps that runs as root because its spec asks for it: Docker's defaults without NET_RAW and MKNOD.
# NET_RAW would let it answer for addresses that are not its own, MKNOD reach this host's disks. Never: NET_ADMIN (it could
# bring back links that were taken down), SYS_ADMIN, SYS_PTRACE, SYS_MODULE, SYS_RAWIO, SYS_BOOT, SYS_TIME, DAC_READ_SEARCH.
# Source: <linux/capability.h>
ROOT_CAPABILITIES = frozenset(
    {
        0,  # CHOWN
        1,  # DAC_OVERRIDE
        3,  # FOWNER
        4,  # FSETID
        5,  # KILL
        6,  # SETGID
        7,  # SETUID
        8,  # SETPCAP
        10,  # NET_BIND_SERVICE
        18,  # SYS_CHROOT
        29,  # AUDIT_WRITE
        31,  # SETFCAP
    }
)


class User(NamedTuple):
    """Who a task runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class LaunchError(Exception):
    """The task cannot run; the text says why, for a person."""


def find_user(spec: str) -> User:
    """The user of a spec: "", "name", "uid", and with ":group" or ":gid".

    Raises:
        LaunchError: this host does not know the name, or the number is nobody's.
    """
    name, _, group = spec.partition(":")
    if not name:
        user = _default_user()
    elif _is_number(name):
        uid = _number("user", name)
        user = User(uid, 0 if uid == 0 else NOBODY)
        with contextlib.suppress(KeyError):  # a number needs no entry
            user = user._replace(gid=pwd.getpwuid(uid).pw_gid)
    else:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise LaunchError(f"user {name} does not exist on this host") from None
        user = User(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))
    if not group:
        return user
    try:
        gid = _number("group", group) if _is_number(group) else grp.getgrnam(group).gr_gid
    except KeyError:
        raise LaunchError(f"group {group} does not exist on this host") from None
    return User(user.uid, gid)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # without the first, "²" would be one, for which there is no int


def _number(kind: str, text: str) -> int:
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(ID_MAX)) or int(digits) > ID_MAX:
        raise LaunchError(f"{kind} {text[:20]} is not possible: the greatest number of a {kind} is {ID_MAX}")
    return int(digits)


def _default_user() -> User:
    """`beeyard-task` where the host has it, else nobody."""
    return _default_user_in(os.stat("/etc/passwd").st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _default_user_in(passwd_changed_ns: int) -> User:
    """Looked up once for each state of the file, which most tasks ask for."""
    try:
        entry = pwd.getpwnam(DEFAULT_USER)
        return User(entry.pw_uid, entry.pw_gid)
    except KeyError:
        return User(NOBODY, NOBODY)


def candidates(program: str, path: str) -> list[str]:
    """Where a program is looked for, in order. Source: execvp(3); an empty part of PATH is the working directory."""
    return [program] if "/" in program else [f"{part or '.'}/{program}" for part in path.split(":")]


__all__ = [
    "DEFAULT_PATH",
    "DEFAULT_USER",
    "ID_MAX",
    "NOBODY",
    "ROOT_CAPABILITIES",
    "LaunchError",
    "User",
    "candidates",
    "find_user",
]
