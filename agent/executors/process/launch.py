"""From a fork to the task's own program: everything that happens in the child before exec.

The order matters: enter the cgroup while still allowed to, give up what could be kept by a forgotten descriptor, signal
handler or group, and only as the task's user look at the working directory and the program, so that the task's own
permissions decide.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import pwd
import signal
from typing import NamedTuple

from beeyard.agent.executors.process import kernel
from beeyard.agent.executors.process.order import write_file

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


# What zygote and shims ignore; all other signals have their defaults or a handler there.
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


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
    """Looked up once for each state of the file, by the zygote: reading it costs a shim as much as a namespace does."""
    try:
        entry = pwd.getpwnam(DEFAULT_USER)
        return User(entry.pw_uid, entry.pw_gid)
    except KeyError:
        return User(NOBODY, NOBODY)


def become(user: User) -> None:
    """Give up every privilege that the user does not have, for good.

    Raises:
        LaunchError: the kernel said yes and did something else; nothing may run like that.
    """
    root = user.uid == 0
    kernel.bound_capabilities(ROOT_CAPABILITIES if root else frozenset())
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # Real, effective and saved: one of them left as it was is a way back.
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise LaunchError(f"could not become user {user.uid} with group {user.gid}")
    kernel.set_capabilities(sum(1 << capability for capability in ROOT_CAPABILITIES) if root else 0)
    kernel.set_no_new_privileges()


def enter(joins: list[int], output: int) -> None:
    """Session, cgroup, standard streams and defaults of a process that starts afresh."""
    os.setsid()
    for fd in joins:
        os.write(fd, b"0")
    with contextlib.suppress(OSError):  # the shim's own is low
        write_file("/proc/self/oom_score_adj", b"0")
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.umask(0o022)
    for number in IGNORED:  # exec itself resets those that have a handler
        signal.signal(number, signal.SIG_DFL)


def close_all_but(kept: int) -> None:
    """Close every descriptor above the standard streams but one, which is closed by exec."""
    os.set_inheritable(kept, False)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def execute(argv: tuple[str, ...], env: dict[str, str], directory: str) -> None:
    """Become the program. Returns only by raising.

    Raises:
        LaunchError: names the program, or the directory, and says why.
    """
    try:
        os.chdir(directory)
    except OSError as error:
        raise LaunchError(f"cannot enter working directory {directory}: {error.strerror}") from None
    program = argv[0]
    if "/" in program:
        candidates = [program]
    else:
        candidates = [f"{part or '.'}/{program}" for part in env.get("PATH", DEFAULT_PATH).split(":")]
    number = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                number = error.errno or errno.EACCES
                if number != errno.EACCES:
                    break
    if number == errno.ENOENT and "/" not in program:
        raise LaunchError(f"command {program} not found in PATH {env.get('PATH', DEFAULT_PATH)}")
    raise LaunchError(f"cannot run command {program}: {os.strerror(number)}")


__all__ = [
    "DEFAULT_PATH",
    "DEFAULT_USER",
    "ID_MAX",
    "IGNORED",
    "NOBODY",
    "ROOT_CAPABILITIES",
    "LaunchError",
    "User",
    "become",
    "close_all_but",
    "enter",
    "execute",
    "find_user",
]
