"""What a task sees of this host's files: the mounts that are made in its own mount namespace.

A task runs a command of this host, so it sees the host's files with its own user's permissions, except:

* /proc shows its own processes alone, /sys its own network and no cgroup, read-only; /dev holds the harmless devices.
* /tmp, /var/tmp and /dev/shm are its own.
* The agent's state, with every closed directory above it, and whatever else is `hidden` is empty, but for the task's own
  work dir at its usual path.

Mounts that the host makes or removes later follow (slave propagation): a task does not pin a file system. What depends on how
the host is when they are made (whether a directory is there) is left to the shim.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from beeyard.agent.executors.process import kernel
from beeyard.agent.executors.process.order import Order
from beeyard.agent.executors.process.script import IF_DIRECTORY, IF_POSSIBLE, IF_PRESENT, Step, step

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

# What is held while the host's files are still seen, see `additions`.
WORK, TMP = 0, 1
N_HELD = 2


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "", when: int = 0) -> Step:
    """A mount(2); its error names the target. `when`: one of `script`'s."""
    return step("mount", source, target, kind, flags, options, when)


def build(order: Order, hidden: Iterable[str], settings: Iterable[Step], *, root: bool) -> Iterator[Step]:
    """The mounts of a task, in a fresh mount namespace in which its files are held already.

    `hidden`: see `covered`. `settings` are made in its /proc, before any of it becomes read-only.
    """
    yield mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    yield mount("proc", "/proc", "proc", _SAFE)
    yield from settings
    if order.own_netns:
        yield mount("sysfs", "/sys", "sysfs", _SAFE | kernel.MS_RDONLY)
    else:  # a second sysfs of one network cannot cover the first; without MS_REC the cgroups below are left out
        yield from _read_only("/sys")
    yield from _ALL_DEVICES
    for target in ("/tmp", "/var/tmp"):
        yield step("mount-held", TMP, target, kernel.MS_BIND, IF_DIRECTORY)
    yield from _hide(order, hidden)
    if root:
        for name in _PROC_READ_ONLY:
            yield from _read_only(f"/proc/{name}")


def hold(order: Order) -> Iterator[Step]:
    """Look up the task's own directories."""
    task_dir = order.places.task_dir(order.task_id)
    yield step("open", WORK, f"{task_dir}/work")
    yield step("open", TMP, f"{task_dir}/tmp")


def _read_only(path: str) -> Iterator[Step]:
    yield mount(path, path, flags=kernel.MS_BIND, when=IF_PRESENT)
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | _SAFE
    yield mount("none", path, flags=flags, when=IF_PRESENT)


def _devices() -> Iterator[Step]:
    """A /dev of its own, without this host's disks, memory and consoles."""
    yield mount("tmpfs", "/dev", "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "mode=755,size=64k")
    yield step("umask", 0)
    for name, major, minor in _DEVICES:
        yield step("mknod", f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    yield step("umask", 0o022)
    for name, target in _DEVICE_LINKS:
        yield step("symlink", target, f"/dev/{name}")
    for name in ("pts", "shm", "mqueue"):
        yield step("mkdirs", f"/dev/{name}")
    # gid 5 is tty on every Debian; without it terminals still work, only `write` to them does not.
    options = "newinstance,ptmxmode=0666,mode=620,gid=5"
    yield mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
    yield mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777,size=64m")
    # There are kernels without POSIX message queues.
    yield mount("mqueue", "/dev/mqueue", "mqueue", _SAFE, when=IF_POSSIBLE)


_ALL_DEVICES = tuple(_devices())  # the same for every task


def covered(order: Order) -> tuple[str, ...]:
    """Which directories the task finds empty, as this host is now.

    Raises:
        OSError: a directory above the agent's own cannot be looked at.
    """
    paths = (*order.hidden, _topmost_closed(order.places.state_dir))
    return tuple(sorted({os.path.normpath(path) for path in paths}))


def _hide(order: Order, hidden: Iterable[str]) -> Iterator[Step]:
    """Cover the hidden directories with empty ones, and put the work dir back at its path.

    What is below /tmp is gone already, and its path is made anew in the task's own.
    """
    state_dir = order.places.state_dir
    for path in hidden:
        open_for_all = state_dir == path or state_dir.startswith(f"{path.rstrip('/')}/")
        yield step("cover", path, "size=64k,mode=755" if open_for_all else "size=64k,mode=000")
    home = f"{order.places.task_dir(order.task_id)}/work"
    yield step("mkdirs", home)
    yield step("seal")
    yield step("mount-held", WORK, home, kernel.MS_BIND, 0)


def _topmost_closed(path: str) -> str:
    """The highest directory on a path that not everybody may search, else the path itself: what has to be covered so that
    the task finds its home by name, and none of what was closed to it."""
    found = path
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            found = path
        path = os.path.dirname(path)
    return found


__all__ = ["N_HELD", "build", "covered", "hold", "mount"]
