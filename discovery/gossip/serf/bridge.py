"""What memberlist asks and tells, handed to the parts of Serf."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from beeyard.core.errors import PeerError
from beeyard.discovery.gossip.message import (
    Alive,
    Coordinate,
    JoinIntent,
    LeaveIntent,
    NodeRecord,
    Query,
    QueryResponse,
    Relay,
    UserEvent,
)
from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.event import NameTaken, UserEventCame
from beeyard.discovery.gossip.serf.intents import Intents
from beeyard.discovery.gossip.serf.push_pull import PushPulls
from beeyard.discovery.gossip.serf.queries import Queries
from beeyard.discovery.gossip.serf.tags import tags_of
from beeyard.discovery.gossip.serf.user_events import UserEvents
from beeyard.discovery.gossip.serf.views import Views
from beeyard.discovery.gossip.serf.vivaldi import Vivaldi
from beeyard.discovery.gossip.swim.beliefs import is_unicast
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_coordinate,
    decode_serf,
    decode_view,
    encode_coordinate,
)

# What is gossiped comes eight times and more in the same bytes, none longer than a packet. Messages are never changed.
_REPEATED_BYTES_MAX = 1400
_decoded_before = functools.lru_cache(maxsize=512)(decode_serf)

# Takes a name and its tags as decoded; False keeps the member out, whatever it says.
Welcome = Callable[[str, Mapping[str, str]], bool]

RIVALS_MAX = 64
RIVAL_S = 60.0  # and so often at most is a conflict of others told: each packet of theirs would


class Bridge:
    """The `Delegate`. Time and all else that is shared is in the context."""

    def __init__(
        self,
        context: Context,
        meta: bytes,
        is_welcome: Welcome | None,
        intents: Intents,
        user_events: UserEvents,
        queries: Queries,
        push_pulls: PushPulls,
    ) -> None:
        self._context = context
        self.meta_bytes = meta
        self._is_welcome = is_welcome
        self._intents = intents
        self._user_events = user_events
        self._queries = queries
        self._push_pulls = push_pulls
        self.vivaldi = Vivaldi(context.rng)
        self.coordinates: dict[str, Coordinate] = {}  # of members that were pinged
        self._views = Views(context, user_events.clock)
        self._payload: tuple[Coordinate, int, bytes] | None = None

    # --- what is asked ---------------------------------------------------------------------------------------------------

    def meta(self) -> bytes:
        """See `Delegate.meta`."""
        return self.meta_bytes

    def broadcasts(self, overhead: int, limit: int) -> list[bytes]:
        """See `Delegate.broadcasts`."""
        return self._context.broadcasts.draw(overhead, limit)

    def local_state(self, *, join: bool) -> bytes:
        """See `Delegate.local_state`."""
        return self._push_pulls.local_state()

    def is_welcome(self, alive: Alive) -> bool:
        """See `Delegate.is_welcome`."""
        if self._is_welcome is None or alive.node == self._context.name:
            return True
        try:
            return self._is_welcome(alive.node, tags_of(alive.meta))
        except PeerError:
            return self._is_welcome(alive.node, {})

    def ack_payload(self) -> bytes:
        """See `Delegate.ack_payload`."""
        here, view = self.vivaldi.here, self._views.mine()
        if self._payload is None or self._payload[0] is not here or self._payload[1] != view:
            self._payload = here, view, encode_coordinate(here, short=True, view=view)
        return self._payload[2]

    # --- what is told ----------------------------------------------------------------------------------------------------

    def notify_message(self, data: bytes) -> None:
        """See `Delegate.notify_message`."""
        context = self._context
        try:
            message = _decoded_before(data) if len(data) <= _REPEATED_BYTES_MAX else decode_serf(data)
        except PeerError:
            context.dropped["malformed"] += 1
            return
        match message:
            case JoinIntent():
                self._intents.take_join(message, data)
            case LeaveIntent():
                self._intents.take_leave(message, data)
            case UserEvent():
                self._take_event(message, data)
            case Query():
                self._queries.take(message, data)
            case QueryResponse():
                self._queries.take_response(message)
            case Relay():
                self._queries.pass_on(message)
            case _:
                context.dropped["malformed"] += 1

    def _take_event(self, event: UserEvent, data: bytes) -> None:
        if self.tell(event) and not self._context.broadcasts.put(self._context.broadcasts.events, data):
            self._context.dropped["oversized"] += 1

    def tell(self, event: UserEvent) -> bool:
        """Tell the application of a user event if it is new."""
        if not self._user_events.take(event):
            return False
        self._context.events.append(
            UserEventCame(l_time=event.l_time, name=event.name, payload=event.payload, coalesce=event.coalesce)
        )
        return True

    def merge_remote_state(self, data: bytes, *, join: bool) -> None:
        """See `Delegate.merge_remote_state`."""
        self._push_pulls.merge(data, join=join)

    def notify_join(self, node: NodeRecord) -> None:
        """See `Delegate.notify_join`."""
        self._context.roster.alive(self._context.now_s, node)

    def notify_leave(self, node: NodeRecord) -> None:
        """See `Delegate.notify_leave`."""
        self._context.roster.gone(self._context.now_s, node)

    def notify_update(self, node: NodeRecord) -> None:
        """See `Delegate.notify_update`."""
        self._context.roster.updated(self._context.now_s, node)

    def notify_conflict(self, existing: NodeRecord, other: NodeRecord) -> None:
        """See `Delegate.notify_conflict`."""
        context = self._context
        is_news = context.rivals.get(other.address, 0.0) <= context.now_s
        if is_news:
            self._note_rival(other)
        if existing.name == context.name:
            if context.config.resolve_conflicts and self._intents.phase == "alive":
                self._queries.vote(other.address)
        elif is_news:
            context.events.append(NameTaken(name=existing.name, known=existing.address, other=other.address))

    def _note_rival(self, other: NodeRecord) -> None:
        if not is_unicast(other.address):
            return
        rivals = self._context.rivals
        rivals.pop(other.address, None)
        rivals[other.address] = self._context.now_s + RIVAL_S
        if len(rivals) > RIVALS_MAX:
            del rivals[next(iter(rivals))]

    def notify_ping_complete(self, name: str, rtt_s: float, payload: bytes) -> None:
        """See `Delegate.notify_ping_complete`."""
        self._context.rtts.observe(rtt_s)
        if not payload:
            return
        try:
            other, view = decode_coordinate(payload), decode_view(payload)
        except PeerError:
            self._context.dropped["coordinate"] += 1
            return
        if not self.vivaldi.update(name, other, rtt_s):
            self._context.dropped["coordinate"] += 1
        elif name in self._context.roster.by_name:
            self.coordinates[name] = other
        if view is not None and self._intents.phase == "alive":
            self._views.heard(name, view)

    def forget(self, name: str) -> None:
        """A member is gone for good."""
        self.coordinates.pop(name, None)
        self.vivaldi.forget(name)


__all__ = ["Bridge", "Welcome"]
