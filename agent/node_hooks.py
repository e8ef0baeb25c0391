"""Node hooks: what this node's operator has done, or asked, when a task is prepared, started and stopped.

Theory of operation
-------------------
*prepare* comes before anything of the task exists. A hook may refuse (the task is REJECTED with its message) and may ask
for additions, which `agent.hook_policy` bounds. *start* comes when its namespace and links exist and its command is about
to run; it may refuse. *stop* comes once the task is over and its links are down; it can change nothing any more.

Hooks are called one after the other in the order of their names, at *stop* in the reverse one.

*Pairs.* Whoever was called for `prepare` is called for `stop`, at least once, whatever comes between. That is why a call
of `prepare` is on disk before it is made, in `STATE_DIR/hooks/TASK_ID`: an agent that comes back after it was killed finds
there what it still owes, also for tasks of which nothing else is left. A task that is prepared anew is first stopped.
A `stop` that fails is made again, `STOP_TRIES` times in all, and then given up with an error in the log: a hook must not
keep a task from ending.

Where there are no hooks, nothing is written and no process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import structlog
import trio

from beeyard.agent import hook_message, hook_policy
from beeyard.agent.hook_message import HookReply
from beeyard.agent.hook_policy import HookPolicy
from beeyard.agent.steps import Step
from beeyard.core.errors import DiskError, HostError, NodeHookError
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller, HookAnswer, Host, Mount

STOP_TRIES = 3
# 1 s: long enough for what is busy to be free again, short beside the deadline of a call.
STOP_PAUSE_S = 1.0
# Where a node keeps what is Beeyard's, besides what its configuration names.
OWN_DIRS = ("/etc/beeyard", "/run/beeyard", "/run/beeyard-launcher", "/var/lib/beeyard")

log = structlog.get_logger(__name__)


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """Which hooks were called for a task and are owed a `stop`, as it is kept on disk."""

    task: AssignedTask
    hooks: tuple[str, ...]


class NodeHookStep(Step):
    """The step of node hooks. Last in the order, so that a hook is called only for a task that all else lets in."""

    def __init__(
        self,
        host: Host,
        policy: HookPolicy,
        state_dir: str,
        *,
        node_name: str,
        node_id: Callable[[], str],
        own_dirs: Sequence[str] = (),
    ) -> None:
        """Args: the machine, what is allowed, where the agent keeps its state and other things, how this node is called."""
        self._host = host
        self._policy = policy
        self._own_dirs = tuple(dict.fromkeys((*OWN_DIRS, state_dir, policy.directory, *own_dirs)))
        self._node_name = node_name
        self._node_id = node_id
        self._directory = f"{state_dir}/hooks"
        self._owed: dict[str, Owed] = {}
        self._is_loaded = False
        self._here: set[str] = set()  # tasks that this life of the agent looks after
        self._controllers: dict[str, Controller] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._load_lock = trio.Lock()

    def take_policy(self, policy: HookPolicy) -> None:
        """What hooks may do from the next call on."""
        self._policy = policy

    # --- the step ----------------------------------------------------------------------------------------------------

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`: it lives on, so its `stop` is not due."""
        self._here.add(task.id)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`: call `prepare`."""
        self._here.add(task.id)
        await self._load()
        names = await self._host.node_hooks.names()
        if not names and task.id not in self._owed:
            return NO_ADDITIONS
        async with self._lock(task.id):
            if task.id in self._owed:
                await self._stop(task.id)  # an earlier life of the agent was killed in the middle of it
            together = NO_ADDITIONS
            asked_by: dict[tuple[str, str], str] = {}
            for name in names:
                await self._owe(task, name)
                reply = hook_message.reply_of(name, (await self._call(name, "prepare", task)).stdout)
                together = _join(together, await self._additions(name, task, reply, asked_by))
            return together

    async def starting(self, task: AssignedTask, controller: Controller) -> None:
        """See `Step.starting`: call `start` of the hooks that were called for `prepare`."""
        self._controllers[task.id] = controller
        owed = self._owed.get(task.id)
        for name in owed.hooks if owed else ():
            answer = await self._call(name, "start", task, netns=controller.netns)
            if hook_message.reply_of(name, answer.stdout):
                raise NodeHookError(name, "may not add anything at start: prepare is the moment for it")

    def stands_between(self, task: AssignedTask) -> bool:
        """See `Step.stands_between`."""
        return task.id in self._owed

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`: call `stop`. Never raises because of a hook."""
        await self._load()
        if task_id in self._owed:
            async with self._lock(task_id):
                await self._stop(task_id)
        self._here.discard(task_id)
        self._controllers.pop(task_id, None)
        self._locks.pop(task_id, None)

    async def settle(self) -> None:
        """See `Step.settle`: call the `stop` that is owed for tasks that are gone."""
        await self._load()
        for task_id in [task_id for task_id in self._owed if task_id not in self._here]:
            async with self._lock(task_id):
                if task_id not in self._here:  # it may have come while others were told
                    await self._stop(task_id)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _call(
        self, name: str, moment: str, task: AssignedTask, *, netns: str = "", exit_code: int | None = None
    ) -> HookAnswer:
        """One call that went well.

        Raises:
            NodeHookError: it did not; the sentence has the hook's own message.
        """
        told = hook_message.document(
            moment, task, node_id=self._node_id(), node_name=self._node_name, netns=netns, exit_code=exit_code
        )
        answer = await self._host.node_hooks.run(name, moment, task.id, told, timeout_s=self._policy.timeout_s)
        kept = f" (its output: {answer.output_path})" if answer.output_path else ""
        if answer.late:
            raise NodeHookError(name, f"did not answer {moment} within {self._policy.timeout_s:g} s{kept}")
        if answer.exit_code:
            message = hook_message.message_of(answer.stderr) or f"exit code {answer.exit_code} without a message"
            raise NodeHookError(name, f"refused at {moment}: {message}{kept}")
        if answer.too_long:
            raise NodeHookError(name, f"answers more than 256 KiB at {moment}{kept}")
        return answer

    async def _additions(
        self, name: str, task: AssignedTask, reply: HookReply, asked_by: dict[tuple[str, str], str]
    ) -> Additions:
        """What a hook asks for, within what it may.

        Raises:
            NodeHookError: something is outside, or another hook asked for the same.
        """
        policy, own_dirs = self._policy, await self._guarded_dirs() if reply.mounts else ()
        own_network = HOST_NETWORK_ID not in task.spec.network_ids
        faults = [hook_policy.env_fault(policy, key, value) for key, value in reply.env.items()]
        faults += [
            hook_policy.sysctl_fault(policy, key, str(value), own_network=own_network)
            for key, value in reply.sysctls.items()
        ]
        for fault in filter(None, faults):
            raise NodeHookError(name, fault)
        mounts = []
        for mount in reply.mounts:
            seen = await self._host.node_hooks.look(mount.source) if hook_policy.is_clean_path(mount.source) else None
            fault = hook_policy.target_fault(mount.target, own_dirs=own_dirs)
            if seen is None or seen.kind not in ("directory", "file"):
                fault = f"may not add mount {mount.source!r}: no file or directory of this host has that path"
            else:
                fault = fault or hook_policy.source_fault(
                    policy, mount.source, seen.path, read_only=mount.read_only, own_dirs=own_dirs
                )
                mounts.append(Mount(source=seen.path, target=mount.target, read_only=mount.read_only))
            if fault:
                raise NodeHookError(name, fault)
        devices = [await self._device(name, device) for device in reply.devices]
        keys = [("env", key) for key in reply.env] + [("sysctl", key) for key in reply.sysctls]
        for key in (*keys, *(("mount", mount.target) for mount in mounts)):
            other = asked_by.setdefault(key, name)
            if other != name:
                raise NodeHookError(name, f"adds {key[0]} {key[1]}, which node hook {other} adds as well")
        return Additions(
            env=tuple(f"{key}={value}" for key, value in reply.env.items()),
            sysctls={key: str(value) for key, value in reply.sysctls.items()},
            mounts=tuple(mounts),
            devices=tuple(devices),
        )

    async def _guarded_dirs(self) -> tuple[str, ...]:
        """Beeyard's own directories by their names, and where symbolic links lead from there."""
        seen = [await self._host.node_hooks.look(path) for path in self._own_dirs]
        return (*self._own_dirs, *(found.path for found in seen if found is not None))

    async def _device(self, name: str, device: str) -> str:
        seen = await self._host.node_hooks.look(device) if hook_policy.is_clean_path(device) else None
        if seen is None or seen.kind != "device":
            raise NodeHookError(name, f"may not add device {device!r}: no device of this host has that path")
        fault = hook_policy.device_fault(self._policy, device, seen.path)
        if fault:
            raise NodeHookError(name, fault)
        return device

    async def _stop(self, task_id: str) -> None:
        """Make every `stop` that is owed for a task; the lock is held."""
        owed = self._owed.get(task_id)
        if owed is None:
            return
        exit_code = await self._exit_code(task_id)
        for name in reversed(owed.hooks):
            await self._stop_one(name, owed.task, exit_code)
        del self._owed[task_id]
        try:
            await self._host.files.remove(f"{self._directory}/{task_id}")
        except DiskError as error:
            # The next life of the agent calls them once more; a full disk must not keep the task from ending.
            log.warning("what was owed to node hooks was not removed", task=task_id, reason=str(error))

    async def _stop_one(self, name: str, task: AssignedTask, exit_code: int | None) -> None:
        reason = ""
        for attempt in range(STOP_TRIES):
            if attempt:
                await trio.sleep(STOP_PAUSE_S)
            try:
                if name not in await self._host.node_hooks.names():
                    log.warning(
                        "a node hook was removed before it was told that a task stopped", task=task.id, hook=name
                    )
                    return
                await self._call(name, "stop", task, exit_code=exit_code)
                return
            except HostError as error:
                reason = str(error)
                log.warning("a node hook failed at stop", task=task.id, hook=name, attempt=attempt + 1, reason=reason)
        log.error(
            "a node hook was not told that a task stopped; it is given up", task=task.id, hook=name, reason=reason
        )

    async def _exit_code(self, task_id: str) -> int | None:
        """How the command ended, where that is known at once."""
        controller = self._controllers.get(task_id)
        if controller is None or controller.phase != "exited":
            return None
        try:
            return (await controller.wait()).code
        except HostError:
            return None  # it never ran

    # --- what is owed ------------------------------------------------------------------------------------------------

    def _lock(self, task_id: str) -> trio.Lock:
        return self._locks.setdefault(task_id, trio.Lock())

    async def _owe(self, task: AssignedTask, name: str) -> None:
        """Write down that a hook is about to be called.

        Raises:
            DiskError: it could not be written, so the hook is not called.
        """
        before = self._owed.get(task.id)
        owed = Owed(task=task, hooks=(*(before.hooks if before else ()), name))
        await self._host.files.replace(f"{self._directory}/{task.id}", msgspec.msgpack.encode(owed))
        self._owed[task.id] = owed

    async def _load(self) -> None:
        """Read what earlier lives of the agent owe, once.

        Raises:
            DiskError: it cannot be read; nothing is prepared or undone as long as that is so.
        """
        if self._is_loaded:
            return
        async with self._load_lock:
            if self._is_loaded:
                return
            found: dict[str, Owed] = {}
            for name in await self._host.files.list(self._directory):
                path = f"{self._directory}/{name}"
                data = await self._host.files.read(path)
                try:
                    owed = msgspec.msgpack.decode(data or b"", type=Owed)
                except msgspec.MsgspecError as error:
                    log.error("what is owed to node hooks is damaged and removed", path=path, reason=str(error))
                    await self._host.files.remove(path)
                    continue
                found[owed.task.id] = owed
            self._owed = found
            self._is_loaded = True


def _join(one: Additions, other: Additions) -> Additions:
    return Additions(
        env=(*one.env, *other.env),
        sysctls={**one.sysctls, **other.sysctls},
        mounts=(*one.mounts, *other.mounts),
        devices=tuple(dict.fromkeys([*one.devices, *other.devices])),
    )


__all__ = ["OWN_DIRS", "STOP_PAUSE_S", "STOP_TRIES", "NodeHookStep"]
