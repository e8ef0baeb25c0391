"""Lamport clocks: Serf has three, for members, user events and queries.

Source: Serf 0.9.4 serf/lamport.go.
"""

from __future__ import annotations

# The largest time that is believed. Go's clock is a uint64: a peer that sends 2^64 - 1 would wrap the clock of everyone to
# 0, after which nothing is new any more. 2^62 is more than a cluster counts in its life.
L_TIME_MAX = 1 << 62


class LamportClock:
    """Counts what happened. A message carries `time()` and then the clock is incremented."""

    __slots__ = ("_counter",)

    def __init__(self, start: int = 1) -> None:
        self._counter = max(1, start)

    def time(self) -> int:
        """The time of the next thing that happens here."""
        return self._counter

    def increment(self) -> int:
        """Something happened here; the new time."""
        self._counter += 1
        return self._counter

    def witness(self, l_time: int) -> None:
        """Something happened elsewhere at `l_time`; what happens here from now on is later. Absurd times are passed over."""
        if self._counter <= l_time <= L_TIME_MAX:
            self._counter = l_time + 1


__all__ = ["L_TIME_MAX", "LamportClock"]
