"""What a task sees of this host's files: the mounts that are made in its own mount namespace.

A task runs a command of this host, so it sees the host's files with its own user's permissions, except:

* /proc shows its own processes alone, /sys its own network and no cgroup, read-only; /dev holds the harmless devices.
* /tmp, /var/tmp and /dev/shm are its own.
* The agent's state, with every closed directory above it, and whatever else is `hidden` is empty, but for the task's own
  work dir at its usual path.

Mounts that the host makes or removes later follow (slave propagation): a task does not pin a file system.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection

from beeyard.agent.executors.process import kernel
from beeyard.agent.executors.process.order import Order

# name, major, minor. Source: Documentation/admin-guide/devices.txt
_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
# Files by which root may change the whole host, whatever its capabilities.
_PROC_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_SAFE = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def build(order: Order, *, root: bool) -> None:
    """Make the mounts of a task in this process's mount namespace, which must be a fresh one.

    Raises:
        OSError: names what could not be mounted where.
    """
    work, tmp = (_open_dir(f"{order.places.task_dir(order.task_id)}/{name}") for name in ("work", "tmp"))
    hidden = {*order.hidden, _topmost_closed(order.places.state_dir)}  # looked at before a mount is on its way
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("proc", "/proc", "proc", _SAFE)
    if order.own_netns:
        kernel.mount("sysfs", "/sys", "sysfs", _SAFE | kernel.MS_RDONLY)
    else:  # a second sysfs of one network cannot cover the first; without MS_REC the cgroups below are left out
        _read_only("/sys")
    _devices()
    for target in ("/tmp", "/var/tmp"):
        if os.path.isdir(target):
            kernel.mount(f"/proc/self/fd/{tmp}", target, flags=kernel.MS_BIND)
    _hide(order, hidden, work)
    if root:
        for name in _PROC_READ_ONLY:
            _read_only(f"/proc/{name}")
    os.close(work)
    os.close(tmp)


def _open_dir(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _read_only(path: str) -> None:
    if os.path.exists(path):
        kernel.mount(path, path, flags=kernel.MS_BIND)
        kernel.mount("none", path, flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | _SAFE)


def _devices() -> None:
    """A /dev of its own, without this host's disks, memory and consoles."""
    kernel.mount("tmpfs", "/dev", "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "mode=755,size=64k")
    umask = os.umask(0)
    for name, major, minor in _DEVICES:
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for name, target in _DEVICE_LINKS:
        os.symlink(target, f"/dev/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"/dev/{name}", 0o755)
    os.umask(umask)
    # gid 5 is tty on every Debian; without it terminals still work, only `write` to them does not.
    kernel.mount(
        "devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"
    )
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777,size=64m")
    with contextlib.suppress(OSError):  # a kernel without POSIX message queues
        kernel.mount("mqueue", "/dev/mqueue", "mqueue", _SAFE)


def _hide(order: Order, hidden: Collection[str], work: int) -> None:
    """Cover the hidden directories with empty ones, and put the work dir back at its path.

    What is below /tmp is gone already, and its path is made anew in the task's own.
    """
    state_dir = order.places.state_dir
    covered: list[str] = []
    for path in sorted({os.path.normpath(path) for path in hidden}):
        if any(_within(path, other) for other in covered) or not os.path.isdir(path):
            continue
        covered.append(path)
        open_for_all = _within(state_dir, path)
        kernel.mount("tmpfs", path, "tmpfs", _SAFE, "size=64k,mode=755" if open_for_all else "size=64k,mode=000")
    home = f"{order.places.task_dir(order.task_id)}/work"
    os.makedirs(home, mode=0o755, exist_ok=True)
    for path in covered:
        kernel.mount("none", path, flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | _SAFE)
    kernel.mount(f"/proc/self/fd/{work}", home, flags=kernel.MS_BIND)


def _topmost_closed(path: str) -> str:
    """The highest directory on a path that not everybody may search, else the path itself: what has to be covered so that
    the task finds its home by name, and none of what was closed to it."""
    found = path
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            found = path
        path = os.path.dirname(path)
    return found


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent.rstrip('/')}/")


__all__ = ["build"]
