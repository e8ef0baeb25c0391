"""What is still to be told to others, each piece of news a limited number of times."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable


def transmit_limit(mult: int, n_nodes: int) -> int:
    """How often one broadcast is sent by one member. Source: memberlist util.go `retransmitLimit`."""
    return mult * math.ceil(math.log10(n_nodes + 1))


class _Broadcast:
    __slots__ = ("done", "message", "n_sent", "name", "number")

    def __init__(self, message: bytes, number: int, name: str, done: Callable[[], None] | None) -> None:
        self.message = message
        self.number = number  # unique and growing
        self.name = name
        self.done = done
        self.n_sent = 0


# A tier's key: bisection finds the longest that fits, and of equally long ones the newest.
_Entry = tuple[int, int, _Broadcast]


class TransmitQueue:
    """Broadcasts in the order of sending: fewest transmits first, then the longest that fits, then the newest.

    Serf's queues are made by `Memberlist.new_queue`, so that gossip wakes up for what they hold.
    Source: memberlist 0.2.2 queue.go `TransmitLimitedQueue`, whose tree is a sorted list for each number of transmits here.
    """

    def __init__(
        self, n_nodes: Callable[[], int], retransmit_mult: int, on_queued: Callable[[], None] | None = None
    ) -> None:
        """An empty queue.

        Args:
            n_nodes: asked at each draw for the number of members, which sets the limit of transmits.
            retransmit_mult: `Config.retransmit_mult`.
            on_queued: called after each `queue`.
        """
        self._n_nodes = n_nodes
        self._mult = retransmit_mult
        self._on_queued = on_queued
        self._tiers: dict[int, list[_Entry]] = {}  # by transmits so far; no tier is empty
        self._by_name: dict[str, _Broadcast] = {}
        self._n = 0
        self._n_ever = 0

    def __len__(self) -> int:
        """How many broadcasts wait."""
        return self._n

    def queue(self, message: bytes, *, name: str = "", done: Callable[[], None] | None = None) -> None:
        """Add one, encoded with its type byte.

        Args:
            message: what to send; memberlist's own messages with their type byte, Serf's with Serf's.
            name: replaces the waiting broadcast of this name; "" replaces nothing.
            done: called once when it will not be sent any more: sent often enough, replaced or dropped.
        """
        old = self._by_name.get(name) if name else None
        if old is not None:
            self._remove(old)
        self._n_ever += 1
        broadcast = _Broadcast(message, self._n_ever, name, done)
        if name:
            self._by_name[name] = broadcast
        self._insert(broadcast)
        if old is not None and old.done is not None:
            old.done()
        if self._on_queued is not None:
            self._on_queued()

    def draw(self, overhead: int, limit: int, n_max: int = 1 << 30) -> list[bytes]:
        """Take up to `n_max` that fit into a packet with `limit` bytes left, each costing its length and `overhead`."""
        if not self._n:
            return []
        sent_max = transmit_limit(self._mult, self._n_nodes())
        drawn: list[_Broadcast] = []
        for n_sent in sorted(self._tiers):
            tier = self._tiers[n_sent]
            while tier and len(drawn) < n_max:
                fits = bisect_left(tier, (limit - overhead + 1,))
                if not fits:
                    break
                length, _, broadcast = tier.pop(fits - 1)
                limit -= length + overhead
                drawn.append(broadcast)
            if not tier:
                del self._tiers[n_sent]
        self._n -= len(drawn)
        for broadcast in drawn:
            broadcast.n_sent += 1
            if broadcast.n_sent < sent_max:
                self._insert(broadcast)
            else:
                self._end(broadcast)
        return [broadcast.message for broadcast in drawn]

    def prune(self, n_kept: int) -> None:
        """Drop the broadcasts sent most often until `n_kept` are left."""
        while self._n > max(0, n_kept):
            n_sent = max(self._tiers)
            broadcast = self._tiers[n_sent][0][2]
            self._remove(broadcast)
            self._end(broadcast)

    def _insert(self, broadcast: _Broadcast) -> None:
        insort(
            self._tiers.setdefault(broadcast.n_sent, []),
            (len(broadcast.message), broadcast.number, broadcast),
        )
        self._n += 1

    def _remove(self, broadcast: _Broadcast) -> None:
        tier = self._tiers[broadcast.n_sent]
        # The key without its last part sorts right before the entry itself; numbers are unique.
        del tier[bisect_left(tier, (len(broadcast.message), broadcast.number))]
        if not tier:
            del self._tiers[broadcast.n_sent]
        self._n -= 1

    def _end(self, broadcast: _Broadcast) -> None:
        if broadcast.name and self._by_name.get(broadcast.name) is broadcast:
            del self._by_name[broadcast.name]
        if broadcast.done is not None:
            broadcast.done()


__all__ = ["TransmitQueue", "transmit_limit"]
