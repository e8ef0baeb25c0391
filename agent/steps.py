"""What this host does for a task besides running it: each concern is a `Step`, and a task's life calls them all in order.

    found      an earlier life of the agent made things for this task, which is still here
    before     nothing of the task exists yet; the last moment to refuse it at no cost
    attached   its namespace and links exist, its command does not run yet
    starting   the command is about to be run
    ended      it is over and its links are down; whatever the step made for it goes
    settle     all tasks on this host are known: what an earlier life made for others goes

A step raises `HostError` to refuse: before the command has run the task is REJECTED with that sentence. `ended` is insisted
on until it works, and may come for a task that the step has never seen. Everything is idempotent: after a restart of the
agent `before` and `attached` come again for a task that was only prepared.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller


class Step:
    """One concern; overrides what it cares for."""

    def found(self, task: AssignedTask) -> None:
        """Take note of a task that was on this host when the agent started. Never blocks."""

    async def before(self, task: AssignedTask) -> Additions:
        """Get ready for a task, and say what it gets beside what its spec asks for. Raises HostError to refuse."""
        return NO_ADDITIONS

    async def attached(self, task: AssignedTask, controller: Controller) -> None:
        """The task's namespace has its links. Raises HostError to refuse."""

    async def starting(self, task: AssignedTask, controller: Controller) -> None:
        """The task is about to run. Raises HostError to refuse."""

    def stands_between(self, task: AssignedTask) -> bool:
        """Whether `attached` or `starting` has something to do for a task that `before` let in. If not, neither may come."""
        return False

    async def ended(self, task_id: str) -> None:
        """Take away what was made for a task. Raises HostError to be called again."""

    async def settle(self) -> None:
        """Take away what was made for tasks that are not on this host any more. Called once, after each `found`."""


class Steps(Step):
    """All steps of a node, as one: in order on the way up, in reverse order at the end."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`."""
        for step in self._steps:
            step.found(task)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`; gives what all add together."""
        together = NO_ADDITIONS
        for step in self._steps:
            more = await step.before(task)
            if more is NO_ADDITIONS:
                continue
            together = msgspec.structs.replace(
                together,
                env=(*together.env, *more.env),
                sysctls={**together.sysctls, **more.sysctls},
                mounts=(*together.mounts, *more.mounts),
                devices=(*together.devices, *more.devices),
            )
        return together

    async def attached(self, task: AssignedTask, controller: Controller) -> None:
        """See `Step.attached`."""
        for step in self._steps:
            await step.attached(task, controller)

    async def starting(self, task: AssignedTask, controller: Controller) -> None:
        """See `Step.starting`."""
        for step in self._steps:
            await step.starting(task, controller)

    def stands_between(self, task: AssignedTask) -> bool:
        """See `Step.stands_between`."""
        return any(step.stands_between(task) for step in self._steps)

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`."""
        for step in reversed(self._steps):
            await step.ended(task_id)

    async def settle(self) -> None:
        """See `Step.settle`."""
        for step in self._steps:
            await step.settle()


__all__ = ["Step", "Steps"]
