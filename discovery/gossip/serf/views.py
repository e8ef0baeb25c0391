"""Noticing that others believe something else, so that what gossip missed is mended within seconds and not within minutes.

Theory of operation
-------------------
Each answer to a probe carries 32 bits that depend on who is up, under which incarnations, and on the clocks of members and of
user events: ten bytes that members of one mind have in common. While news goes around they differ for a second or two, and a
member that meets one that has missed something differs from that one alone. But a member that has missed something itself
differs from everybody: when no answer has agreed with it for twice as long as news takes, it asks for an exchange.

Lamport clocks tell of the newest intent or event that a member has not heard of, not of an older one: that waits for the
next exchange by the clock on the wall (`swim.exchange`). Serf's own agents say nothing of their views, and pass over ours.
"""

from __future__ import annotations

from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.lamport import LamportClock
from beeyard.discovery.gossip.swim.roster import mark

# A busy member's news waits in a queue, and leaves later than its time.
PATIENCE = 2.0


class Views:
    """This member's view, and whether anybody shares it."""

    def __init__(self, context: Context, event_clock: LamportClock) -> None:
        self._context = context
        self._event_clock = event_clock
        self._alone_since_s: float | None = None

    def mine(self) -> int:
        """What to say of it."""
        return self._context.memberlist.view ^ mark(f"{self._context.clock.time()}/{self._event_clock.time()}")

    def heard(self, name: str, view: int) -> None:
        """Another member's, as it answers a probe."""
        context = self._context
        if view == self.mine():
            self._alone_since_s = None
        elif self._alone_since_s is None:
            self._alone_since_s = context.now_s
        elif context.now_s - self._alone_since_s >= PATIENCE * context.memberlist.news_s:
            context.memberlist.mend(context.now_s, name)


__all__ = ["PATIENCE", "Views"]
