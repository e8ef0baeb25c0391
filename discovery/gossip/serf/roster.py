"""Who is a member, in what state, and what intents say about it.

Theory of operation
-------------------
Two sources tell of a member. Memberlist says who answers (`alive`, `gone`, `updated`): it is the truth about now. Intents
say what a member means to do (`join_intent`, `leave_intent`): each has a Lamport time, and of two about one member the
later counts. What both make of it is the status:

    alive ──leave intent──▶ leaving ──gone──▶ left          a graceful leave
    alive ──gone──▶ failed                                  a crash; an intent may follow (force-leave): ▶ left
    alive ──gone, by its own word──▶ left                   the intent was overtaken or lost
    leaving ──join intent──▶ alive                          it was told to have left and refutes
    failed, left ──alive──▶ alive                           it is back

An intent about somebody unknown waits some minutes for it to appear. The failed and the left are kept for a day, pruned
ones not.

Source: Serf 0.9.4 serf/serf.go (handleNodeJoin and following). The third line is ours: Serf calls such a member failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Address, NodeRecord
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.event import (
    Member,
    MemberEvent,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
)
from beeyard.discovery.gossip.serf.tags import tags_of
from beeyard.discovery.gossip.swim.roster import LEFT


class Intent(NamedTuple):
    """What was said about somebody who is not known."""

    is_leave: bool
    l_time: int
    since_s: float


class Roster:
    """All members by name. `emit` is told what changes."""

    def __init__(self, config: SerfConfig, emit: Callable[[MemberEvent], None]) -> None:
        self._config = config
        self._emit = emit
        self.by_name: dict[str, Member] = {}
        self.revision = 0  # changes whenever a push/pull would say something else
        self._intents: dict[str, Intent] = {}
        self._prune_at: dict[str, float] = {}
        # Addresses of failed members that have been forgotten; newest last.
        self.lost: dict[str, Address] = {}

    # --- what memberlist says ------------------------------------------------------------------------------------------

    def alive(self, now_s: float, node: NodeRecord) -> None:
        """It answers, and did not or was not known."""
        known = self.by_name.get(node.name)
        status: MemberStatus = "alive"
        l_time = 0 if known is None else known.status_l_time
        if known is None:
            if len(self.by_name) >= self._config.n_members_max:
                return
            if (intent := self._intents.pop(node.name, None)) is not None:
                status, l_time = ("leaving" if intent.is_leave else "alive"), intent.l_time
        self._prune_at.pop(node.name, None)
        self.lost.pop(node.name, None)
        member = _member(node, status, l_time, now_s)
        self._put(member)
        self._emit(MemberJoin(member=member))

    def gone(self, now_s: float, node: NodeRecord) -> None:
        """It does not answer any more, or said itself that it leaves."""
        known = self.by_name.get(node.name)
        if known is None or known.status not in ("alive", "leaving"):
            return
        if known.status == "leaving" or node.state == LEFT:
            self._become(known, "left", now_s)
        else:
            self._become(known, "failed", now_s)

    def updated(self, now_s: float, node: NodeRecord) -> None:
        """It has other tags or versions."""
        known = self.by_name.get(node.name)
        if known is not None:
            member = _member(node, known.status, known.status_l_time, known.since_s)
            self._put(member)
            self._emit(MemberUpdate(member=member))

    # --- what intents say ------------------------------------------------------------------------------------------------

    def join_intent(self, now_s: float, name: str, l_time: int) -> bool:
        """It joins, or is still there; True: this was news."""
        known = self.by_name.get(name)
        if known is None:
            return self._remember(now_s, name, Intent(False, l_time, now_s))
        if l_time <= known.status_l_time:
            return False
        member = msgspec.structs.replace(known, status_l_time=l_time)
        if known.status == "leaving":
            member = msgspec.structs.replace(member, status="alive", since_s=now_s)
            self._prune_at.pop(name, None)
        self._put(member)
        return True

    def leave_intent(self, now_s: float, name: str, l_time: int, *, prune: bool) -> bool:
        """It leaves, or is declared to have left; `prune`: and is to be forgotten. True: this was news.

        Not for this member itself while it wants to stay: that is refuted, see `Serf`.
        """
        known = self.by_name.get(name)
        if known is None:
            self.lost.pop(name, None)
            return self._remember(now_s, name, Intent(True, l_time, now_s))
        if l_time <= known.status_l_time:
            return False
        # The time is kept whatever the status: else the same intent would be news again, for ever.
        known = msgspec.structs.replace(known, status_l_time=l_time)
        self._put(known)
        if known.status == "alive":
            self._become(known, "leaving", now_s)
        elif known.status == "failed":
            self._become(known, "left", now_s)
        if prune:
            self._prune(now_s, name)
        return True

    # --- time ------------------------------------------------------------------------------------------------------------

    def reap(self, now_s: float) -> list[str]:
        """Forget who was away for too long, and intents that nobody came for; names of the former."""
        config = self._config
        old = [
            member.name
            for member in self.by_name.values()
            if (member.status == "failed" and now_s - member.since_s > config.reconnect_timeout_s)
            or (member.status == "left" and now_s - member.since_s > config.tombstone_timeout_s)
        ]
        for name in old:
            member = self.by_name[name]
            self.erase(name)
            if member.status == "failed":
                self._lose(member)
        oldest_s = now_s - config.recent_intent_timeout_s
        for name in [name for name, intent in self._intents.items() if intent.since_s < oldest_s]:
            del self._intents[name]
        return old

    def prune_due(self, now_s: float) -> list[str]:
        """Erase members whose leave with prune has been told by now; their names."""
        due = [name for name, at_s in self._prune_at.items() if at_s <= now_s]
        for name in due:
            self.erase(name)
        return due

    def next_prune_at(self) -> float:
        """When `prune_due` has something to do."""
        return min(self._prune_at.values(), default=float("inf"))

    def erase(self, name: str) -> None:
        """Forget a member."""
        member = self.by_name.pop(name)
        self._prune_at.pop(name, None)
        self.lost.pop(name, None)
        self.revision += 1
        self._emit(MemberReap(member=member))

    # --- inside ------------------------------------------------------------------------------------------------------------

    def _put(self, member: Member) -> None:
        self.by_name[member.name] = member
        self.revision += 1

    def _become(self, member: Member, status: MemberStatus, now_s: float) -> None:
        member = msgspec.structs.replace(member, status=status, since_s=now_s)
        self._put(member)
        if status == "left":
            self._emit(MemberLeave(member=member))
        elif status == "failed":
            self._emit(MemberFailed(member=member))

    def _remember(self, now_s: float, name: str, intent: Intent) -> bool:
        known = self._intents.get(name)
        if known is not None and known.l_time >= intent.l_time:
            return False
        self._intents.pop(name, None)  # so that the oldest is the first
        self._intents[name] = intent
        if len(self._intents) > self._config.n_recent_intents_max:
            del self._intents[next(iter(self._intents))]
        return True

    def _prune(self, now_s: float, name: str) -> None:
        """One that is leaving is given the time that others need to hear of it."""
        config = self._config
        if self.by_name[name].status == "leaving":
            self._prune_at[name] = now_s + config.broadcast_timeout_s + config.leave_propagate_s
        else:
            self.erase(name)

    def _lose(self, member: Member) -> None:
        self.lost[member.name] = member.address
        if len(self.lost) > self._config.n_lost_max:
            del self.lost[next(iter(self.lost))]


def _member(node: NodeRecord, status: MemberStatus, l_time: int, since_s: float) -> Member:
    try:
        tags = tags_of(node.meta)
    except RemoteProtocolError:
        tags = {}  # it is there all the same
    protocol, delegate = _versions(node.vsn)
    return Member(
        name=node.name,
        address=node.address,
        tags=tags,
        status=status,
        status_l_time=l_time,
        since_s=since_s,
        protocol=protocol,
        delegate=delegate,
    )


@lru_cache(maxsize=256)
def _versions(vsn: bytes) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    numbers = (*vsn[:6], 0, 0, 0, 0, 0, 0)
    return (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])


__all__ = ["Roster"]
