"""What an agent reports of its member to the manager, beside what its host is: `core.membership`.

The manager stores it, and everything that was decided on it is looked at again when it changes. So a coordinate is told when
it means something, and again only when the member has moved by more than the noise of its probes.
"""

from __future__ import annotations

import math

import trio

from beeyard.core.membership import Coordinate, Membership
from beeyard.discovery.gossip.node import GossipNode

# A coordinate begins at an error of 1.5, and is below 1 after about twenty probes.
ERROR_MAX = 1.0
# A place is new when it is so far from the one that was told: 1 ms, above what a loaded host adds to a probe on a LAN, and a
# tenth of the way to the middle of the cluster, since estimates of long ways waver more. At most once a minute.
MOVE_S_MIN = 0.001
MOVE_PART_MIN = 0.1
TELL_AGAIN_S = 60.0


class MembershipReport:
    """Gives what is to be reported of a node's member, at any time."""

    def __init__(self, node: GossipNode) -> None:
        self._node = node
        self._told: Coordinate | None = None
        self._told_s = -math.inf

    def __call__(self) -> Membership:
        """Name, tags and coordinate as they are to be reported now."""
        now_s, here = trio.current_time(), self._node.coordinate()
        is_due = self._told is None or now_s >= self._told_s + TELL_AGAIN_S
        if here is not None and is_due and is_news(self._told, here):
            self._told, self._told_s = here, now_s
        me = self._node.me
        return Membership(name=me.name, tags=me.tags, coordinate=self._told)


def is_news(told: Coordinate | None, here: Coordinate) -> bool:
    """Whether a coordinate is worth telling after the one that was told last."""
    if here.error >= ERROR_MAX:
        return False
    if told is None:
        return True
    moved_s = math.dist(told.vec, here.vec) + abs(told.height + told.adjustment - here.height - here.adjustment)
    return moved_s > max(MOVE_S_MIN, MOVE_PART_MIN * (math.hypot(*told.vec) + told.height))


__all__ = ["MembershipReport", "is_news"]
