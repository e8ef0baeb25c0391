"""The hooks of one task on their way, and what they have reserved so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import structlog
import trio

from beeyard.core.errors import ClusterError, HookRefused
from beeyard.core.grant import AnyGrant
from beeyard.core.model import Node, Task
from beeyard.manager.hooks.hook import Hook, Stage

log = structlog.get_logger(__name__)


class HookRun:
    """Runs a task's hooks by their windows; holds their grants until they are stored or given back.

    Invariant: every grant that a hook has made is in `grants`, or was taken by `stored` or `hand_over`, or has been released.
    """

    def __init__(self, hooks: Iterable[Hook], task: Task, nursery: trio.Nursery) -> None:
        self.grants: list[AnyGrant] = []
        self._task = task
        self._nursery = nursery
        self._hooks = [hook for hook in hooks if hook.applies(task)]
        # Also those that have not begun, and those that refused: a task that a hook refused enters no stage after it.
        self._unfinished = dict.fromkeys(hook.name for hook in self._hooks)
        self._scopes: dict[str, trio.CancelScope] = {}  # of hooks under way, by name
        self._refusal: HookRefused | None = None
        self._over = False
        self._moved = trio.Event()

    def enter(self, stage: Stage, node: Node | None = None) -> None:
        """Start the hooks whose window begins at a stage."""
        for hook in self._hooks:
            if hook.window.starts_at is stage:
                self._scopes[hook.name] = trio.CancelScope()
                self._nursery.start_soon(self._run_one, hook, node, name=f"hook {hook.name}")

    async def finish(self, stage: Stage) -> None:
        """Return when the task may enter a stage: the hooks whose window ends by then have finished.

        Raises:
            HookRefused: one of this run's hooks said no, or was too slow.
        """
        while self._refusal is None and self.waits_for(stage):
            await self._moved.wait()
        if self._refusal is not None:
            raise self._refusal

    def waits_for(self, stage: Stage) -> list[str]:
        """Names of the hooks that keep the task from entering a stage."""
        if not self._unfinished:
            return []
        return [h.name for h in self._hooks if h.name in self._unfinished and h.window.finished_by <= stage]

    def stored(self, grants: Iterable[AnyGrant]) -> None:
        """These are stored with the task and so the store's to release; others may have come while it wrote."""
        grant_ids = {grant.id for grant in grants}
        self.grants = [grant for grant in self.grants if grant.id not in grant_ids]

    def hand_over(self) -> tuple[AnyGrant, ...]:
        """All grants, which are now somebody else's to release."""
        grants = tuple(self.grants)
        self.grants.clear()
        return grants

    def abandon(self) -> None:
        """Give up: stop what is under way and release what is held. Idempotent."""
        self._over = True
        self._unfinished.clear()
        self._wake()
        for scope in self._scopes.values():
            scope.cancel()
        release_grants(self._hooks, self.hand_over(), used=False)

    async def _run_one(self, hook: Hook, node: Node | None) -> None:
        scope = self._scopes[hook.name]
        try:
            with scope:
                grants = await self._reserve(hook, node)
                if grants is None:
                    return
                self.grants += grants
                self._unfinished.pop(hook.name, None)
                if self._over:
                    # It finished at the very moment at which it was given up.
                    release_grants(self._hooks, self.hand_over(), used=False)
        finally:
            del self._scopes[hook.name]
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def _reserve(self, hook: Hook, node: Node | None) -> tuple[AnyGrant, ...] | None:
        """Ask one hook; None when it refused, and then `_refusal` says why."""
        scope: Literal["node", "everywhere"] = "node" if node is not None else "everywhere"
        try:
            with trio.fail_after(hook.deadline_s):
                return tuple(await hook.reserve(self._task, node))
        except trio.TooSlowError:
            self._refusal = HookRefused(hook.name, scope, f"not finished within {hook.deadline_s:g} s")
        except HookRefused as refusal:
            self._refusal = refusal
        except ClusterError as error:
            self._refusal = HookRefused(hook.name, scope, str(error))
        except Exception as error:
            # A firebreak: a hook may be anybody's code, and a bug in it is a reason for its tasks to wait, not for the
            # manager to end, which would run into it again in its next life.
            log.exception("hook failed", hook=hook.name, task=self._task.id, node=node.id if node is not None else "")
            self._refusal = HookRefused(hook.name, "everywhere", f"internal error: {error!r}")
        return None


def restore_grants(hooks: Sequence[Hook], task: Task) -> None:
    """Tell hooks, after the manager was started anew, what they granted to a task that has not ended."""
    by_name = {hook.name: hook for hook in hooks}
    for grant in task.grants:
        if grant.hook in by_name:
            by_name[grant.hook].restore(task, grant)
        else:
            log.error("grant of an unknown hook", task=task.id, grant=grant.id, hook=grant.hook)


def release_grants(hooks: Sequence[Hook], grants: Iterable[AnyGrant], *, used: bool) -> None:
    """Give grants back to the hooks that made them; idempotent, as releases are."""
    by_name = {hook.name: hook for hook in hooks}
    for grant in grants:
        if grant.hook in by_name:
            by_name[grant.hook].release(grant, used)
        else:
            log.error("grant of an unknown hook", grant=grant.id, hook=grant.hook)
