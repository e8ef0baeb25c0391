"""Serf's part of a push/pull: clocks, when who joined or left, and user events that the other one may have missed.

Source: Serf 0.9.4 serf/delegate.go (LocalState, MergeRemoteState).
"""

from __future__ import annotations

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import MergeState, UserEvent
from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.event import UserEventCame
from beeyard.discovery.gossip.serf.intents import Intents
from beeyard.discovery.gossip.serf.questions import SeenQueries
from beeyard.discovery.gossip.serf.user_events import UserEvents
from beeyard.discovery.gossip.wire.serf_codec import decode_serf, encode_serf

# A member that is younger than this and has seen no event yet is new here, and is not told what happened before it came.
NEWCOMER_S = 60.0


class PushPulls:
    """Makes and merges the user state."""

    def __init__(self, context: Context, intents: Intents, events: UserEvents, queries: SeenQueries) -> None:
        self._context = context
        self._intents = intents
        self._events = events
        self._queries = queries
        self._newcomer_until_s = context.now_s + NEWCOMER_S
        self._has_merged = False
        self._cached: tuple[tuple[int, int, int, int, int], bytes] | None = None

    def local_state(self) -> bytes:
        """What to send. Made anew only when it has changed: sixty may join at once."""
        roster = self._context.roster
        times = (self._context.clock.time(), self._events.clock.time(), self._queries.clock.time())
        key = (*times, roster.revision, self._events.revision)
        if self._cached is None or self._cached[0] != key:
            status_l_times = {name: member.status_l_time for name, member in roster.by_name.items()}
            leaving = [name for name, member in roster.by_name.items() if member.status == "leaving"]
            # What is not among those that left is taken for a join at that time, and the leave itself for old news.
            # Serf adds 1 to what is among them.
            status_l_times.update({name: max(status_l_times[name] - 1, 0) for name in leaving})
            left = [name for name, member in roster.by_name.items() if member.status == "left"]
            state = MergeState(
                l_time=times[0],
                status_l_times=status_l_times,
                left_members=(*left, *leaving),
                event_l_time=times[1],
                events=self._events.recent(),
                query_l_time=times[2],
            )
            self._cached = key, encode_serf(state)
        return self._cached[1]

    def merge(self, data: bytes, *, join: bool) -> None:
        """What the other one sent. What cannot be read is passed over: memberlist's part counts all the same."""
        context = self._context
        if not data:
            return
        try:
            state = decode_serf(data)
        except RemoteProtocolError:
            context.dropped["malformed"] += 1
            return
        if not isinstance(state, MergeState):
            context.dropped["malformed"] += 1
            return
        is_newcomer = self._is_newcomer()
        # Nothing has been sent with the times themselves yet.
        context.clock.witness(state.l_time - 1)
        self._events.clock.witness(state.event_l_time - 1)
        self._queries.clock.witness(state.query_l_time - 1)
        self._merge_intents(state)
        if join and is_newcomer:
            self._events.ignore_before(state.event_l_time)
        self._merge_events(state)
        self._has_merged = True

    def _is_newcomer(self) -> bool:
        is_young = not self._has_merged or self._context.now_s < self._newcomer_until_s
        return is_young and self._events.clock.time() == 1

    def _merge_intents(self, state: MergeState) -> None:
        roster = self._context.roster
        left = frozenset(state.left_members)
        for name in state.left_members:
            l_time = state.status_l_times.get(name, 0)
            known = roster.by_name.get(name)
            # Serf adds 1 always: then the time grows with each push/pull, and one that has come back can be taken for
            # leaving. It is needed only where the word that it left came without a time of its own.
            if known is not None and known.status == "failed":
                l_time = max(l_time + 1, known.status_l_time + 1)
            self._intents.leave(name, l_time, prune=False)
        for name, l_time in state.status_l_times.items():
            if name not in left:
                known = roster.by_name.get(name)
                # Serf sends the time of a leave that is under way as if it were that of a join, so the leave itself, which
                # has the same time, must still be news. A join that takes a leave back is later than it.
                takes_back = known is not None and known.status == "leaving"
                self._intents.join(name, l_time if takes_back else max(l_time - 1, 0))

    def _merge_events(self, state: MergeState) -> None:
        for at in state.events:
            if at is None:
                continue
            for item in at.events:
                # Whether it may be coalesced is not in a push/pull. Source: Serf's userEvents lose it too.
                if self._events.take(UserEvent(l_time=at.l_time, name=item.name, payload=item.payload)):
                    self._context.events.append(
                        UserEventCame(l_time=at.l_time, name=item.name, payload=item.payload),
                    )


__all__ = ["PushPulls"]
