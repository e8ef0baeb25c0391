"""Has sessions speak when they are due: one task and one deadline for all of them."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Protocol

import trio


class Speaker(Protocol):
    """Who has something to say at a time."""

    def due(self, at_s: float) -> None:
        """The time that was asked for has come. It may have been overtaken by an earlier one."""


class Pacer:
    """A deadline of its own for each session costs several times what an entry in this heap does."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Speaker]] = []
        self._number = itertools.count()  # those of one time in the order in which they asked
        self._until_s = math.inf
        self._waiting = trio.CancelScope()

    def call(self, at_s: float, speaker: Speaker) -> None:
        """Have `speaker.due(at_s)` called at a time of trio's clock, at the earliest by `run`."""
        heapq.heappush(self._entries, (at_s, next(self._number), speaker))
        if at_s < self._until_s:
            self._until_s = self._waiting.deadline = at_s

    async def run(self) -> None:
        """Call who is due, until cancelled."""
        while True:
            self._until_s = self._entries[0][0] if self._entries else math.inf
            with trio.CancelScope(deadline=self._until_s) as self._waiting:
                await trio.sleep_forever()
            now_s = trio.current_time()
            while self._entries and self._entries[0][0] <= now_s:
                at_s, _, speaker = heapq.heappop(self._entries)
                speaker.due(at_s)


__all__ = ["Pacer", "Speaker"]
