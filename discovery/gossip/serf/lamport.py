"""Lamport clocks: Serf has three, for members, user events and queries.

Source: Serf 0.9.4 serf/lamport.go.
"""

from __future__ import annotations

# How far ahead of this clock a time is believed. Serf believes any: one message with 2**64 - 1 wraps the clock of everyone
# to 0, and one with a little less is the last that is ever new. Nobody misses four thousand million things; and to get to
# 2**64 in such steps somebody has to send as many messages.
AHEAD_MAX = 1 << 32


class LamportClock:
    """Counts what happened. A message carries `time()` and then the clock is incremented."""

    __slots__ = ("_counter",)

    def __init__(self, start: int = 1) -> None:
        self._counter = start

    def time(self) -> int:
        """The time of the next thing that happens here."""
        return self._counter

    def increment(self) -> int:
        """Something happened here; the new time."""
        self._counter += 1
        return self._counter

    def believes(self, l_time: int) -> bool:
        """Whether something can have happened at this time."""
        return 0 <= l_time <= self._counter + AHEAD_MAX

    def witness(self, l_time: int) -> None:
        """Something happened elsewhere at `l_time`; what happens here from now on is later. Absurd times are passed over."""
        if self._counter <= l_time and self.believes(l_time):
            self._counter = l_time + 1


__all__ = ["AHEAD_MAX", "LamportClock"]
