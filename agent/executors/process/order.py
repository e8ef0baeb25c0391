"""What an executor knows of one task, and where a shim keeps things. Standard library alone."""

from __future__ import annotations

import errno
import json
import resource
import signal
from typing import NamedTuple

from beeyard.agent.executors.process.cgroups import Hierarchy, Limits, TaskCgroup, at, here

SHIM_TITLE = "beeyard-shim"
ZYGOTE_TITLE = "beeyard-zygote"
HELPER_TITLE = "beeyard-helper"
# In a shim's directory:
TASK_FILE = "task.msgpack"  # the task, for the agent's next life
END_FILE = "exit.json"  # how it has ended; as long as it runs, how it will have if its shim is killed


class Places(NamedTuple):
    """Where one agent's executor keeps its things."""

    state_dir: str
    log_dir: str
    cgroup_parent: str  # below each hierarchy's mount point
    cgroup_root: str = ""  # a v2 tree to use instead of what /proc/self/mountinfo says

    def shim_dir(self, task_id: str) -> str:
        """The task, the socket, and what is known of the task's end: there for as long as the task is known here."""
        return f"{self.state_dir}/shims/{task_id}"

    def task_dir(self, task_id: str) -> str:
        """The task's own files: `work`, its home and working directory, and `tmp`."""
        return f"{self.state_dir}/tasks/{task_id}"

    def log(self, task_id: str) -> str:
        """Its output, kept after it is removed."""
        return f"{self.log_dir}/{task_id}.log"

    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The cgroup trees in use."""
        return at(self.cgroup_root) if self.cgroup_root else here()

    def cgroup(self, task_id: str) -> TaskCgroup:
        """The task's cgroup."""
        return TaskCgroup(self.hierarchies(), self.cgroup_parent, task_id)


class Bind(NamedTuple):
    """A file or directory of this host that the task sees elsewhere; fields as in `runtime.host.Mount`."""

    source: str  # without symbolic links
    target: str
    read_only: bool


class Order(NamedTuple):
    """One task as this host runs it: everything is decided, nothing is looked up in a model."""

    task_id: str
    places: Places
    task: bytes  # the AssignedTask in msgpack, kept for the agent's next life
    argv: tuple[str, ...]
    env: dict[str, str]  # without HOME, PATH and HOSTNAME, unless the spec sets them
    unset: tuple[str, ...]  # names that the spec removes
    user: str
    dir: str  # "": the work dir
    hostname: str
    own_netns: bool
    stop_signal: str
    grace_s: float
    limits: Limits
    lease_s: float
    fence: bool
    hidden: tuple[str, ...]  # directories that the task finds empty
    sysctls: dict[str, str]  # these three are the node's own, see `additions`
    binds: tuple[Bind, ...]
    devices: tuple[str, ...]
    log_bytes_max: int  # the log is turned over once at this size, so it takes at most twice as much
    keeps_output: bool = True  # else it goes nowhere


class Exit(NamedTuple):
    """How a task ended; fields as in `runtime.host.ExitStatus`."""

    code: int
    signal: int = 0
    reason: str = ""

    def to_json(self) -> str:
        return json.dumps(self._asdict())


# How a task has ended whose shim cannot tell.
SHIM_GONE = Exit(128 + signal.SIGKILL, signal.SIGKILL, "its shim is gone: killed, or this host restarted")


def reason_of(error: OSError) -> str:
    """What a person needs of a failed system call: the file and the kernel's word for it, or the limit that is reached."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process has all {limit} files open that it may have: raise LimitNOFILE of its service, or `ulimit -n`"
    if error.errno == errno.ENFILE:
        return "all files are open that this host may have: raise the sysctl fs.file-max"
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def load_exit(directory: str) -> Exit | None:
    """What a shim keeps of its task from the moment the program starts; None when it never did."""
    try:
        with open(f"{directory}/{END_FILE}") as file:
            return Exit(**json.load(file))
    except (FileNotFoundError, ValueError):
        return None


__all__ = [
    "END_FILE",
    "HELPER_TITLE",
    "SHIM_GONE",
    "SHIM_TITLE",
    "TASK_FILE",
    "ZYGOTE_TITLE",
    "Bind",
    "Exit",
    "Order",
    "Places",
    "load_exit",
    "reason_of",
]
