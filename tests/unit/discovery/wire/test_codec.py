"""memberlist's messages: exact bytes, what is left out, what other senders may write, what is refused."""

from __future__ import annotations

import re

import msgpack
import pytest

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    JoinIntent,
    Message,
    Nack,
    NodeRecord,
    Ping,
    PushPull,
    StreamError,
    Suspect,
    User,
)
from beeyard.discovery.gossip.wire.codec import decode, encode

HERE = Address("10.77.0.1", 7946)
THERE = Address("fd00::2", 4000)
VSN = bytes([1, 5, 2, 2, 5, 5])


def old(fields: object) -> bytes:
    """msgpack of the old spec, made by other code than ours."""
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed


# Every field combination that changes which keys are there, with the map that Go would write, in its order.
WRITTEN: list[tuple[Message, int, dict[str, object]]] = [
    (Ping(seq_no=1), 0, {"Node": "", "SeqNo": 1}),
    (Ping(seq_no=300, node="b"), 0, {"Node": "b", "SeqNo": 300}),
    (
        Ping(seq_no=70_000, node="b", source=HERE, source_node="a"),
        0,
        {
            "Node": "b",
            "SeqNo": 70_000,
            "SourceAddr": b"\x0a\x4d\x00\x01",
            "SourceNode": "a",
            "SourcePort": 7946,
        },
    ),
    (Ping(seq_no=1, source=HERE), 0, {"Node": "", "SeqNo": 1, "SourceAddr": b"\x0a\x4d\x00\x01", "SourcePort": 7946}),
    (Ping(seq_no=1, source_node="a"), 0, {"Node": "", "SeqNo": 1, "SourceNode": "a"}),
    (
        IndirectPing(seq_no=2**32 - 1, target=HERE, node="b"),
        1,
        {"Nack": False, "Node": "b", "Port": 7946, "SeqNo": 2**32 - 1, "Target": b"\x0a\x4d\x00\x01"},
    ),
    (
        IndirectPing(seq_no=5, target=THERE, node="b", nack=True, source=HERE, source_node="a"),
        1,
        {
            "Nack": True,
            "Node": "b",
            "Port": 4000,
            "SeqNo": 5,
            "SourceAddr": b"\x0a\x4d\x00\x01",
            "SourceNode": "a",
            "SourcePort": 7946,
            "Target": b"\xfd" + bytes(14) + b"\x02",
        },
    ),
    (Ack(seq_no=0), 2, {"Payload": None, "SeqNo": 0}),
    (Ack(seq_no=1, payload=bytes(range(256))), 2, {"Payload": bytes(range(256)), "SeqNo": 1}),
    (Suspect(incarnation=3, node="b", from_node="a"), 3, {"From": "a", "Incarnation": 3, "Node": "b"}),
    (
        Alive(incarnation=1, node="a", address=HERE, meta=b"\xff\x80", vsn=VSN),
        4,
        {
            "Addr": b"\x0a\x4d\x00\x01",
            "Incarnation": 1,
            "Meta": b"\xff\x80",
            "Node": "a",
            "Port": 7946,
            "Vsn": VSN,
        },
    ),
    (
        Alive(incarnation=1, node="a", address=Address("", 0)),
        4,
        {"Addr": None, "Incarnation": 1, "Meta": None, "Node": "a", "Port": 0, "Vsn": None},
    ),
    (Dead(incarnation=2, node="b", from_node="b"), 5, {"From": "b", "Incarnation": 2, "Node": "b"}),
    (Nack(seq_no=93), 11, {"SeqNo": 93}),
    (StreamError(error="no"), 13, {"Error": "no"}),
]


@pytest.mark.parametrize(("message", "kind", "fields"), WRITTEN, ids=lambda value: type(value).__name__)
def test_a_message_is_written_as_go_writes_it(message: Message, kind: int, fields: dict[str, object]) -> None:
    """The type byte, then a map of the old spec with Go's names in Go's order; and it is read back."""
    assert list(fields) == sorted(fields)
    assert bytes([kind]) + old(fields) == encode(message)
    assert message == decode(encode(message))


def test_a_user_message_is_its_bytes() -> None:
    """Nothing is said about their length in a packet."""
    assert encode(User(data=b"\x01\x80")) == b"\x08\x01\x80"
    assert decode(b"\x08\x01\x80") == User(data=b"\x01\x80")
    assert decode(b"\x08") == User(data=b"")


def test_a_push_pull_is_written_back_to_back() -> None:
    """A header, each member, and the bytes of the layer above."""
    node = NodeRecord(name="a", address=HERE, meta=b"m", incarnation=4, state=3, vsn=VSN)
    fields = {
        "Addr": b"\x0a\x4d\x00\x01",
        "Incarnation": 4,
        "Meta": b"m",
        "Name": "a",
        "Port": 7946,
        "State": 3,
        "Vsn": VSN,
    }
    expected = b"\x06" + old({"Join": True, "Nodes": 1, "UserStateLen": 3}) + old(fields) + b"xyz"
    push_pull = PushPull(nodes=(node,), user_state=b"xyz", join=True)
    assert expected == encode(push_pull)
    assert push_pull == decode(expected)
    nothing = PushPull()
    assert b"\x06" + old({"Join": False, "Nodes": 0, "UserStateLen": 0}) == encode(nothing)
    assert nothing == decode(encode(nothing))


def test_numbers_wrap_as_gos_do() -> None:
    """What a peer drove to the edge does not raise when it is counted on."""
    assert encode(Nack(seq_no=2**32 + 5)) == encode(Nack(seq_no=5))
    assert encode(Dead(incarnation=2**32, node="a", from_node="a")) == encode(
        Dead(incarnation=0, node="a", from_node="a")
    )


@pytest.mark.parametrize(
    ("written", "payload"), [(b"\xc0", b""), (b"\xa0", b""), (b"\xa1x", b"x"), (b"\xda\x00\x03abc", b"abc")]
)
def test_nil_and_empty_bytes_are_the_same_to_rules(written: bytes, payload: bytes) -> None:
    """An absent slice of Go's and an empty one; longer forms than needed are read as well."""
    assert decode(b"\x02\x82\xa7Payload" + written + b"\xa5SeqNo\x01") == Ack(seq_no=1, payload=payload)


@pytest.mark.parametrize("new_spec", [False, True])
def test_other_senders_are_understood(new_spec: bool) -> None:
    """Any order, fields that nobody knows, missing fields, and both specs of msgpack."""
    fields = {"Vsn": VSN, "Zone": {"a": [1, 2.5, None, True]}, "Node": "a" * 40, "Addr": b"\x0a\x4d\x00\x01"}
    alive = decode(b"\x04" + msgpack.packb(fields, use_bin_type=new_spec))
    assert alive == Alive(incarnation=0, node="a" * 40, address=Address("10.77.0.1", 0), vsn=VSN)
    assert decode(b"\x00\x80") == Ping(seq_no=0)
    assert decode(b"\x00\x81\xa5SeqNo\xc0") == Ping(seq_no=0)
    assert decode(b"\x0b\x81\xa5SeqNo\x07trailing") == Nack(seq_no=7)


def test_an_ipv4_address_within_ipv6_is_ipv4() -> None:
    """Peers compare bytes, so that there must be one form of each."""
    mapped = bytes(10) + b"\xff\xff\x0a\x4d\x00\x01"
    ping = decode(b"\x00" + old({"SourceAddr": mapped, "SourcePort": 7946}))
    assert ping == Ping(seq_no=0, source=HERE)


REFUSED = {
    b"": "empty",
    b"\x07\x00": "type 7 is not known",
    b"\x09\x80": "type 9 is not known",
    b"\x0a": "type 10 is not known",
    b"\xf4\x01a": "type 244 is not known",
    b"\x00": "no msgpack",
    b"\x00\x81": "no msgpack",
    b"\x00\x81\x01\x02": "no msgpack",
    b"\x00\x93\x01\x02\x03": "a map is due, not a list",
    b"\x00\xc1": "no msgpack",
    b"\x00\x81\xd7\xff\x00\x01": "no msgpack",
    b"\x00" + old({"SeqNo": -1}): "SeqNo is -1: must be a number from 0 to 4294967295",
    b"\x00" + old({"SeqNo": 2**32}): "SeqNo is 4294967296",
    b"\x00" + old({"SeqNo": 1.0}): "SeqNo is 1.0",
    b"\x00" + old({"SeqNo": True}): "SeqNo is True",
    b"\x00" + old({"SeqNo": "1"}): "SeqNo is b'1'",
    b"\x00" + old({"Node": b"\xff"}): "Node is b'\\xff': must be text in UTF-8",
    b"\x00" + old({"Node": 3}): "Node is 3",
    b"\x00" + old({"SourceAddr": b"123"}): "4 or 16 bytes, not 3",
    b"\x00" + old({"SourceAddr": ["1"]}): "SourceAddr is a list",
    b"\x00" + old({"SourcePort": 65536}): "SourcePort is 65536: must be a number from 0 to 65535",
    b"\x01" + old({"Nack": 1}): "Nack is 1: must be true or false",
    b"\x02" + old({"Payload": 5}): "Payload is 5: must be bytes",
    b"\x03" + old({"Incarnation": 1, "From": "a"}): "Node is '': must be the name of a member",
    b"\x04" + old({"Node": ""}): "Node is ''",
    b"\x04" + old({"Node": "a", "Meta": b"x" * 513}): "Meta has 513 bytes: must have at most 512",
    b"\x04" + old({"Node": "a", "Vsn": b"\x01\x05\x02"}): "must be 6 bytes",
    b"\x05" + old({"Node": "a", "Incarnation": 2**32}): "Incarnation is 4294967296",
    b"\x06" + old([1]): "no msgpack on a stream: Unexpected type header",
    b"\x06" + old({"Nodes": -1}): "Nodes is -1",
    b"\x06" + old({"Nodes": 1 << 20}): "Nodes is 1048576: must be a number from 0 to 10000",
    b"\x06" + old({"Nodes": 1}): "a push/pull ends in the middle",
    b"\x06" + old({"UserStateLen": 3}) + b"ab": "a push/pull ends in the middle",
    b"\x06" + old({"UserStateLen": 1 << 30}): "UserStateLen is 1073741824",
    b"\x0d" + old({"Error": 5}): "Error is 5",
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    """Every error names the field and what would be right."""
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        decode(data)


def test_a_long_value_is_not_repeated_in_the_error() -> None:
    """A peer does not write our log."""
    with pytest.raises(RemoteProtocolError) as refused:
        decode(b"\x00" + old({"SeqNo": "x" * 10_000}))
    assert len(str(refused.value)) < 200


def test_arrays_within_arrays_take_up_no_memory_to_speak_of() -> None:
    """3 kB of headers that announce long arrays are refused before there is room for them."""
    with pytest.raises(RemoteProtocolError, match="no msgpack"):
        decode(b"\x00" + b"\xdd\x00\x0f\xff\xff" * 600)
    with pytest.raises(RemoteProtocolError, match="in the middle"):  # of what nobody knows, and is passed over
        decode(b"\x06\x81\xa1x" + b"\xdd\x00\x0f\xff\xff" * 600)


def test_a_member_that_cannot_be_read_does_not_hide_the_others() -> None:
    """In a push/pull it is left out; a peer that sends many of them sends garbage."""
    good, bad = old({"Name": "a"}), old({"Name": b"\xff"})
    push_pull = decode(b"\x06" + old({"Nodes": 4}) + bad + good + old({}) + old({"Name": "b", "State": 9}))
    assert push_pull == PushPull(nodes=(NodeRecord(name="a", address=Address("", 0)),))
    with pytest.raises(RemoteProtocolError, match="Name is"):
        decode(b"\x06" + old({"Nodes": 100}) + bad * 100)


def test_what_is_no_message_of_memberlist_is_not_written() -> None:
    """Ours to get right."""
    with pytest.raises(LocalProtocolError, match="JoinIntent is no message of memberlist"):
        encode(JoinIntent(l_time=1, node="a"))
    with pytest.raises(LocalProtocolError, match="'host2' is not an IP address"):
        encode(Ping(seq_no=1, source=Address("host2", 1)))
