"""What Serf adds to a push/pull: its clocks, the time of each member's last intent, and the user events it remembers.

It is read value by value: its lists are as long as the cluster is large, see `pieces`.
Source: Serf 0.9.4 messages.go (messagePushPull), delegate.go (LocalState, MergeRemoteState).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import EventItem, EventsAt, MergeState
from beeyard.discovery.gossip.wire.dialect import (
    U64,
    Fields,
    is_empty,
    no_msgpack,
    number,
    or_nil,
    pack,
    raw,
    text,
    wrong,
)
from beeyard.discovery.gossip.wire.limits import REFUSED_MAX
from beeyard.discovery.gossip.wire.pieces import FIELDS_MAX, plain_values

SMALL_FIELDS_MAX = 8  # of an event, and of a time of events: they have two
MEMBERS_MAX = 1 << 15  # of intents, and of members that left: some have been gone for a day
SLOTS_MAX = 1 << 12  # of Lamport times with events; Serf's ring has 512
EVENTS_MAX = 1 << 11  # in all of them: those beyond are passed over
LISTED_EVENTS_MAX = 1 << 15  # beyond is no cluster
TIMES = frozenset([b"LTime", b"EventLTime", b"QueryLTime"])
EVENT_FIELDS = frozenset([b"Name", b"Payload"])
NIL = 0xC0


class _EmptyEvent(EventItem):
    """An event that was sent with an empty payload, not without one."""

    __slots__ = ()


def encode_merge_state(state: MergeState) -> bytes:
    """What follows the type byte."""
    fields = {
        "EventLTime": state.event_l_time & U64,
        "Events": [at and _events_at(at) for at in state.events],
        "LTime": state.l_time & U64,
        "LeftMembers": state.left_members,
        "QueryLTime": state.query_l_time & U64,
        "StatusLTimes": state.status_l_times,
    }
    return pack(fields)


def _events_at(at: EventsAt) -> dict[str, Any]:
    events = [{"Name": event.name, "Payload": or_nil(event.payload, type(event) is _EmptyEvent)} for event in at.events]
    return {"Events": events, "LTime": at.l_time & U64}


def decode_merge_state(data: bytes) -> MergeState:
    """The state that `data` is, without the type byte.

    Raises:
        RemoteProtocolError: it is none, or larger than a cluster can make it.
    """
    try:
        return _Reader(data).read()
    except msgpack.OutOfData:
        raise RemoteProtocolError("the state of Serf ends in the middle") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise no_msgpack("in the state of Serf", error) from None


class _Reader:
    """Reads one state. Members and events that cannot be read are left out, up to `REFUSED_MAX`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = plain_values(len(data))
        self._unpacker.feed(data)
        self._n_refused = 0
        self._n_events = 0

    def read(self) -> MergeState:
        unpacker = self._unpacker
        fields: Fields = {}
        status: dict[str, int] = {}
        left: tuple[str, ...] = ()
        events: tuple[EventsAt | None, ...] = ()
        for _ in range(_at_most(unpacker.read_map_header(), FIELDS_MAX, "fields")):
            key = unpacker.unpack()
            if key == b"StatusLTimes":
                status = self._status()
            elif key == b"LeftMembers":
                left = tuple(self._names())
            elif key == b"Events":
                events = tuple([self._events_at() for _ in range(self._list(SLOTS_MAX, "times of events"))])
            elif key in TIMES:
                fields[key] = unpacker.unpack()
            else:
                unpacker.skip()
        return MergeState(
            l_time=number(fields, b"LTime", U64),
            status_l_times=status,
            left_members=left,
            event_l_time=number(fields, b"EventLTime", U64),
            events=events,
            query_l_time=number(fields, b"QueryLTime", U64),
        )

    def _kind(self) -> int:
        """The first byte of the next value."""
        here = self._unpacker.tell()
        return self._data[here] if here < len(self._data) else NIL

    def _list(self, most: int, what: str) -> int:
        """How many values follow, when a list or nil is due."""
        if self._kind() == NIL:
            self._unpacker.skip()
            return 0
        return _at_most(self._unpacker.read_array_header(), most, what)

    def _map(self, most: int, what: str) -> int:
        """How many pairs follow, when a map or nil is due."""
        if self._kind() == NIL:
            self._unpacker.skip()
            return 0
        return _at_most(self._unpacker.read_map_header(), most, what)

    def _names(self) -> Iterator[str]:
        for _ in range(self._list(MEMBERS_MAX, "members that left")):
            try:
                yield text({b"LeftMembers": self._unpacker.unpack()}, b"LeftMembers")
            except RemoteProtocolError as error:
                self._refuse(error)

    def _status(self) -> dict[str, int]:
        status = {}
        unpack = self._unpacker.unpack
        for _ in range(self._map(MEMBERS_MAX, "times of members")):
            node, l_time = unpack(), unpack()
            if type(node) is bytes and type(l_time) is int and 0 <= l_time <= U64:
                try:
                    status[node.decode()] = l_time
                    continue
                except UnicodeDecodeError:
                    pass
            self._refuse(wrong(b"StatusLTimes", node, "the name of a member, and its time"))
        return status

    def _events_at(self) -> EventsAt | None:
        if self._kind() == NIL:
            self._unpacker.skip()
            return None
        fields: Fields = {}
        events: tuple[EventItem, ...] = ()
        for _ in range(self._map(SMALL_FIELDS_MAX, "fields of a time of events")):
            key = self._unpacker.unpack()
            if key == b"Events":
                events = tuple(self._events())
            elif key == b"LTime":
                fields[key] = self._unpacker.unpack()
            else:
                self._unpacker.skip()
        return EventsAt(l_time=number(fields, b"LTime", U64), events=events)

    def _events(self) -> Iterator[EventItem]:
        n_events = self._list(LISTED_EVENTS_MAX, "events")
        n_before = self._n_events
        self._n_events = _at_most(n_before + n_events, LISTED_EVENTS_MAX, "events")
        for nth in range(n_before, self._n_events):
            if nth >= EVENTS_MAX:  # a busy cluster may have as many, but they are not worth a push/pull
                self._unpacker.skip()
                continue
            fields: Fields = {}
            for _ in range(self._map(SMALL_FIELDS_MAX, "fields of an event")):
                key = self._unpacker.unpack()
                if key in EVENT_FIELDS:
                    fields[key] = self._unpacker.unpack()
                else:
                    self._unpacker.skip()
            try:
                kind = _EmptyEvent if is_empty(fields, b"Payload") else EventItem
                yield kind(text(fields, b"Name"), raw(fields, b"Payload"))
            except RemoteProtocolError as error:
                self._refuse(error)

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._n_refused += 1
        if self._n_refused > REFUSED_MAX:
            raise error


def _at_most(n: int, most: int, what: str) -> int:
    if n > most:
        raise RemoteProtocolError(f"a push/pull has {n} {what}: must have at most {most}")
    return n
