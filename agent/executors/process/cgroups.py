"""One cgroup per task, named by its id, on cgroup v1, v2 or both side by side.

Theory of operation
-------------------
The layout is read from /proc/self/mountinfo: each v1 hierarchy names its controllers in its mount options, a v2 one in
`cgroup.controllers`. A controller that v1 has taken is not in v2's list, so hybrid needs no rule of its own. Tasks live in
`PARENT/TASK_ID` below the mount point of each hierarchy that has one of our controllers; PARENT is this agent's own, so
whatever is found in it belongs to this agent.

On v2 a cgroup with controllers for its children holds no processes, and shims must not live in the agent's cgroup,
which a service manager may kill: they go to `PARENT/_shims`.

What makes a cgroup is said as steps for a shim; looking at one and ending it is done here. Only the standard library is used:
the zygote's helper imports this file. Errors are `OSError`s that name the file.
Source: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from beeyard.agent.executors.process.script import Step, step, write

CONTROLLERS = ("cpu", "memory", "pids")
SHIMS = "_shims"
# 0.2 s in all, 5 ms apart: a process that has hung up needs milliseconds to be gone.
ENDING_LOOKS = 40
# 100 ms: the kernel's default period, and Docker's.
CPU_PERIOD_US = 100_000
# The kernel refuses a smaller quota (`min_cfs_quota_period`) and a larger one (`max_cfs_runtime`).
CPU_QUOTA_US_MIN = 1_000
CPU_QUOTA_US_MAX = (1 << 44) - 1
# Source: Linux PID_MAX_LIMIT on 64 bits; more is refused, and "max" means the same.
PIDS_MAX = 1 << 22
MEMORY_BYTES_MAX = (1 << 63) - 1  # the kernel reads more as a negative number, or not at all


class Hierarchy(NamedTuple):
    """A mounted cgroup tree that controls something we limit."""

    version: int  # 1 or 2
    controllers: tuple[str, ...]  # those of CONTROLLERS that it has
    path: str  # its mount point


def _unescape(path: str) -> str:
    """Undo the octal escapes of mountinfo."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, char)
    return path


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, value: str) -> None:
    """Write a control file; an error names it."""
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {value!r} to {path}: {os.strerror(error.errno or 0)}") from error


def detect(mountinfo: str) -> tuple[Hierarchy, ...]:
    """The hierarchies of a host, from the text of /proc/self/mountinfo. Later mounts on one point hide earlier ones."""
    by_path: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        path = _unescape(fields[4])
        if kind == "cgroup":
            by_path[path] = Hierarchy(1, tuple(c for c in CONTROLLERS if c in options), path)
        elif kind == "cgroup2":
            try:
                has = _read(f"{path}/cgroup.controllers").split()
            except OSError:
                has = []
            by_path[path] = Hierarchy(2, tuple(c for c in CONTROLLERS if c in has), path)
        else:
            by_path.pop(path, None)
    return one_per_controller(by_path.values())


def one_per_controller(hierarchies: Iterable[Hierarchy]) -> tuple[Hierarchy, ...]:
    """Keep for each controller the first hierarchy that has it, and drop those that are left with none."""
    taken: set[str] = set()
    kept = []
    for hierarchy in hierarchies:
        mine = tuple(c for c in hierarchy.controllers if c not in taken)
        taken.update(mine)
        if mine:
            kept.append(hierarchy._replace(controllers=mine))
    return tuple(kept)


@functools.cache
def here() -> tuple[Hierarchy, ...]:
    """The hierarchies of this host. Read once: a host does not change its layout while it runs."""
    return detect(_read("/proc/self/mountinfo"))


def at(root: str) -> tuple[Hierarchy, ...]:
    """A v2 hierarchy at another place than where it is mounted, such as a delegated subtree."""
    has = _read(f"{root}/cgroup.controllers").split()
    return one_per_controller([Hierarchy(2, tuple(c for c in CONTROLLERS if c in has), root)])


class Limits(NamedTuple):
    """Ceilings of one task; 0: none."""

    cpu_nano: int = 0
    memory_bytes: int = 0
    pids: int = 0


class TaskCgroup:
    """The cgroup of one task in every hierarchy."""

    def __init__(self, hierarchies: tuple[Hierarchy, ...], parent: str, name: str) -> None:
        self.hierarchies = hierarchies
        self.parent = parent
        self.name = name

    def _path(self, hierarchy: Hierarchy) -> str:
        return f"{hierarchy.path}/{self.parent}/{self.name}"

    @property
    def paths(self) -> list[str]:
        """Its directory in each hierarchy."""
        return [self._path(hierarchy) for hierarchy in self.hierarchies]

    def file(self, controller: str, name: str) -> str:
        """A control file, or "" when no hierarchy has the controller."""
        for hierarchy in self.hierarchies:
            if controller in hierarchy.controllers:
                return f"{self._path(hierarchy)}/{name}"
        return ""

    def _version(self, controller: str) -> int:
        return next((h.version for h in self.hierarchies if controller in h.controllers), 0)

    def make(self, limits: Limits) -> Iterator[Step]:
        """What a shim does to make it and set its limits; what is there already is fine.

        Raises:
            OSError: a limit is asked for whose controller this host does not have.
        """
        for controller, value in zip(CONTROLLERS, limits, strict=True):
            if value and not self._version(controller):
                raise OSError(errno.ENOSYS, f"a {controller} limit needs the cgroup controller {controller}")
        for hierarchy in self.hierarchies:
            yield step("mkdirs", self._path(hierarchy))
            if hierarchy.version == 2:
                yield from _enable(hierarchy, self.parent)
        if limits.cpu_nano:
            yield from self._limit_cpu(limits.cpu_nano)
        if limits.memory_bytes:
            yield from self._limit_memory(limits.memory_bytes)
        if limits.pids:
            yield write(self.file("pids", "pids.max"), str(limits.pids) if limits.pids <= PIDS_MAX else "max")

    def _limit_cpu(self, cpu_nano: int) -> Iterator[Step]:
        quota_us = max(CPU_QUOTA_US_MIN, cpu_nano * CPU_PERIOD_US // 10**9)
        unlimited = quota_us > CPU_QUOTA_US_MAX
        if self._version("cpu") == 2:
            yield write(self.file("cpu", "cpu.max"), f"{'max' if unlimited else quota_us} {CPU_PERIOD_US}")
        else:
            yield write(self.file("cpu", "cpu.cfs_period_us"), str(CPU_PERIOD_US))
            yield write(self.file("cpu", "cpu.cfs_quota_us"), "-1" if unlimited else str(quota_us))

    def _limit_memory(self, memory_bytes: int) -> Iterator[Step]:
        """Bound memory, and swap with it: a task at its limit is killed, it does not slow the host by swapping."""
        memory_bytes = min(memory_bytes, MEMORY_BYTES_MAX)
        if self._version("memory") == 2:
            yield write(self.file("memory", "memory.max"), str(memory_bytes))
            swap, value = self.file("memory", "memory.swap.max"), "0"
        else:
            yield write(self.file("memory", "memory.limit_in_bytes"), str(memory_bytes))
            swap, value = self.file("memory", "memory.memsw.limit_in_bytes"), str(memory_bytes)
        yield write(swap, value, if_there=True)  # a kernel may be built or booted without swap accounting

    def join(self) -> Iterator[Step]:
        """What a process does to enter it.

        On v1 the per-thread file is taken: it needs no lock over all forks of the machine.
        """
        for hierarchy in self.hierarchies:
            name = "tasks" if hierarchy.version == 1 else "cgroup.procs"
            yield write(f"{self._path(hierarchy)}/{name}", "0", naming_value=False)

    def pids(self) -> list[int]:
        """Processes in it, by their numbers here."""
        found: set[int] = set()
        for path in self.paths:
            try:
                found.update(int(pid) for pid in _read(f"{path}/cgroup.procs").split())
            except OSError:
                continue
        return sorted(found)

    def oom_file(self) -> str:
        """The file whose line `oom_kill N` counts what the kernel killed in it because its memory limit was reached."""
        return self.file("memory", "memory.events" if self._version("memory") == 2 else "memory.oom_control")

    def kill(self) -> None:
        """Send SIGKILL to all in it, those included that are just being forked. Does not wait for their end."""
        for hierarchy in self.hierarchies:
            if hierarchy.version == 2:
                try:
                    _write(f"{self._path(hierarchy)}/cgroup.kill", "1")
                    return
                except OSError:  # gone, or a kernel before 5.14
                    break
        for _ in range(100):  # a fork bomb may win a round, but each round leaves it fewer parents
            pids = self.pids()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not pids:
                return
            time.sleep(0.001)

    def remove(self, *, timeout_s: float = 10.0) -> None:
        """Drop it; what still runs in it is killed. Idempotent: yes.

        Raises:
            OSError: a process in it does not die.
        """
        deadline = time.monotonic() + timeout_s
        for path in self.paths:
            while True:
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise OSError(error.errno, f"cannot remove cgroup {path}: {error.strerror}") from error
                self.kill()
                time.sleep(0.001)


def _enable(hierarchy: Hierarchy, parent: str) -> Iterator[Step]:
    """On v2, let the children of each level down to `parent` have our controllers."""
    path = hierarchy.path
    for part in ["", *parent.split("/")]:
        path = f"{path}/{part}" if part else path
        yield step("enable", path, *hierarchy.controllers)


def children(hierarchies: tuple[Hierarchy, ...], parent: str) -> list[str]:
    """Names of all tasks' cgroups below a parent, sorted."""
    found: set[str] = set()
    for hierarchy in hierarchies:
        try:
            with os.scandir(f"{hierarchy.path}/{parent}") as entries:
                found.update(entry.name for entry in entries if entry.is_dir() and entry.name != SHIMS)
        except FileNotFoundError:
            continue
    return sorted(found)


def remove_parent(hierarchies: tuple[Hierarchy, ...], parent: str) -> None:
    """Drop the agent's own levels where nothing is left in them."""
    for hierarchy in hierarchies:
        _remove_shims(f"{hierarchy.path}/{parent}/{SHIMS}")
        parts = parent.split("/")
        for level in ("/".join(parts[: n + 1]) for n in reversed(range(len(parts)))):
            try:
                os.rmdir(f"{hierarchy.path}/{level}")
            except OSError:
                continue


def _has_files(pid: str) -> bool:
    """Whether a process lives. One that ends closes its files, which tells others of its end, before it leaves its cgroup."""
    try:
        return bool(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def _remove_shims(path: str) -> None:
    """Drop the cgroup of shims unless some live. One that is just ending still counts, listed or not."""
    for _ in range(ENDING_LOOKS):
        try:
            os.rmdir(path)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        try:
            if any(map(_has_files, _read(f"{path}/cgroup.procs").split())):
                return
        except OSError:  # another agent of this host was quicker
            return
        time.sleep(0.005)


__all__ = [
    "CONTROLLERS",
    "SHIMS",
    "Hierarchy",
    "Limits",
    "TaskCgroup",
    "at",
    "children",
    "detect",
    "here",
    "one_per_controller",
    "remove_parent",
]
