"""Serf's messages, tags, coordinates and filters: exact bytes, other senders, what is refused."""

from __future__ import annotations

import re

import msgpack
import msgspec
import pytest

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Address,
    ConflictResponse,
    Coordinate,
    EventItem,
    EventsAt,
    JoinIntent,
    KeyRequest,
    KeyResponse,
    LeaveIntent,
    MemberRecord,
    MergeState,
    Message,
    Nack,
    Query,
    QueryResponse,
    Relay,
    UserEvent,
)
from beeyard.discovery.gossip.wire.serf_codec import (
    NodeFilter,
    TagFilter,
    decode_coordinate,
    decode_filter,
    decode_serf,
    decode_tags,
    encode_coordinate,
    encode_filter,
    encode_serf,
    encode_tags,
)

HERE = Address("10.77.0.1", 7946)
HERE_BYTES = b"\x0a\x4d\x00\x01"


def old(fields: object) -> bytes:
    """msgpack of the old spec, made by other code than ours."""
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed


QUERY = {
    "Addr": HERE_BYTES,
    "Filters": [b"\x00\x91\xa1a", b"\x01"],
    "Flags": 3,
    "ID": 2**32 - 1,
    "LTime": 2**40,
    "Name": "uptime",
    "Payload": b"p",
    "Port": 7946,
    "RelayFactor": 255,
    "SourceNode": "a",
    "Timeout": 3_200_000_000,
}
MEMBER = {
    "Addr": HERE_BYTES,
    "DelegateCur": 5,
    "DelegateMax": 5,
    "DelegateMin": 2,
    "Name": "a",
    "Port": 7946,
    "ProtocolCur": 2,
    "ProtocolMax": 5,
    "ProtocolMin": 1,
    "Status": 4,
    "Tags": {"role": "x", "b": ""},
}
WRITTEN: list[tuple[Message, int, dict[str, object] | None]] = [
    (LeaveIntent(l_time=5, node="a"), 0, {"LTime": 5, "Node": "a", "Prune": False}),
    (LeaveIntent(l_time=5, node="a", prune=True), 0, {"LTime": 5, "Node": "a", "Prune": True}),
    (JoinIntent(l_time=2**64 - 1, node="a"), 1, {"LTime": 2**64 - 1, "Node": "a"}),
    (
        UserEvent(l_time=1, name="deploy", payload=b"v42", coalesce=True),
        3,
        {"CC": True, "LTime": 1, "Name": "deploy", "Payload": b"v42"},
    ),
    (UserEvent(l_time=1, name=""), 3, {"CC": False, "LTime": 1, "Name": "", "Payload": None}),
    (
        Query(
            l_time=2**40,
            id=2**32 - 1,
            address=HERE,
            source_node="a",
            name="uptime",
            payload=b"p",
            filters=(b"\x00\x91\xa1a", b"\x01"),
            flags=3,
            relay_factor=255,
            timeout_ns=3_200_000_000,
        ),
        4,
        QUERY,
    ),
    (
        Query(l_time=0, id=0, address=HERE, source_node="", name="n"),
        4,
        QUERY
        | dict.fromkeys(["Flags", "ID", "LTime", "RelayFactor", "Timeout"], 0)
        | {"Filters": None, "Payload": None, "SourceNode": "", "Name": "n"},
    ),
    (
        QueryResponse(l_time=1, id=2, from_node="b", flags=1),
        5,
        {"Flags": 1, "From": "b", "ID": 2, "LTime": 1, "Payload": None},
    ),
    (
        QueryResponse(l_time=1, id=2, from_node="b", payload=b"up"),
        5,
        {"Flags": 0, "From": "b", "ID": 2, "LTime": 1, "Payload": b"up"},
    ),
    (ConflictResponse(), 6, None),
    (
        ConflictResponse(
            member=MemberRecord(
                name="a",
                address=HERE,
                tags={"role": "x", "b": ""},
                status=4,
                protocol=(1, 5, 2),
                delegate=(2, 5, 5),
            )
        ),
        6,
        MEMBER,
    ),
    (KeyRequest(), 7, {"Key": b""}),
    (KeyRequest(key=b"k" * 32), 7, {"Key": b"k" * 32}),
    (
        KeyResponse(result=True, keys=("a1==", "b2=="), primary_key="a1=="),
        8,
        {"Keys": ["a1==", "b2=="], "Message": "", "PrimaryKey": "a1==", "Result": True},
    ),
    (
        KeyResponse(result=False, message="no"),
        8,
        {"Keys": None, "Message": "no", "PrimaryKey": "", "Result": False},
    ),
]


@pytest.mark.parametrize(("message", "kind", "fields"), WRITTEN, ids=lambda value: type(value).__name__)
def test_a_message_is_written_as_serf_writes_it(message: Message, kind: int, fields: dict[str, object] | None) -> None:
    """The type byte, then a map of the old spec with Go's names in Go's order; and it is read back."""
    assert list(fields or ()) == sorted(fields or ())
    assert bytes([kind]) + old(fields) == encode_serf(message)
    assert message == decode_serf(encode_serf(message))


@pytest.mark.parametrize("payload", [None, b"", b"p"])
def test_an_empty_payload_stays_apart_from_none(payload: bytes | None) -> None:
    """The rules see b"", the wire the form that a user of the peer chose."""
    event = {"CC": False, "LTime": 1, "Name": "n", "Payload": payload}
    response = {"Flags": 0, "From": "b", "ID": 2, "LTime": 1, "Payload": payload}
    item = {"Events": [{"Name": "", "Payload": payload}], "LTime": 7}
    state = {
        "EventLTime": 0,
        "Events": [None, item],
        "LTime": 0,
        "LeftMembers": [],
        "QueryLTime": 0,
        "StatusLTimes": {},
    }
    messages = [
        b"\x02" + old(state),
        b"\x03" + old(event),
        b"\x04" + old(QUERY | {"Payload": payload}),
        b"\x05" + old(response),
    ]
    for data in messages:
        message = decode_serf(data)
        assert data == encode_serf(message)
        # What a peer sends goes on to users, as JSON and through our own stores.
        assert message == msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))


def test_a_message_to_relay_carries_another_one() -> None:
    """A map, and right after it the other message."""
    inner = encode_serf(QueryResponse(l_time=1, id=2, from_node="b", flags=1))
    relay = Relay(destination=HERE, destination_node="a", inner=inner)
    destination = {"IP": HERE_BYTES, "Port": 7946, "Zone": ""}
    assert b"\x09" + old({"DestAddr": destination, "DestName": "a"}) + inner == encode_serf(relay)
    assert relay == decode_serf(encode_serf(relay))
    zoned = Relay(destination=Address("fe80::1%eth0", 1), inner=b"")
    assert zoned == decode_serf(encode_serf(zoned))


def test_the_state_of_a_push_pull_is_written_as_serf_writes_it() -> None:
    """Clocks, intents, members that left, and the ring of events with its gaps."""
    state = MergeState(
        l_time=4,
        status_l_times={"z": 3, "a": 2**63},
        left_members=("z",),
        event_l_time=2,
        events=(None, EventsAt(l_time=1, events=(EventItem("deploy", b"v42"), EventItem("x", b"")))),
        query_l_time=9,
    )
    events = [
        None,
        {"Events": [{"Name": "deploy", "Payload": b"v42"}, {"Name": "x", "Payload": None}], "LTime": 1},
    ]
    fields = {
        "EventLTime": 2,
        "Events": events,
        "LTime": 4,
        "LeftMembers": ["z"],
        "QueryLTime": 9,
        "StatusLTimes": {"z": 3, "a": 2**63},
    }
    assert b"\x02" + old(fields) == encode_serf(state)
    assert state == decode_serf(encode_serf(state))
    assert MergeState() == decode_serf(b"\x02\x80")
    assert MergeState() == decode_serf(
        b"\x02" + old({"Events": None, "LeftMembers": None, "StatusLTimes": None, "New": [1]})
    )


def test_a_large_cluster_fits_into_a_push_pull() -> None:
    """Lists are longer than arrays in packets may be."""
    names = [f"node-{i}" for i in range(16_000)]
    state = MergeState(status_l_times=dict.fromkeys(names, 7), left_members=tuple(names), events=(None,) * 4096)
    assert state == decode_serf(encode_serf(state))


def test_more_events_than_are_worth_it_are_passed_over() -> None:
    """The rest of the state counts all the same."""
    slots = [{"LTime": i, "Events": [{"Name": "a"}] * 500} for i in range(6)]
    state = decode_serf(b"\x02" + old({"Events": slots, "LTime": 7}))
    assert isinstance(state, MergeState)
    assert [len(at.events) for at in state.events if at is not None] == [500, 500, 500, 500, 48, 0]
    assert state.l_time == 7
    with pytest.raises(RemoteProtocolError, match="events: must have at most 32768"):
        decode_serf(b"\x02" + old({"Events": [{"Events": [None] * 500}] * 70}))


def test_one_name_that_is_no_text_does_not_hide_the_others() -> None:
    """It is left out of the state; many of them are garbage."""
    fields = {
        "LeftMembers": [b"\xff", "a"],
        "StatusLTimes": {"a": 1, b"\xff": 2, "b": -1},
        "Events": [None, {"LTime": 3, "Events": [{"Name": b"\xff"}, {"Name": 5}, {"Name": "e", "New": [[]]}]}],
    }
    state = decode_serf(b"\x02" + old(fields))
    assert state == MergeState(
        left_members=("a",),
        status_l_times={"a": 1},
        events=(None, EventsAt(l_time=3, events=(EventItem("e", b""),))),
    )
    with pytest.raises(RemoteProtocolError, match="LeftMembers is"):
        decode_serf(b"\x02" + old({"LeftMembers": [b"\xff"] * 100}))


REFUSED = {
    b"": "empty",
    b"\x0a\x80": "type 10 of Serf is not known",
    b"\x00": "no msgpack",
    b"\x00\x90": "a map is due",
    b"\x00\x80": "Node is ''",
    b"\x01" + old({"Node": "a", "LTime": -1}): "LTime is -1",
    b"\x00" + old({"Node": "a", "Prune": 1}): "Prune is 1",
    b"\x02": "ends in the middle",
    b"\x02\x93": "no msgpack in the state of Serf",
    b"\x02\xde\xff\xff": "65535 fields: must have at most 64",
    b"\x02\x81\xa6Events\xdd\x7f\xff\xff\xff": "2147483647 times of events: must have at most 4096",
    b"\x02\x81\xabLeftMembers\xdd\x7f\xff\xff\xff": "2147483647 members that left",
    b"\x02\x81\xabLeftMembers\xa1a": "no msgpack in the state of Serf",
    b"\x02" + old({"StatusLTimes": [1]}): "no msgpack in the state of Serf: Unexpected type header",
    b"\x02" + old({"LTime": 2**63, "QueryLTime": "x"}): "QueryLTime is b'x'",
    b"\x03" + old({"Name": b"\xff"}): "Name is",
    b"\x03" + old({"CC": 0}): "CC is 0",
    b"\x04" + old({"Filters": ["a", 1]}): "must be a list of bytes",
    b"\x04" + old({"Filters": 1}): "Filters is 1: must be a list",
    b"\x04" + old({"Timeout": 2**63}): "Timeout is",
    b"\x04" + old({"Timeout": -1}): "Timeout is -1",
    b"\x04" + old({"RelayFactor": 256}): "RelayFactor is 256: must be a number from 0 to 255",
    b"\x05" + old({"ID": 2**32}): "ID is",
    b"\x06" + old({"Name": "a", "Tags": 5}): "Tags is 5",
    b"\x06" + old({"Name": "a", "Tags": {"x": 5}}): "x is 5",
    b"\x06" + old({"Name": "a", "Status": 256}): "Status is 256",
    b"\x07" + old({"Key": 5}): "Key is 5",
    b"\x08" + old({"Keys": [b"\xff"]}): "must be a list of texts",
    b"\x08" + old({"Result": "yes"}): "Result is",
    b"\x09\x80": "must say where to",
    b"\x09\x01": "must say where to",
    b"\x09" + old({"DestAddr": {"IP": b"1"}}): "4 or 16 bytes",
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    """Every error names the field and what would be right."""
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        decode_serf(data)


def test_what_is_no_message_of_serf_is_not_written() -> None:
    """Ours to get right."""
    with pytest.raises(LocalProtocolError, match="Nack is no message of Serf"):
        encode_serf(Nack(seq_no=1))


def test_tags_are_meta_with_a_mark() -> None:
    """Without the mark, meta is the role alone, as in Serf's protocol 2."""
    assert encode_tags({}) == b"\xff\x80"
    tags = {"role": "node", "idx": "3"}
    assert b"\xff" + old(tags) == encode_tags(tags)
    assert tags == decode_tags(encode_tags(tags))
    assert decode_tags(b"web") == {"role": "web"}
    assert decode_tags(b"") == {"role": ""}
    assert decode_tags(b"\xff" + old({"a": b"\xff", "b": None})) == {"a": "\\xff", "b": ""}
    for wrong in (b"\xff", b"\xff\x90", b"\xff" + old({"a": 1}), b"\xff" + old({"a": ["x"]})):
        with pytest.raises(RemoteProtocolError):
            decode_tags(wrong)


def test_a_coordinate_is_eight_floats_and_three() -> None:
    """Every bit of a float comes back."""
    coordinate = Coordinate(
        vec=(0.1, -2.5e-7, 0.0, -0.0, 5e-324, 1.0, 2.0, 3.0), error=0.3, adjustment=-1e-5, height=1e-5
    )
    fields = {"Adjustment": -1e-5, "Error": 0.3, "Height": 1e-5, "Vec": list(coordinate.vec)}
    assert b"\x01" + old(fields) == encode_coordinate(coordinate)
    assert coordinate == decode_coordinate(encode_coordinate(coordinate))
    far = msgspec.structs.replace(coordinate, vec=(1e300,) * 8)
    assert encode_coordinate(far, short=True) == encode_coordinate(far)
    short = encode_coordinate(coordinate, short=True)
    assert len(short) == len(encode_coordinate(coordinate)) - 11 * 4
    assert decode_coordinate(short).vec == pytest.approx(coordinate.vec, rel=1e-7)
    assert decode_coordinate(b"\x01" + old({"Vec": [0] * 8})) == Coordinate(
        vec=(0.0,) * 8, error=0.0, adjustment=0.0, height=0.0
    )


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "must begin with its version"),
        (b"\x02\x80", "must begin with its version"),
        (b"\x01\x80", "0 dimensions: must have 8"),
        (b"\x01" + old({"Vec": [0.0] * 9}), "9 dimensions"),
        (b"\x01" + old({"Vec": [float("nan")] * 8}), "Vec is nan: must be a finite number"),
        (b"\x01" + old({"Vec": [0.0] * 8, "Error": float("inf")}), "Error is inf"),
        (b"\x01" + old({"Vec": [0.0] * 8, "Height": 2**64 - 1}), "Height is"),
        (b"\x01" + old({"Vec": ["0"] * 8}), "Vec is b'0'"),
    ],
)
def test_what_is_no_coordinate_is_refused(payload: bytes, reason: str) -> None:
    """A place that is not finite would spoil everybody's."""
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        decode_coordinate(payload)


def test_filters_name_members_or_match_a_tag() -> None:
    """Each is a blob within the query."""
    assert b"\x00" + old(["a", "b"]) == encode_filter(NodeFilter(names=("a", "b")))
    assert b"\x01" + old({"Expr": "^w.b$", "Tag": "role"}) == encode_filter(TagFilter(tag="role", expression="^w.b$"))
    for condition in (NodeFilter(names=("a", "b")), NodeFilter(names=()), TagFilter(tag="role", expression="")):
        assert condition == decode_filter(encode_filter(condition))
    for wrong in (
        b"",
        b"\x02\x80",
        b"\x00\x80",
        b"\x00\x91\x01",
        b"\x00\x91\xa1\xff",
        b"\x01\x90",
        b"\x01\x81\xa3Tag\x01",
    ):
        with pytest.raises(RemoteProtocolError):
            decode_filter(wrong)
