"""What happened in a simulated world: the last events for a reader, and a digest of all of them for comparison.

Two runs of one seed give the same digest, whatever Python's hash seed is. When they do not, `Trace.sink` of both runs are
compared line by line and the first that differs names the place.
"""

from __future__ import annotations

import collections
import hashlib
import random
import struct
from typing import TextIO

import trio

LAST_EVENTS = 50


class Trace:
    """All events of a world, in order. `sink`, when given, gets every line that goes into the digest."""

    def __init__(self, sink: TextIO | None = None) -> None:
        self.last: collections.deque[str] = collections.deque(maxlen=LAST_EVENTS)
        self.sink = sink
        self.n_events = 0
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Of everything up to now."""
        return self._hash.hexdigest()

    def event(self, actor: str, what: str) -> None:
        """Note something worth reading: `t=12.345 m1 -> a3 connect`."""
        line = f"t={trio.current_time():.3f} {actor} {what}"
        self.last.append(line)
        self._note(line)

    def message(self, sender: str, receiver: str, data: bytes) -> None:
        """Note bytes that were sent; too many to read, so they only count for the digest."""
        content = hashlib.blake2b(data, digest_size=8).hexdigest()
        self._note(f"t={trio.current_time():.6f} {sender} -> {receiver} {len(data)} bytes {content}")

    def draw(self, owner: str, value: float) -> None:
        """Note a random number that was drawn."""
        if self.sink is not None:
            self._note(f"{owner} draws {value!r}")
        else:
            self._hash.update(struct.pack("d", value))

    def _note(self, line: str) -> None:
        self.n_events += 1
        self._hash.update(line.encode())
        if self.sink is not None:
            self.sink.write(line + "\n")


class TracedRandom(random.Random):
    """A generator whose every draw is noted. Its stream depends on `seed` and `owner` alone."""

    def __init__(self, seed: int, owner: str, trace: Trace) -> None:
        self._owner = owner
        self._trace: Trace | None = None
        super().__init__(f"{seed}/{owner}")  # a string seeds by SHA-512, not by Python's hash
        self._trace = trace

    def random(self) -> float:
        """As the base class's."""
        value = super().random()
        if self._trace is not None:
            self._trace.draw(self._owner, value)
        return value

    def getrandbits(self, k: int, /) -> int:
        """As the base class's."""
        value = super().getrandbits(k)
        if self._trace is not None:
            self._trace.draw(self._owner, float(value & 0xFFFFFFFFFFFF))
        return value


__all__ = ["LAST_EVENTS", "Trace", "TracedRandom"]
