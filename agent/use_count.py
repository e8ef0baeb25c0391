"""What several tasks of a node share: made when the first one needs it, taken away when nobody does any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio


class UseCount:
    """Who needs which things, each known by a string.

    Until `settle` nothing is taken away: tasks that nobody knows yet may need it.

    Args:
        remove: takes one thing away; may find that there is nothing to do. Raises HostError to be called again.
    """

    def __init__(self, remove: Callable[[str], Awaitable[None]]) -> None:
        # Held while a thing is made or taken away, so that neither happens in the midst of the other.
        self.lock = trio.Lock()
        self._remove = remove
        self._needs: dict[str, tuple[str, ...]] = {}  # by task id
        self._left: dict[str, tuple[str, ...]] = {}  # those that need it no more, until it was looked after
        self._settled = False

    def need(self, task_id: str, things: Iterable[str]) -> None:
        """A task needs these from now on."""
        self._needs[task_id] = tuple(things)

    def is_needed(self, thing: str) -> bool:
        """Whether any task needs it."""
        return any(thing in things for things in self._needs.values())

    async def leave(self, task_id: str) -> None:
        """A task needs nothing any more. Idempotent: yes; one that never needed anything is fine."""
        if task_id in self._needs:
            self._left[task_id] = self._needs.pop(task_id)
        if self._settled:
            for thing in self._left.get(task_id, ()):
                await self._remove_if_unneeded(thing)
        self._left.pop(task_id, None)

    async def settle(self, present: Iterable[str]) -> None:
        """All tasks of the node are known: take away what is here and nobody needs."""
        self._settled = True
        for thing in present:
            await self._remove_if_unneeded(thing)

    async def _remove_if_unneeded(self, thing: str) -> None:
        async with self.lock:
            if not self.is_needed(thing):
                await self._remove(thing)


__all__ = ["UseCount"]
