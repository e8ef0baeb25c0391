"""A hook that does what a test tells it to."""

from __future__ import annotations

import trio

from beeyard.core.errors import HookRefused
from beeyard.core.grant import AnyGrant, NoteGrant
from beeyard.core.model import Node, Task
from beeyard.manager.hooks import Hook, Window


class Scripted:
    """A hook that takes its time, refuses some nodes, and keeps the books of what it gave and of when it was cancelled."""

    def __init__(
        self, name: str, window: Window, *, takes_s: float = 0.0, deadline_s: float = 60.0, life: str = ""
    ) -> None:
        self.hook = Hook(name, window, deadline_s, lambda task: True, self._reserve, self._release, self._restore)
        self.takes_s = takes_s
        self.refused_nodes: list[str] = []
        self.refused_everywhere = False
        self.fails_with: Exception | None = None
        self.began: list[tuple[str, str, float]] = []  # (task, node, when)
        self.held: list[str] = []
        self.cancelled_s: list[float] = []
        self._life = life
        self._n = 0

    async def _reserve(self, task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        self.began.append((task.id, node.id if node else "", round(trio.current_time(), 1)))
        try:
            await trio.sleep(self.takes_s)
        except trio.Cancelled:
            self.cancelled_s.append(round(trio.current_time(), 1))
            raise
        if self.fails_with is not None:
            raise self.fails_with
        if self.refused_everywhere:
            raise HookRefused(self.hook.name, "everywhere", "closed")
        if node is not None and node.id in self.refused_nodes:
            raise HookRefused(self.hook.name, "node", f"not on {node.id}")
        self._n += 1
        grant = NoteGrant(id=f"{self.hook.name}-{self._life}{self._n}", hook=self.hook.name)
        self.held.append(grant.id)
        return (grant,)

    def _release(self, grant: AnyGrant, used: bool) -> None:
        if grant.id in self.held:
            self.held.remove(grant.id)

    def _restore(self, task: Task, grant: AnyGrant) -> None:
        assert grant.id not in self.held, "restored twice"
        assert not self.began, "restored after something new was asked for"
        self.held.append(grant.id)
