"""User events that were seen, so that each is told once, and so that one who missed some gets them at a push/pull.

Source: Serf 0.9.4 serf/serf.go (handleUserEvent, UserEvent).
"""

from __future__ import annotations

from beeyard.discovery.gossip.message import EventItem, EventsAt, UserEvent
from beeyard.discovery.gossip.serf.lamport import LamportClock

# Serf has no limit to the events of one Lamport time, and a peer can put all it likes at one time.
N_KEPT_MAX = 8192
BYTES_KEPT_MAX = 4 << 20


class UserEvents:
    """The newest `n_times` Lamport times and what happened at each."""

    def __init__(self, n_times: int) -> None:
        self.clock = LamportClock()
        self.min_time = 0  # what happened before is not told
        self.revision = 0  # changes with what `recent` says
        self._n_times = n_times
        self._seen: dict[int, dict[EventItem, None]] = {}
        self._n_kept = 0
        self._bytes_kept = 0

    def take(self, event: UserEvent) -> bool:
        """Remember an event; False: it is known, or too old to tell."""
        l_time = event.l_time
        if not self.clock.believes(l_time):
            return False
        self.clock.witness(l_time)
        if l_time < self.min_time or l_time < self.clock.time() - self._n_times:
            return False
        item = EventItem(event.name, event.payload)
        at = self._seen.setdefault(l_time, {})
        if item in at:
            return False
        at[item] = None
        self.revision += 1
        self._n_kept += 1
        self._bytes_kept += _size(item)
        self._let_go()
        return True

    def recent(self) -> tuple[EventsAt, ...]:
        """All that is remembered, oldest first, for a push/pull."""
        return tuple(EventsAt(l_time=at, events=tuple(self._seen[at])) for at in sorted(self._seen))

    def ignore_before(self, l_time: int) -> None:
        """Tell nothing that happened earlier: the past of a cluster that this member has just joined."""
        if self.clock.believes(l_time):
            self.min_time = max(self.min_time, l_time)

    def _let_go(self) -> None:
        if len(self._seen) > self._n_times:
            oldest = self.clock.time() - self._n_times
            for l_time in [t for t in self._seen if t < oldest]:
                self._forget(l_time)
        while self._n_kept > N_KEPT_MAX or self._bytes_kept > BYTES_KEPT_MAX:
            l_time = min(self._seen)
            self._forget(l_time)
            self.min_time = max(self.min_time, l_time + 1)  # what is forgotten would be taken for new

    def _forget(self, l_time: int) -> None:
        at = self._seen.pop(l_time)
        self._n_kept -= len(at)
        self._bytes_kept -= sum(map(_size, at))


def _size(item: EventItem) -> int:
    return len(item.name) + len(item.payload) + 64


__all__ = ["UserEvents"]
