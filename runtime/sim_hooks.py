"""The node hooks of a simulated machine: scripted, in trio's time. The real ones are `runtime.real_hooks`.

`SimHooks` is what lives on a machine and outlasts every life of its agent. A hook is a function of the moment and of the
document, which gives a `HookScript`: how long it takes, what it answers, whether it hangs. Every call is written down, with
what became of it, so that a test can say "each prepare had its stop". A call whose agent is cancelled or has crashed is
"killed", as the real runner does it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from beeyard.core.errors import NodeHookError
from beeyard.runtime.host_tasks import HOOK_ANSWER_BYTES_MAX, HookAnswer, NodeHooks, SeenPath
from beeyard.runtime.sim_life import Life


@dataclasses.dataclass(frozen=True)
class HookScript:
    """What one call of a hook does."""

    takes_s: float = 0.0  # math.inf: it hangs
    exit_code: int = 0
    stderr: str = ""
    answer: dict[str, Any] | bytes = b""  # bytes as they are: an answer that is no JSON


Hook = Callable[[str, dict[str, Any]], HookScript]


@dataclasses.dataclass
class HookCall:
    """One call that was made."""

    hook: str
    moment: str
    task_id: str
    document: dict[str, Any]
    began_s: float
    end: str = "runs"  # then "exit N", "late" or "killed"


async def _always_running() -> None:
    """A machine that is never paused."""


class SimHooks:
    """The port `NodeHooks` of one machine, and what a test does with it.

    Attributes:
        hooks: by name; called in the order of names.
        calls: all that were made, in the order of their beginnings.
        paths: what is at which path of the machine; a real path at its own.
        unsafe: not "": one hook is not safe to call, for this reason.
    """

    def __init__(self, running: Callable[[], Awaitable[None]] = _always_running) -> None:
        self.hooks: dict[str, Hook] = {}
        self.calls: list[HookCall] = []
        self.paths: dict[str, SeenPath] = {}
        self.unsafe = ""
        self._running = running

    def add_path(self, path: str, kind: str = "directory", *, leads_to: str = "") -> None:
        """Put something on the machine; `leads_to`: a symbolic link."""
        self.paths[path] = SeenPath(path=leads_to or path, kind=kind)

    def made(self, moment: str, task_id: str = "") -> list[HookCall]:
        """Calls of one moment, of one task or of all."""
        return [call for call in self.calls if call.moment == moment and task_id in ("", call.task_id)]

    async def names(self) -> tuple[str, ...]:
        """See `NodeHooks.names`."""
        await trio.lowlevel.checkpoint()
        if self.unsafe:
            raise NodeHookError(self.unsafe, "is not safe to call: others than its owner may not write it")
        return tuple(sorted(self.hooks))

    async def look(self, path: str) -> SeenPath | None:
        """See `NodeHooks.look`."""
        await trio.lowlevel.checkpoint()
        return self.paths.get(path)

    async def run(self, name: str, moment: str, task_id: str, document: bytes, *, timeout_s: float) -> HookAnswer:
        """See `NodeHooks.run`."""
        await trio.lowlevel.checkpoint()
        hook = self.hooks.get(name)
        if hook is None:
            raise NodeHookError(name, "is not in its directory any more")
        parsed = json.loads(document)
        call = HookCall(name, moment, task_id, parsed, trio.current_time())
        self.calls.append(call)
        script = hook(moment, parsed)
        try:
            # Late by a hair is late: the deadline and the end may come at the same instant.
            await trio.sleep(min(script.takes_s, timeout_s))
            await self._running()
        except trio.Cancelled:
            call.end = "killed"
            raise
        late = script.takes_s > timeout_s
        call.end = "late" if late else f"exit {script.exit_code}"
        answer = script.answer if isinstance(script.answer, bytes) else json.dumps(script.answer).encode()
        return HookAnswer(
            exit_code=128 if late else script.exit_code,
            stdout=b"" if late else answer[:HOOK_ANSWER_BYTES_MAX],
            stderr=script.stderr,
            late=late,
            too_long=len(answer) > HOOK_ANSWER_BYTES_MAX,
            output_path=f"/var/log/{task_id}.hooks.log",
        )


class GatedHooks:
    """`NodeHooks` of one life: each call waits while the machine is paused, and fails once the daemon has crashed."""

    def __init__(self, life: Life, hooks: NodeHooks) -> None:
        self._life = life
        self._hooks = hooks

    async def names(self) -> tuple[str, ...]:
        """See `NodeHooks.names`."""
        await self._enter()
        return await self._hooks.names()

    async def look(self, path: str) -> SeenPath | None:
        """See `NodeHooks.look`."""
        await self._enter()
        return await self._hooks.look(path)

    async def run(self, name: str, moment: str, task_id: str, document: bytes, *, timeout_s: float) -> HookAnswer:
        """See `NodeHooks.run`."""
        await self._enter()
        answer = await self._hooks.run(name, moment, task_id, document, timeout_s=timeout_s)
        await self._enter()
        return answer

    async def _enter(self) -> None:
        if not await self._life.gate():
            raise NodeHookError("*", "cannot be called: this machine has crashed")


HANGS = HookScript(takes_s=math.inf)

__all__ = ["HANGS", "GatedHooks", "Hook", "HookCall", "HookScript", "SimHooks"]
