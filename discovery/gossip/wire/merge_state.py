"""What Serf adds to a push/pull: its clocks, the time of each member's last intent, and the user events it remembers.

It is read piece by piece, since its lists are as long as the cluster is large, and msgpack makes room for a list before it
has seen it. Source: Serf 0.9.4 messages.go (messagePushPull), delegate.go (LocalState, MergeRemoteState).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import EventItem, EventsAt, MergeState
from beeyard.discovery.gossip.wire.dialect import (
    ARRAY_LENGTH_MAX,
    U64,
    Fields,
    is_empty,
    items,
    no_msgpack,
    number,
    or_nil,
    pack,
    raw,
    text,
)
from beeyard.discovery.gossip.wire.limits import REFUSED_MAX

FIELDS_MAX = 64
MEMBERS_MAX = 1 << 16  # of intents and of members that left: some of them are gone for a day
SLOTS_MAX = 4096  # of Lamport times with events; Serf's ring has 512
EVENTS_MAX = 1 << 13  # in all of them


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
        self._unpacker = msgpack.Unpacker(
            raw=True, max_buffer_size=len(data), max_array_len=ARRAY_LENGTH_MAX, max_map_len=MEMBERS_MAX
        )
        self._unpacker.feed(data)
        self._n_refused = 0
        self._n_events = 0

    def read(self) -> MergeState:
        fields: Fields = {}
        left: tuple[str, ...] = ()
        events: tuple[EventsAt | None, ...] = ()
        for _ in range(_at_most(self._unpacker.read_map_header(), FIELDS_MAX, "fields")):
            key = self._unpacker.unpack()
            if key == b"LeftMembers":
                left = tuple(self._names(self._list(MEMBERS_MAX, "members that left")))
            elif key == b"Events":
                events = tuple(map(self._events_at, self._list(SLOTS_MAX, "times of events")))
            else:
                fields[key] = self._unpacker.unpack()
        return MergeState(
            l_time=number(fields, b"LTime", U64),
            status_l_times=self._status(fields.get(b"StatusLTimes")),
            left_members=left,
            event_l_time=number(fields, b"EventLTime", U64),
            events=events,
            query_l_time=number(fields, b"QueryLTime", U64),
        )

    def _list(self, most: int, what: str) -> Iterator[Any]:
        here = self._unpacker.tell()
        if self._data[here : here + 1] == b"\xc0":
            self._unpacker.skip()
            return
        unpack = self._unpacker.unpack
        for _ in range(_at_most(self._unpacker.read_array_header(), most, what)):
            yield unpack()

    def _names(self, values: Iterator[Any]) -> Iterator[str]:
        for value in values:
            try:
                yield text({b"LeftMembers": value}, b"LeftMembers")
            except RemoteProtocolError as error:
                self._refuse(error)

    def _status(self, times: object) -> dict[str, int]:
        if times is None:
            return {}
        if type(times) is not dict:
            raise RemoteProtocolError("StatusLTimes is no map: must say a time for each member")
        status = {}
        for node in times:
            try:
                status[text({b"StatusLTimes": node}, b"StatusLTimes")] = number(times, node, U64)
            except RemoteProtocolError as error:
                self._refuse(error)
        return status

    def _events_at(self, slot: object) -> EventsAt | None:
        if slot is None:
            return None
        if type(slot) is not dict:
            self._refuse(RemoteProtocolError("an entry of Events is no map"))
            return None
        events = []
        for event in items(slot, b"Events"):
            try:
                if type(event) is not dict:
                    raise RemoteProtocolError("an event of a push/pull is no map")
                kind = _EmptyEvent if is_empty(event, b"Payload") else EventItem
                events.append(kind(text(event, b"Name"), raw(event, b"Payload")))
            except RemoteProtocolError as error:
                self._refuse(error)
        self._n_events = _at_most(self._n_events + len(events), EVENTS_MAX, "events")
        return EventsAt(l_time=number(slot, b"LTime", U64), events=tuple(events))

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._n_refused += 1
        if self._n_refused > REFUSED_MAX:
            raise error


def _at_most(n: int, most: int, what: str) -> int:
    if n > most:
        raise RemoteProtocolError(f"a push/pull has {n} {what}: must have at most {most}")
    return n
