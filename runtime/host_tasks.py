"""The ports to what runs tasks on this host. See `runtime.host`, which has the whole list."""

from __future__ import annotations

from typing import Protocol

import msgspec

from beeyard.core.wire import AssignedTask


class ExitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a task's process ended."""

    code: int  # 0..255; 128 + n when signal n killed it
    signal: int = 0
    reason: str = ""  # for a person, such as "killed: memory limit of 64 MiB reached"; "" for an ordinary end


class Mount(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A directory or file of the host that a task sees."""

    source: str  # absolute, on the host
    target: str  # absolute, as the task sees it
    read_only: bool = True


class Additions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What this node adds to a task, within what its operator allows; never more of what the spec limits."""

    env: tuple[str, ...] = ()  # "NAME=value"; the spec's own value of a name wins
    sysctls: dict[str, str] = {}  # of the task's own namespaces: {"net.ipv4.ip_forward": "1"}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()  # absolute paths, "/dev/kvm"


NO_ADDITIONS = Additions()

# 256 KiB: a thousand variables of 250 bytes; what a hook adds is for one task.
HOOK_ANSWER_BYTES_MAX = 256 << 10


class Controller(Protocol):
    """One task on this host, alive in a process of its own that outlives the agent.

    Calls come in the order prepare, start (or run, for both), wait, stop, remove; after a restart of the agent
    `Executor.recover` gives a controller that continues where the task is. Each but `run` is all or nothing under
    cancellation.
    """

    @property
    def task_id(self) -> str: ...

    @property
    def netns(self) -> str:
        """The task's network namespace for `Netlink`, once prepared; "" when it uses its host's (`host` network)."""

    @property
    def phase(self) -> str:
        """ "new", "prepared", "started" or "exited"."""

    @property
    def pid(self) -> int:
        """The task's process on the host, 0 before it is started."""

    @property
    def lapsed(self) -> bool:
        """Whether the lease had lapsed, as far as the newest answer of the shim tells: then the links are down for good."""

    async def prepare(self) -> None:
        """Make namespaces, cgroup, work dir and shim; nothing of the task runs yet. Idempotent: yes.

        Raises:
            ExecutorError
        """

    async def start(self) -> None:
        """Let the command run. Idempotent: yes.

        Raises:
            ExecutorError: such as a command that does not exist, by its name.
        """

    async def run(self) -> None:
        """`prepare` and `start` in one, for a task that nothing is done for between them. Idempotent: yes.

        Cancellation: it is done, or it is not, or the task is prepared: `stop` and `remove` end it in any case.

        Raises:
            ExecutorError: as those two; the phase is "new" when it could not be prepared.
        """

    async def wait(self) -> ExitStatus:
        """Return once the process has ended (also when it had before the call). Cancellable, may be called again."""

    async def stop(self, *, links_first: bool = False) -> ExitStatus | None:
        """Stop signal, the spec's grace, then SIGKILL for all its processes; None when it never started.

        `links_first`: the links go down before the signal, because somebody else may already run in its place.
        On return the links are down. Idempotent: yes.
        """

    async def links_down(self) -> None:
        """Take every link of the task's namespace down for good: on return no address of it answers. Idempotent: yes."""

    async def renew_lease(self, remaining_s: float) -> None:
        """The shim keeps the links up for so long from now; when that passes it downs them (and stops the task if fenced)."""

    async def remove(self) -> None:
        """Drop namespaces, cgroup, work dir and shim; output is kept in the log directory. Idempotent: yes."""


class Executor(Protocol):
    """Runs the tasks of one kind of image."""

    @property
    def name(self) -> str: ...

    def runs(self, image: str) -> bool:
        """Whether a task with this image is for this executor."""

    @property
    def images(self) -> tuple[str, ...]:
        """What a node advertises, e.g. ("host",)."""

    @property
    def log_drivers(self) -> tuple[str, ...]:
        """Where it can send the output of tasks, by the names of Docker's log drivers; "none" needs none."""

    async def recover(self) -> list[Controller]:
        """Every task that is still on this host from earlier lives of the agent, found by the task id it carries."""

    async def create(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> Controller:
        """A controller in phase "new"; touches nothing yet. `additions`: what this node adds to what the spec asks for."""


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one call of a node hook."""

    exit_code: int  # 0..255; 128 + n when signal n killed it; of no meaning when it was late
    stdout: bytes = b""  # at most HOOK_ANSWER_BYTES_MAX
    stderr: str = ""  # its end, for a person
    late: bool = False  # it did not end in time: it was killed, with every process that it had started
    too_long: bool = False  # it said more on its standard output than is kept
    output_path: str = ""  # where a person finds the output; "" where it could not be kept


class SeenPath(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a path of this host."""

    path: str  # absolute, without symbolic links
    kind: str  # "directory", "file", "device" or "other"


class NodeHooks(Protocol):
    """Programs of this node's operator that are called for each task; see `agent.node_hooks`."""

    async def names(self) -> tuple[str, ...]:
        """The hooks that are here now, in the order in which they are called. No process is started.

        Raises:
            NodeHookError: one is not safe to call, or the directory cannot be read; then none may be called.
        """

    async def run(self, name: str, moment: str, task_id: str, document: bytes, *, timeout_s: float) -> HookAnswer:
        """Call one hook with a document on its standard input, and keep its output.

        Cancellation: on return, however it comes, no process of this call is left. The same holds soon after the agent
        itself was killed.

        Raises:
            NodeHookError: it cannot be called; it is not there any more, or not safe.
        """

    async def look(self, path: str) -> SeenPath | None:
        """What is at an absolute path, symbolic links resolved; None: nothing."""


__all__ = [
    "HOOK_ANSWER_BYTES_MAX",
    "NO_ADDITIONS",
    "Additions",
    "Controller",
    "Executor",
    "ExitStatus",
    "HookAnswer",
    "Mount",
    "NodeHooks",
    "SeenPath",
]
