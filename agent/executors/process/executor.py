"""Executor `process`: image `host`, a command of this host under an unprivileged user in namespaces of its own.

See `view` for what a task sees, `launch` for what it may do, `task_script` for what is done in which order, `native/main.c`
for who does it and holds the task, and `native/zygote.c` for who starts that.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import structlog
import trio

from beeyard.agent.executors.process import cgroups
from beeyard.agent.executors.process.controller import ProcessController
from beeyard.agent.executors.process.logs import KEEP, Keep
from beeyard.agent.executors.process.order import TASK_FILE, Bind, Order, Places
from beeyard.agent.executors.process.zygote_client import Zygote
from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID, TaskSpec
from beeyard.core.mounts import LOCAL_DRIVER, NO_LOG
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller

HOST_IMAGE = "host"
# 10 MiB, kept once over: enough to see why a task failed, and small beside any disk.
LOG_BYTES_MAX = 10 << 20
# Logs are looked after when so many tasks were removed or hooks called: a fork of Python, 10 ms for 64 of them.
PRUNE_EVERY = 64

log = structlog.get_logger(__name__)


class ProcessExecutor:
    """The `Executor` for image `host`. Needs root.

    Args:
        state_dir: absolute; shims, their sockets and the tasks' work dirs. One agent alone uses it.
        log_dir: absolute; tasks' output, `TASK_ID.log`. One agent alone uses it.
        cgroup_parent: where its tasks' cgroups are, below each hierarchy; this executor removes what it finds there and
            does not know. "": a name made from `state_dir`, so that agents on one host do not meet.
        cgroup_root: a cgroup v2 tree to use instead of what /proc/self/mountinfo says.
        hidden: directories that tasks find empty, besides `state_dir`.
        log_bytes_max: a log is turned over once at this size.
        launcher: path of the socket of a service that starts tasks; "": this process's own child does.
        keep: how much output of removed tasks is kept; looked after when an agent starts and now and then.
    """

    def __init__(
        self,
        state_dir: str,
        log_dir: str,
        *,
        cgroup_parent: str = "",
        cgroup_root: str = "",
        launcher: str = "",
        hidden: Sequence[str] = ("/run/beeyard",),
        log_bytes_max: int = LOG_BYTES_MAX,
        keep: Keep = KEEP,
    ) -> None:
        assert os.path.isabs(state_dir), state_dir
        assert os.path.isabs(log_dir), log_dir
        state_dir = os.path.realpath(state_dir)
        parent = cgroup_parent or f"beeyard/{zlib.crc32(state_dir.encode()):08x}"
        self.places = Places(state_dir, os.path.realpath(log_dir), parent, cgroup_root)
        self._hidden = tuple(os.path.realpath(path) for path in hidden)
        self._log_bytes_max = log_bytes_max
        self._keep = keep
        self._n_left = 0  # logs, since they were last looked after
        self._zygote = Zygote(self.places, launcher)
        self._controllers: weakref.WeakSet[ProcessController] = weakref.WeakSet()

    @property
    def name(self) -> str:
        return "process"

    @property
    def images(self) -> tuple[str, ...]:
        return (HOST_IMAGE,)

    @property
    def log_drivers(self) -> tuple[str, ...]:
        return (LOCAL_DRIVER,)  # files of a form of our own, bounded in size, as those of Docker's driver of this name

    @property
    def zygote_pid(self) -> int:
        """The process that forks, 0 before it is needed."""
        return self._zygote.pid

    def runs(self, image: str) -> bool:
        """Whether the image is `host`."""
        return image in self.images

    async def recover(self) -> list[Controller]:
        """As the port says. Tasks that were created or recovered in this life already are left out."""
        mine = sorted(controller.task_id for controller in self._controllers)
        found = await self._zygote.ask("sweep", places=self.places, spared=mine)
        known: list[ProcessController] = []
        for task_id in sorted([*found["live"], *found["ended"]]):  # type: ignore[misc]
            known.append(ProcessController(self._zygote, self._order(self._stored(task_id)), self._log_is_left))
            await trio.lowlevel.checkpoint()
        self._controllers.update(known)
        async with trio.open_nursery() as nursery:
            for controller in known:
                nursery.start_soon(controller.recover)
        await self._prune()
        return list(known)

    async def create(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> Controller:
        await trio.lowlevel.checkpoint()
        controller = ProcessController(self._zygote, self._order(task, additions), self._log_is_left)
        self._controllers.add(controller)
        return controller

    async def spawn_hook(
        self, argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> Callable[[], Awaitable[None]]:
        """Have a node hook called (see `runtime.real_hooks`) by who forks tasks: free as a task may have to be.

        Raises:
            ExecutorError: there is nobody to do it.
        """
        await self._log_is_left()  # also by a task that a hook refuses, of which nothing is ever removed
        await self._zygote.hand("hook", *fds, argv=list(argv), env=dict(environment))
        return trio.lowlevel.checkpoint  # whoever forked it reaps it

    async def _log_is_left(self) -> None:
        """Look after the logs, now and then."""
        self._n_left += 1
        if self._n_left >= PRUNE_EVERY:
            await self._prune()

    async def _prune(self) -> None:
        self._n_left = 0
        try:
            await self._zygote.ask("prune", places=self.places, keep=self._keep)
        except ExecutorError as error:
            log.warning("old output of tasks was not removed", reason=error.reason)

    def _stored(self, task_id: str) -> AssignedTask:
        """The task as it was when its shim was made."""
        with open(f"{self.places.shim_dir(task_id)}/{TASK_FILE}", "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=AssignedTask)

    def _order(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> Order:
        spec = task.spec
        env, unset = _environment(spec, additions)
        return Order(
            task_id=task.id,
            places=self.places,
            task=msgspec.msgpack.encode(task),
            argv=(*spec.command, *spec.args),
            env=env,
            unset=unset,
            user=spec.user,
            dir=spec.dir,
            hostname=(spec.hostname or task.id[:12])[:64],
            own_netns=HOST_NETWORK_ID not in spec.network_ids,
            stop_signal=spec.stop_signal,
            grace_s=spec.stop_grace_s,
            limits=cgroups.Limits(spec.limits.cpu_nano, spec.limits.memory_bytes, spec.limits.pids),
            lease_s=task.lease_s,
            fence=task.fence,
            hidden=self._hidden,
            sysctls=additions.sysctls,
            binds=tuple(Bind(mount.source, mount.target, mount.read_only) for mount in additions.mounts),
            devices=additions.devices,
            log_bytes_max=self._log_bytes_max,
            keeps_output=spec.log_driver.name != NO_LOG,
        )

    async def aclose(self) -> None:
        """End what this life of the agent holds. Tasks and shims go on; without any, no cgroup of this agent stays."""
        for controller in list(self._controllers):
            controller.close()
        self._controllers.clear()
        await self._zygote.aclose()
        cgroups.remove_parent(self.places.hierarchies(), self.places.cgroup_parent)


def _environment(spec: TaskSpec, additions: Additions) -> tuple[dict[str, str], tuple[str, ...]]:
    """Docker's rules: NAME=value sets, a bare NAME takes a default away, and of two the later counts.

    The spec comes after what the node adds.
    """
    env: dict[str, str] = {}
    unset: dict[str, None] = {}
    for entry in (*additions.env, *spec.env):
        name, equals, value = entry.partition("=")
        if equals:
            env[name] = value
            unset.pop(name, None)
        else:
            env.pop(name, None)
            unset[name] = None
    return env, tuple(unset)


__all__ = ["HOST_IMAGE", "LOG_BYTES_MAX", "PRUNE_EVERY", "ProcessExecutor"]
