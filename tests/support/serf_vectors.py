"""Packets and streams that real Serf 0.9.4 agents sent, with what they say, and ours to read and write the same.

`serf_vectors.json`: hex as it was on the wire, `wrappers` from the outermost layer inwards, `key_b64` where it was
encrypted, and what it says. `serf_more_vectors.json`: the same without what they say but for `types`, one of each kind out
of 4,353 packets and 100 streams of clusters with and without keys (32 and 16 bytes), and over IPv6, in which agents sent
events, queries with filters and relays, changed tags and keys, had one name twice, were frozen, killed, pruned, and left.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec

from beeyard.discovery.gossip.message import Ack, Alive, Message, PushPull, Query, QueryResponse, Relay, User
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_coordinate,
    decode_filter,
    decode_serf,
    decode_tags,
    encode_coordinate,
    encode_filter,
    encode_serf,
    encode_tags,
)
from beeyard.discovery.gossip.wire.stream import StreamReader, frame

DATA = Path(__file__).parents[1] / "data"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "serf_vectors.json").read_text())
MORE_VECTORS: list[dict[str, Any]] = json.loads((DATA / "serf_more_vectors.json").read_text())
FRAME_HEADER_BYTES = 5


def name_of(vector: dict[str, Any]) -> str:
    """For test ids: what it is, and its number."""
    types = vector.get("types") or [message["type"] for message in vector.get("messages", ())]
    said = "-".join(types) or vector.get("type", "push-pull")
    number = (MORE_VECTORS if "types" in vector else VECTORS).index(vector)
    return f"{number}-{vector['transport']}-{said}".replace("/", "-")


def keyring_of(vector: dict[str, Any]) -> Keyring | None:
    """A ring with the vector's key, and with its nonce as all randomness, so that what is sealed comes out the same."""
    if "key_b64" not in vector:
        return None
    blob = bytes.fromhex(vector["hex"])[FRAME_HEADER_BYTES if vector["transport"] == "tcp" else 0 :]
    return Keyring([base64.b64decode(vector["key_b64"])], random_bytes=lambda n: blob[1 : 1 + n])


def read(vector: dict[str, Any]) -> list[Message]:
    """Its messages, users' ones still encoded."""
    data = bytes.fromhex(vector["hex"])
    if vector["transport"] == "udp":
        return PacketCodec(keyring_of(vector)).unpack(data)
    message = StreamReader(keyring_of(vector)).feed(data)
    assert message is not None
    return [message]


def write(vector: dict[str, Any], messages: list[Message]) -> bytes:
    """The bytes for messages in the layers that the vector has."""
    wrappers = " ".join(vector["wrappers"])
    messages = [_again(message) for message in messages]
    if vector["transport"] == "udp":
        codec = PacketCodec(keyring_of(vector))
        return codec.pack([encode(message) for message in messages], crc="crc" in wrappers)
    return frame(messages[0], keyring_of(vector), compress="lzw" in wrappers)


def _again(message: Message) -> Message:
    """The same, with all that it carries for Serf decoded and encoded."""
    replace = msgspec.structs.replace
    match message:
        case User():
            return User(data=encode_serf(_again(decode_serf(message.data))))
        case PushPull() if message.user_state:
            nodes = tuple(replace(node, meta=encode_tags(decode_tags(node.meta))) for node in message.nodes)
            return replace(message, nodes=nodes, user_state=encode_serf(decode_serf(message.user_state)))
        case Alive():
            return replace(message, meta=encode_tags(decode_tags(message.meta)))
        case Ack() if message.payload:
            return replace(message, payload=encode_coordinate(decode_coordinate(message.payload)))
        case Relay():
            return replace(message, inner=encode_serf(_again(decode_serf(message.inner))))
        case Query():
            filters = tuple(encode_filter(decode_filter(blob)) for blob in message.filters)
            return replace(message, filters=filters, payload=_payload_again(message.payload))
        case QueryResponse():
            return replace(message, payload=_payload_again(message.payload))
    return message


def _payload_again(payload: bytes) -> bytes:
    """What Serf's own queries and answers carry begins with its type; users' payloads are text."""
    return encode_serf(decode_serf(payload)) if payload[:1] in (b"\x06", b"\x07", b"\x08") else payload
