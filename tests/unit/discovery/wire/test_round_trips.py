"""Whatever the rules may want to say comes back as it was said, through every layer."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    Alive,
    ConflictResponse,
    Coordinate,
    Dead,
    EventItem,
    EventsAt,
    IndirectPing,
    JoinIntent,
    KeyRequest,
    KeyResponse,
    LeaveIntent,
    MemberRecord,
    MergeState,
    Message,
    Nack,
    NodeRecord,
    Ping,
    PushPull,
    Query,
    QueryResponse,
    Relay,
    StreamError,
    Suspect,
    User,
    UserEvent,
)
from beeyard.discovery.gossip.wire.codec import decode, encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_coordinate,
    decode_serf,
    decode_tags,
    encode_coordinate,
    encode_serf,
    encode_tags,
)
from beeyard.discovery.gossip.wire.stream import StreamReader, frame

# The same examples each time, however busy the machine is.
STEADY = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
text = st.text(st.characters(codec="utf-8"), max_size=40)
name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
raw = st.binary(max_size=300)
vsn = st.just(b"") | st.binary(min_size=6, max_size=6)
addresses = st.builds(
    Address, st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).filter(lambda ip: not ip.ipv4_mapped).map(str), u16
)
sources = addresses | st.just(Address("", 0))
records = st.builds(
    NodeRecord, name=name, address=addresses, meta=raw, incarnation=u32, state=st.integers(0, 3), vsn=vsn
)
packet_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, seq_no=u32, node=text, source=sources, source_node=text),
    st.builds(
        IndirectPing, seq_no=u32, target=addresses, node=text, nack=st.booleans(), source=sources, source_node=text
    ),
    st.builds(Ack, seq_no=u32, payload=raw),
    st.builds(Nack, seq_no=u32),
    st.builds(Suspect, incarnation=u32, node=name, from_node=text),
    st.builds(Dead, incarnation=u32, node=name, from_node=text),
    st.builds(Alive, incarnation=u32, node=name, address=addresses, meta=raw, vsn=vsn),
    st.builds(User, data=raw),
)
stream_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, seq_no=u32, node=text, source=sources, source_node=text),
    st.builds(Ack, seq_no=u32, payload=raw),
    st.builds(User, data=raw),
    st.builds(StreamError, error=text),
    st.builds(PushPull, nodes=st.lists(records, max_size=6).map(tuple), user_state=raw, join=st.booleans()),
)
events = st.builds(EventsAt, l_time=u64, events=st.lists(st.builds(EventItem, text, raw), max_size=3).map(tuple))
versions = st.tuples(u8, u8, u8)
serf_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(JoinIntent, l_time=u64, node=name),
    st.builds(LeaveIntent, l_time=u64, node=name, prune=st.booleans()),
    st.builds(
        MergeState,
        l_time=u64,
        status_l_times=st.dictionaries(name, u64, max_size=20),
        left_members=st.lists(name, max_size=20).map(tuple),
        event_l_time=u64,
        events=st.lists(st.none() | events, max_size=20).map(tuple),
        query_l_time=u64,
    ),
    st.builds(UserEvent, l_time=u64, name=text, payload=raw, coalesce=st.booleans()),
    st.builds(
        Query,
        l_time=u64,
        id=u32,
        address=addresses,
        source_node=text,
        name=text,
        payload=raw,
        filters=st.lists(raw, max_size=3).map(tuple),
        flags=u32,
        relay_factor=u8,
        timeout_ns=st.integers(0, 2**63 - 1),
    ),
    st.builds(QueryResponse, l_time=u64, id=u32, from_node=text, flags=u32, payload=raw),
    st.builds(
        ConflictResponse,
        member=st.none()
        | st.builds(
            MemberRecord,
            name=name,
            address=addresses,
            tags=st.dictionaries(text, text, max_size=3),
            status=u8,
            protocol=versions,
            delegate=versions,
        ),
    ),
    st.builds(KeyRequest, key=raw),
    st.builds(
        KeyResponse, result=st.booleans(), message=text, keys=st.lists(text, max_size=3).map(tuple), primary_key=text
    ),
    st.builds(Relay, destination=addresses, destination_node=text, inner=raw),
)  # fmt: skip
keyrings = st.sampled_from([None, b"k" * 16, b"k" * 32])


def ring(key: bytes | None) -> Keyring | None:
    return Keyring([key], random_bytes=random.Random("nonces").randbytes) if key else None


@given(st.lists(packet_messages, min_size=1, max_size=8), keyrings, st.booleans(), st.booleans())
@settings(STEADY, max_examples=60)
def test_packets(messages: list[Message], key: bytes | None, crc: bool, compress: bool) -> None:
    """Parts, compound, compression, checksum, encryption; and again from what was read."""
    codec = PacketCodec(ring(key), compress=compress)
    parts = [encode(message) for message in messages]
    read = codec.unpack(codec.pack(parts, crc=crc))
    assert messages == read
    assert parts == [encode(message) for message in read]


@given(stream_messages, keyrings, st.booleans(), st.integers(1, 500))
@settings(STEADY, max_examples=60)
def test_streams(message: Message, key: bytes | None, compress: bool, size: int) -> None:
    """In pieces of any size."""
    data = frame(message, ring(key), compress=compress)
    reader = StreamReader(ring(key))
    answers = [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert message == answers[-1]
    assert set(answers[:-1]) <= {None}
    assert encode(message) == encode(answers[-1])


@given(serf_messages)
@settings(STEADY, max_examples=80)
def test_serf(message: Message) -> None:
    """Every message of the layer above."""
    assert message == decode_serf(encode_serf(message))
    assert encode_serf(message) == encode_serf(decode_serf(encode_serf(message)))


@given(
    st.dictionaries(text, text, max_size=5),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=11, max_size=11),
)
@settings(STEADY, max_examples=50)
def test_tags_and_coordinates(tags: dict[str, str], numbers: list[float]) -> None:
    """What Serf puts into fields of other messages."""
    assert tags == decode_tags(encode_tags(tags))
    coordinate = Coordinate(vec=tuple(numbers[:8]), error=numbers[8], adjustment=numbers[9], height=numbers[10])
    assert coordinate == decode_coordinate(encode_coordinate(coordinate))


@given(packet_messages | serf_messages | stream_messages, st.data())
@settings(STEADY, max_examples=100)
def test_a_changed_byte_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    """Never anything else, and what was read can be written."""
    write, read = (encode_serf, decode_serf) if _is_serf(message) else (encode, decode)
    whole = bytearray(write(message))
    where = data.draw(st.integers(0, len(whole) - 1))
    whole[where] = data.draw(u8)
    del whole[data.draw(st.integers(1, len(whole))) :]
    try:
        read_back = read(bytes(whole))
    except RemoteProtocolError:
        return
    assert write(read_back)


def _is_serf(message: Message) -> bool:
    try:
        encode_serf(message)
    except LocalProtocolError:
        return False
    return True


@pytest.mark.parametrize("read", [decode, decode_serf, decode_tags, decode_coordinate])
@given(data=st.binary(max_size=100))
@settings(STEADY, max_examples=100)
def test_garbage_is_read_or_refused(read: object, data: bytes) -> None:
    """With nothing but the one error."""
    for kind in range(16):
        try:
            read(bytes([kind]) + data)  # type: ignore[operator]
        except RemoteProtocolError:
            continue
