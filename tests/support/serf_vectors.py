"""Packets and streams that real Serf 0.9.4 agents sent, with what they say, and ours to read and write the same.

`tests/data/serf_vectors.json`: hex as it was on the wire, `wrappers` from the outermost layer inwards, `key_b64` where it
was encrypted.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from beeyard.discovery.gossip.message import Message, PushPull, User
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.gossip.wire.serf_codec import decode_serf, encode_serf
from beeyard.discovery.gossip.wire.stream import StreamReader, frame

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "serf_vectors.json").read_text())
FRAME_HEADER_BYTES = 5


def name_of(vector: dict[str, Any]) -> str:
    """For test ids: what it is, and its number."""
    said = "-".join(message["type"] for message in vector.get("messages", ())) or vector.get("type", "push-pull")
    return f"{VECTORS.index(vector)}-{vector['transport']}-{said}".replace("/", "-")


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
    """The same, with what it carries for Serf decoded and encoded."""
    if isinstance(message, User):
        return User(data=encode_serf(decode_serf(message.data)))
    if isinstance(message, PushPull) and message.user_state:
        state = encode_serf(decode_serf(message.user_state))
        return PushPull(nodes=message.nodes, user_state=state, join=message.join)
    return message
