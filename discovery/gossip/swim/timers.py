"""Deadlines in a heap: what is due when, and how to move all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

Action = Callable[[float], None]


class Timer:
    """One deadline; its action is called with the time at which it was noticed."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action


class Timers:
    """All deadlines of one member. Equal ones run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._n_set = 0
        self._n_cancelled = 0  # of those in the heap

    def at(self, due_s: float, action: Action) -> Timer:
        """Set one."""
        timer = Timer(action)
        self._n_set += 1
        heappush(self._heap, (due_s, self._n_set, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Never run it. Idempotent: yes, also after it ran."""
        if timer.action is None:
            return
        timer.action = None
        self._n_cancelled += 1
        # Half of them dead weight: sweep. Each sweep is paid for by as many cancellations.
        if self._n_cancelled > 32 and 2 * self._n_cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapify(self._heap)
            self._n_cancelled = 0

    def next_at(self) -> float:
        """The earliest deadline, inf when there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
            self._n_cancelled -= 1
        return heap[0][0] if heap else math.inf

    def run(self, now_s: float) -> None:
        """Run all that are due, those that these set for the same time too."""
        while self.next_at() <= now_s:
            timer = heappop(self._heap)[2]
            action, timer.action = timer.action, None
            assert action is not None  # `next_at` left a live one on top
            action(now_s)

    def postpone(self, until_s: float) -> None:
        """Have nothing run before this time."""
        self._heap = [(max(due_s, until_s), number, timer) for due_s, number, timer in self._heap]
        heapify(self._heap)

    def delay(self, by_s: float) -> None:
        """Move all deadlines. Their order stays, so the heap does."""
        self._heap = [(due_s + by_s, number, timer) for due_s, number, timer in self._heap]


__all__ = ["Timer", "Timers"]
