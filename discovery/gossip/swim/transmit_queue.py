"""What is still to be told to others, each piece of news a limited number of times."""

from __future__ import annotations

import math
from collections.abc import Callable


def transmit_limit(mult: int, n_nodes: int) -> int:
    """How often one broadcast is sent by one member. Source: memberlist util.go `retransmitLimit`."""
    return mult * math.ceil(math.log10(n_nodes + 1))


class _Broadcast:
    __slots__ = ("done", "key", "message", "name", "n_sent")

    def __init__(self, message: bytes, name: str, number: int, done: Callable[[], None] | None) -> None:
        self.message = message
        self.name = name
        self.key = (len(message), number)
        self.n_sent = 0
        self.done = done


class TransmitQueue:
    """Broadcasts in the order of sending: fewest transmits first, then the longest that fits, then the newest.

    Serf's queues are made by `Memberlist.new_queue`, so that gossip wakes up for what they hold.
    Source: memberlist 0.2.2 queue.go `TransmitLimitedQueue`.
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

    def __len__(self) -> int:
        """How many broadcasts wait."""

    def queue(self, message: bytes, *, name: str = "", done: Callable[[], None] | None = None) -> None:
        """Add one, encoded with its type byte.

        Args:
            message: what to send; memberlist's own messages with their type byte, Serf's with Serf's.
            name: replaces the waiting broadcast of this name; "" replaces nothing.
            done: called once when it will not be sent any more: sent often enough, replaced or dropped.
        """

    def draw(self, overhead: int, limit: int) -> list[bytes]:
        """Take what fits into a packet with `limit` bytes left, each costing its length and `overhead`."""

    def prune(self, n_kept: int) -> None:
        """Drop the broadcasts sent most often until `n_kept` are left."""


__all__ = ["TransmitQueue", "transmit_limit"]
