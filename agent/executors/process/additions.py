"""What this node adds to a task beside what its spec asks for: sysctls, files of this host, devices.

That all of it is allowed was decided before (`agent.hook_policy`); here it is made so that it cannot become something
else. Paths are walked without following a symbolic link, and what was opened is what is mounted: whoever may write
below an allowed directory cannot lead a mount out of it.

* A sysctl is written in the task's own namespaces, by a process that is in them already.
* A mount is of one file system (what is mounted below the source is not seen), never with set-user-id programs or devices,
  and keeps `noexec` and `read-only` of where it comes from. Its target has to exist, except below /tmp and /var/tmp, which
  are the task's own: a task's root is this host's, and nothing is made there.
* A device gets a node of its own in the task's /dev, which belongs to the task's user.

This executor bounds devices by what the task's /dev holds and by `nodev` elsewhere, and not by a cgroup: where the agent
itself is bounded by one (systemd's DevicePolicy=), that one may bound its tasks as well.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from beeyard.agent.executors.process import kernel, launch
from beeyard.agent.executors.process.launch import LaunchError
from beeyard.agent.executors.process.order import Order

_OWN_TMP = ("/tmp/", "/var/tmp/")
# Those flags of a mount that statvfs(3) gives with the numbers that mount(2) takes.
_KEPT_FLAGS = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


class Held(NamedTuple):
    """What was looked up on this host before the task's own view of it was made."""

    sources: list[int]  # a descriptor for each of the order's binds
    devices: list[os.stat_result]  # of each of its devices


def set_sysctls(sysctls: dict[str, str]) -> None:
    """Write sysctls of this process's namespaces.

    Raises:
        LaunchError: the kernel does not have one, or refuses the value.
    """
    for name, value in sysctls.items():
        assert "/" not in name, name
        path = f"/proc/sys/{name.replace('.', '/')}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.write(fd, f"{value}\n".encode())
            finally:
                os.close(fd)
        except OSError as error:
            raise LaunchError(f"cannot set sysctl {name} to {value[:100]!r}: {error.strerror}") from None


def hold(order: Order) -> Held:
    """Open what is to be mounted, and look at the devices, where this host's files are still seen.

    Raises:
        LaunchError: it is not there any more, or not what it was.
    """
    sources = [_walk(bind.source, "mount source") for bind in order.binds]
    devices = []
    for path in order.devices:
        try:
            status = os.stat(path)
        except OSError as error:
            raise LaunchError(f"cannot add device {path}: {error.strerror}") from None
        if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            raise LaunchError(f"cannot add device {path}: it is no device")
        devices.append(status)
    return Held(sources, devices)


def give(order: Order, held: Held, user: launch.User) -> None:
    """Put it into the task's view, which has been made.

    Raises:
        LaunchError, OSError: say what cannot be mounted where.
    """
    for path, status in zip(order.devices, held.devices, strict=True):
        _make_device(path, status, user)
    for bind, source in zip(order.binds, held.sources, strict=True):
        _bind(source, bind.target, read_only=bind.read_only)
        os.close(source)


def _make_device(path: str, status: os.stat_result, user: launch.User) -> None:
    if os.path.lexists(path):
        return  # one that every task has
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.mknod(path, stat.S_IFMT(status.st_mode) | 0o660, status.st_rdev)
    os.chmod(path, 0o660)
    os.chown(path, user.uid, user.gid)


def _bind(source: int, target: str, *, read_only: bool) -> None:
    is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
    if target.startswith(_OWN_TMP) and not os.path.lexists(target):
        _make_target(target, is_directory)
    place = _walk(target, "mount target")
    try:
        if is_directory != stat.S_ISDIR(os.fstat(place).st_mode):
            kinds = ("a directory", "a file") if is_directory else ("a file", "a directory")
            raise LaunchError(f"cannot mount {kinds[0]} at {target}: it is {kinds[1]}")
        flags = os.fstatvfs(source).f_flag & _KEPT_FLAGS | kernel.MS_NOSUID | kernel.MS_NODEV
        if read_only:
            flags |= kernel.MS_RDONLY
        try:
            kernel.mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{place}", flags=kernel.MS_BIND)
            # The first call cannot set flags. Walked again, because `place` is below what is mounted now.
            mounted = _walk(target, "mount target")
            try:
                kernel.mount("none", f"/proc/self/fd/{mounted}", flags=kernel.MS_BIND | kernel.MS_REMOUNT | flags)
            finally:
                os.close(mounted)
        except OSError as error:
            raise LaunchError(f"cannot mount at {target}: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(place)


def _make_target(target: str, is_directory: bool) -> None:
    try:
        os.makedirs(target if is_directory else os.path.dirname(target), mode=0o755, exist_ok=True)
        if not is_directory:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise LaunchError(f"cannot make mount target {target}: {error.strerror}") from None


def _walk(path: str, what: str) -> int:
    """A descriptor of what is at a path none of whose parts is a symbolic link."""
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.strip("/").split("/"):
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise LaunchError(f"{what} {path} leads over a symbolic link: {part}")
    except OSError as error:
        os.close(fd)
        raise LaunchError(f"{what} {path}: {(error.strerror or '').lower()}") from None
    except LaunchError:
        os.close(fd)
        raise
    return fd


__all__ = ["Held", "give", "hold", "set_sysctls"]
