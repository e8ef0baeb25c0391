"""What gossip's decoders are given by fuzzing (`benchmarks/fuzz_gossip.py`) and, with what it found, by the unit tests.

The first byte of an input says which decoder gets the rest, so that one corpus serves all.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Ack, Alive, Message, PushPull, Query, User
from beeyard.discovery.gossip.wire.codec import decode, encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_coordinate,
    decode_filter,
    decode_serf,
    decode_tags,
    encode_serf,
)
from beeyard.discovery.gossip.wire.stream import StreamReader

CORPUS = Path(__file__).parents[1] / "data" / "gossip_fuzz.json"
KEY = b"k" * 32


def look_into(message: Message) -> None:
    """Read what a message carries for the layer above, and write what was read."""
    again: list[Callable[[], object]] = [lambda: encode(message)]
    if isinstance(message, User):
        again.append(lambda: look_into_serf(message.data))
    elif isinstance(message, PushPull):
        again.append(lambda: look_into_serf(message.user_state))
        again.extend([lambda node=node: decode_tags(node.meta) for node in message.nodes[:20]])
    elif isinstance(message, Ack):
        again.append(lambda: decode_coordinate(message.payload))
    elif isinstance(message, Alive):
        again.append(lambda: decode_tags(message.meta))
    for step in again:
        try:
            step()
        except RemoteProtocolError:
            continue


def look_into_serf(data: bytes) -> None:
    """The same for a message of Serf."""
    message = decode_serf(data)
    encode_serf(message)
    if isinstance(message, Query):
        for blob in message.filters:
            decode_filter(blob)


def packet(data: bytes) -> None:
    """A plain datagram."""
    for message in PacketCodec().unpack(data):
        look_into(message)


def sealed_packet(data: bytes) -> None:
    """One that somebody with the key sealed."""
    keyring = _keyring()
    for message in PacketCodec(keyring).unpack(keyring.seal(data)):
        look_into(message)


def stream(data: bytes) -> None:
    """A plain stream, in two pieces."""
    reader = StreamReader()
    message = reader.feed(data[: len(data) // 2]) or reader.feed(data[len(data) // 2 :])
    if message is None:
        reader.end()
    else:
        look_into(message)


def sealed_stream(data: bytes) -> None:
    """One that somebody with the key sealed."""
    keyring = _keyring()
    header = b"\x0a" + (len(data) + 29).to_bytes(4, "big")
    message = StreamReader(keyring).feed(header + keyring.seal(data, associated=header))
    if message is not None:
        look_into(message)


def garbage_for_a_key(data: bytes) -> None:
    """Whatever comes to somebody who has a key."""
    for read in (PacketCodec(_keyring()).unpack, StreamReader(_keyring()).feed):
        try:
            read(data)
        except RemoteProtocolError:
            continue


def one_message(data: bytes) -> None:
    """Without layers."""
    look_into(decode(data))


def _keyring() -> Keyring:
    return Keyring([KEY], random_bytes=bytes)


TARGETS = (packet, sealed_packet, stream, sealed_stream, garbage_for_a_key, one_message, look_into_serf)


def decode_one(data: bytes) -> None:
    """Give an input to its decoder. Whatever this raises is a defect."""
    if data:
        with contextlib.suppress(RemoteProtocolError):
            TARGETS[data[0] % len(TARGETS)](data[1:])


def corpus() -> list[bytes]:
    """What fuzzing found: inputs of which each reached something that others did not."""
    return [bytes.fromhex(data) for data in json.loads(CORPUS.read_text())]
