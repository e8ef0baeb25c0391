"""Streams: a message whole however its bytes come, and an end to what a peer can make us take in."""

from __future__ import annotations

import contextlib
import random
import re
import tracemalloc

import msgpack
import pytest

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    MergeState,
    Message,
    Nack,
    NodeRecord,
    Ping,
    PushPull,
    StreamError,
    User,
)
from beeyard.discovery.gossip.wire import lzw
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.limits import StreamLimits
from beeyard.discovery.gossip.wire.serf_codec import decode_serf
from beeyard.discovery.gossip.wire.stream import StreamReader, frame

MEMBER = NodeRecord(name="a", address=Address("10.0.0.1", 7946), meta=b"\xff\x80", incarnation=1)
MESSAGES: list[Message] = [
    Ping(seq_no=77, node="b"),
    Ack(seq_no=77),
    StreamError(error="remote state is encrypted and encryption is not configured"),
    User(data=b""),
    User(data=b"\x03 event" * 100),
    PushPull(),
    PushPull(join=True, nodes=(MEMBER,) * 3),
    PushPull(nodes=(MEMBER,), user_state=bytes(range(256)) * 9),
]


def ring(*keys: bytes) -> Keyring:
    return Keyring(keys or (b"k" * 32,), random_bytes=random.Random("nonces").randbytes)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_message_comes_back_with_its_last_byte(message: Message, compress: bool, encrypted: bool, size: int) -> None:
    """In pieces of any size, and not a byte earlier."""
    keyring = ring() if encrypted else None
    reader = StreamReader(keyring)
    *before, last = pieces(frame(message, keyring, compress=compress), size)
    assert [None] * len(before) == [reader.feed(piece) for piece in before]
    assert message == reader.feed(last)
    reader.end()
    assert reader.feed(b"more") is None


def test_what_follows_a_message_is_ignored() -> None:
    """A connection is one exchange."""
    for message in MESSAGES:
        for keyring in (None, ring()):
            assert message == StreamReader(keyring).feed(frame(message, keyring) + b"\x00garbage")
            assert message == StreamReader(keyring).feed(frame(message, keyring, compress=False) + b"\x00garbage")


def test_frames_are_written_as_memberlist_writes_them() -> None:
    """The layers, one by one; the header is authenticated."""
    ack = Ack(seq_no=77)
    assert frame(ack, compress=False) == encode(ack)
    packed: bytes = msgpack.packb({"Algo": 0, "Buf": lzw.compress(encode(ack))}, use_bin_type=False)
    assert frame(ack) == b"\x09" + packed
    assert frame(User(data=b"abc"), compress=False) == b"\x08\x81\xaaUserMsgLen\x03abc"
    keyring = ring()
    sealed = frame(ack, keyring)
    assert sealed[0] == 10
    assert int.from_bytes(sealed[1:5], "big") == len(sealed) - 5
    assert frame(ack) == keyring.open(sealed[5:], associated=sealed[:5])
    assert frame(ack) == frame(ack, keyring, verify_outgoing=False)


def test_a_peer_that_connects_and_closes_is_fine() -> None:
    """A port scan or a health check."""
    StreamReader().end()
    reader = StreamReader()
    assert reader.feed(b"") is None
    reader.end()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_a_stream_that_ends_in_the_middle_is_refused(encrypted: bool, compress: bool) -> None:
    """Wherever it is cut."""
    keyring = ring() if encrypted else None
    data = frame(MESSAGES[-1], keyring, compress=compress)
    for cut in (1, 2, 5, 20, len(data) // 2, len(data) - 1):
        reader = StreamReader(keyring)
        assert reader.feed(data[:cut]) is None
        with pytest.raises(RemoteProtocolError, match="ends in the middle"):
            reader.end()


def test_who_is_encrypted_and_who_is_not_is_said() -> None:
    """In memberlist's own words, which peers show to their users."""
    plain, sealed = frame(MESSAGES[0]), frame(MESSAGES[0], ring())
    with pytest.raises(RemoteProtocolError, match="encryption is configured but remote state is not encrypted"):
        StreamReader(ring()).feed(plain)
    with pytest.raises(RemoteProtocolError, match="remote state is encrypted and encryption is not configured"):
        StreamReader().feed(sealed)
    with pytest.raises(RemoteProtocolError, match="no installed keys could decrypt the message"):
        StreamReader(ring(b"o" * 16)).feed(sealed)
    for keyring in (ring(), ring(b"o" * 16, b"k" * 32)):
        assert MESSAGES[0] == StreamReader(keyring).feed(sealed)
    assert MESSAGES[0] == StreamReader(ring(), verify_incoming=False).feed(plain)
    assert MESSAGES[0] == StreamReader(ring(), verify_incoming=False).feed(sealed)


def test_the_header_of_a_frame_cannot_be_changed() -> None:
    """It is part of what is authenticated."""
    data = bytearray(frame(MESSAGES[0], ring()))
    data[4] -= 1
    with pytest.raises(RemoteProtocolError, match="no installed keys"):
        StreamReader(ring()).feed(bytes(data))


def sealed_frame(plain: bytes, length: int | None = None) -> bytes:
    header = b"\x0a" + (len(plain) + 29 if length is None else length).to_bytes(4, "big")
    return header + ring().seal(plain, associated=header)


def compressed(plain: bytes) -> bytes:
    packed: bytes = msgpack.packb({"Algo": 0, "Buf": lzw.compress(plain)}, use_bin_type=False)
    return b"\x09" + packed


def old(fields: object) -> bytes:
    packed: bytes = msgpack.packb(fields, use_bin_type=False)
    return packed


LIMITS = StreamLimits(frame_bytes_max=5000, plain_bytes_max=9000, nodes_max=10, user_bytes_max=6000)
REFUSED = {
    "a frame has 4294967295 bytes: must have at most 5000": b"\x0a\xff\xff\xff\xff",
    "a frame has 5001 bytes": b"\x0a\x00\x00\x13\x89",
    "an encrypted message has 3 bytes": b"\x0a\x00\x00\x00\x03abc",
    "ends in the middle": sealed_frame(b""),
    "a message on a stream ends": sealed_frame(b"\x06" + old({"Nodes": 1})),
    "a message on a stream ends in the middle": sealed_frame(b"\x00\x82"),
    "message type 10 is not known on a stream": sealed_frame(sealed_frame(b"\x00\x80")),
}
REFUSED_PLAIN = {
    "message type 255 is not known on a stream": b"\xff",
    "message type 3 is not known on a stream": encode(Nack(seq_no=1)).replace(b"\x0b", b"\x03"),
    "message type 12 is not known on a stream": b"\x0c1234",
    "message type 244 is not known on a stream": b"\xf4\x01a",
    "message type 9 is not known on a stream": compressed(compressed(b"\x00\x80")),
    "no msgpack on a stream: Unexpected type header on stream": b"\x00\x05",
    "SeqNo is b'x'": b"\x00" + old({"SeqNo": "x"}),
    "is larger than the 4096 bytes it may have": b"\x00\x81\xa1x\xda\xff\xff" + bytes(5000),
    "no msgpack on a stream: 16777215 exceeds max_array_len": b"\x09\x81\xa3Buf\xdd\x00\xff\xff\xff",
    "a map has 65535 fields: must have at most 64": b"\x06\xde\xff\xff",
    "Nodes is 11: must be a number from 0 to 10": b"\x06" + old({"Nodes": 11}),
    "UserStateLen is 6001: must be a number from 0 to 6000": b"\x06" + old({"UserStateLen": 6001}),
    "Join is 1": b"\x06" + old({"Join": 1}),
    "no msgpack on a stream: a byte begins no value": b"\x06\x81\xa4Join\xc1",
    "is larger than the 9000 bytes it may have": b"\x06" + old({"Nodes": 1}) + b"\x81\xa1x\xda\xff\xff" + bytes(9000),
    "UserMsgLen is 6001: must be a number from 0 to 6000": b"\x08" + old({"UserMsgLen": 6001}),
    "UserMsgLen is -1": b"\x08" + old({"UserMsgLen": -1}),
    "stands for more than 9000 bytes": compressed(bytes(9001)),
    "compression 7 is not known here": b"\x09" + old({"Algo": 7, "Buf": b""}),
    "ends without an end code": b"\x09\x80",
    "Buf is 5": b"\x09" + old({"Algo": 0, "Buf": 5}),
}


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("data", "reason", "encrypted"),
    [(data, reason, True) for reason, data in REFUSED.items()]
    + [(data, reason, False) for reason, data in REFUSED_PLAIN.items()],
    ids=[*REFUSED, *REFUSED_PLAIN],
)
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, reason: str, encrypted: bool, size: int) -> None:
    """As soon as it can be told, in whatever pieces it comes."""
    reader = StreamReader(ring() if encrypted else None, limits=LIMITS)
    with pytest.raises(RemoteProtocolError, match=re.escape(reason)):
        assert [reader.feed(piece) for piece in pieces(data, size)] == []


def test_a_large_cluster_in_small_pieces_costs_no_more() -> None:
    """1,000 members, byte by byte: each one is read once."""
    members = tuple(NodeRecord(name=f"node-{i}", address=Address("10.0.0.1", 7946)) for i in range(1000))
    push_pull = PushPull(nodes=members, user_state=b"state" * 1000)
    reader = StreamReader()
    *before, last = pieces(frame(push_pull, compress=False), 3)
    for piece in before:
        assert reader.feed(piece) is None
    assert push_pull == reader.feed(last)


@pytest.mark.parametrize("value", [b"\x90", b"\x80", b"\xdc\x00\x02\x90\x90", b"\xa1x", b"\xc0"])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_fields_that_nobody_knows_are_passed_over(value: bytes, size: int) -> None:
    """Whatever they hold, in the header and in members."""
    header = b"\x83\xa5Nodes\x01\xa3New" + value + b"\xacUserStateLen\x01"
    data = b"\x06" + header + b"\x82\xa3New" + value + b"\xa4Name\xa1ay"
    reader = StreamReader()
    answers = [reader.feed(piece) for piece in pieces(data, size)]
    assert answers[-1] == PushPull(nodes=(NodeRecord(name="a", address=Address("", 0)),), user_state=b"y")
    assert set(answers[:-1]) <= {None}


def test_a_million_empty_lists_take_up_no_memory() -> None:
    """A byte each on the wire, 56 in memory: they are never made, wherever they are."""
    lists = b"\xdd\x00\x10\x00\x00" + b"\x90" * (1 << 20)
    state = b"\x02\x81\xa1x" + lists
    for data in (b"\x06\x81\xa1x" + lists, b"\x09\x81\xa1x" + lists, b"\x08\x81\xa1x" + lists):
        tracemalloc.start()
        with contextlib.suppress(RemoteProtocolError):
            assert StreamReader().feed(data) is not None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20
    tracemalloc.start()
    assert decode_serf(state) == MergeState()
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
