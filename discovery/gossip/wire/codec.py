"""One memberlist message to bytes and back: the type byte, then a msgpack map with Go's field names, sorted.

Source: memberlist 0.2.2 net.go (structs), util.go (encode). Go's encoder sorts the fields of a struct by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    Message,
    Nack,
    Ping,
    PushPull,
    StreamError,
    Suspect,
    User,
)
from beeyard.discovery.gossip.wire.dialect import (
    U32,
    address,
    flag,
    host_to_bytes,
    name,
    number,
    or_nil,
    pack,
    raw,
    text,
    unpack_fields,
)
from beeyard.discovery.gossip.wire.push_pull import decode_push_pull, encode_push_pull, meta_of, vsn_of

PING: Final = 0
INDIRECT_PING: Final = 1
ACK: Final = 2
SUSPECT: Final = 3
ALIVE: Final = 4
DEAD: Final = 5
PUSH_PULL: Final = 6
COMPOUND: Final = 7
USER: Final = 8
COMPRESS: Final = 9
ENCRYPT: Final = 10
NACK: Final = 11
HAS_CRC: Final = 12
ERROR: Final = 13


def encode(message: Message) -> bytes:
    """The message with its type byte: a part for `PacketCodec.pack`, or what `frame` wraps for a stream.

    Numbers wrap as Go's do (incarnation and sequence number at 2**32), so that nothing a peer brought them to can raise.

    Raises:
        LocalProtocolError: an address is not an IP address, or a message is not one of memberlist's.
    """
    encoder = _ENCODERS.get(type(message))
    if encoder is None:
        raise LocalProtocolError(f"{type(message).__name__} is no message of memberlist")
    return encoder(message)


def decode(data: bytes) -> Message:
    """The one message that `data` is; layers (compound, compression, checksum) belong to `packet` and `stream`.

    Raises:
        RemoteProtocolError: it is none, or a field is not what it must be.
    """
    if not data:
        raise RemoteProtocolError("a message is empty: must begin with its type")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        raise RemoteProtocolError(f"message type {data[0]} is not known here")
    return decoder(data[1:])


# --- to bytes --------------------------------------------------------------------------------------------------------


def _source(fields: dict[str, Any], source: Address, source_node: str) -> None:
    """Adds what is left out when it is zero, in its place between "SeqNo" and "Target"."""
    if source.host:
        fields["SourceAddr"] = host_to_bytes(source.host)
    if source_node:
        fields["SourceNode"] = source_node
    if source.port:
        fields["SourcePort"] = source.port


def _encode_ping(ping: Ping) -> bytes:
    fields = {"Node": ping.node, "SeqNo": ping.seq_no & U32}
    _source(fields, ping.source, ping.source_node)
    return b"\x00" + pack(fields)


def _encode_indirect_ping(ping: IndirectPing) -> bytes:
    fields = {"Nack": ping.nack, "Node": ping.node, "Port": ping.target.port, "SeqNo": ping.seq_no & U32}
    _source(fields, ping.source, ping.source_node)
    fields["Target"] = host_to_bytes(ping.target.host) or None
    return b"\x01" + pack(fields)


def _encode_ack(ack: Ack) -> bytes:
    return b"\x02" + pack({"Payload": or_nil(ack.payload), "SeqNo": ack.seq_no & U32})


def _encode_nack(nack: Nack) -> bytes:
    return b"\x0b" + pack({"SeqNo": nack.seq_no & U32})


def _encode_verdict(prefix: bytes, verdict: Suspect | Dead) -> bytes:
    fields = {"From": verdict.from_node, "Incarnation": verdict.incarnation & U32, "Node": verdict.node}
    return prefix + pack(fields)


def _encode_alive(alive: Alive) -> bytes:
    fields = {
        "Addr": host_to_bytes(alive.address.host) or None,
        "Incarnation": alive.incarnation & U32,
        "Meta": or_nil(alive.meta),
        "Node": alive.node,
        "Port": alive.address.port,
        "Vsn": or_nil(alive.vsn),
    }
    return b"\x04" + pack(fields)


_ENCODERS: dict[type[Message], Callable[[Any], bytes]] = {
    Ping: _encode_ping,
    IndirectPing: _encode_indirect_ping,
    Ack: _encode_ack,
    Nack: _encode_nack,
    Suspect: lambda suspect: _encode_verdict(b"\x03", suspect),
    Alive: _encode_alive,
    Dead: lambda dead: _encode_verdict(b"\x05", dead),
    User: lambda user: b"\x08" + user.data,
    PushPull: lambda push_pull: b"\x06" + encode_push_pull(push_pull),
    StreamError: lambda error: b"\x0d" + pack({"Error": error.error}),
}


# --- from bytes ------------------------------------------------------------------------------------------------------


def _decode_ping(data: bytes) -> Ping:
    fields = unpack_fields(data)
    return Ping(
        seq_no=number(fields, b"SeqNo", U32),
        node=text(fields, b"Node"),
        source=address(fields, b"SourceAddr", b"SourcePort"),
        source_node=text(fields, b"SourceNode"),
    )


def _decode_indirect_ping(data: bytes) -> IndirectPing:
    fields = unpack_fields(data)
    return IndirectPing(
        seq_no=number(fields, b"SeqNo", U32),
        target=address(fields, b"Target", b"Port"),
        node=text(fields, b"Node"),
        nack=flag(fields, b"Nack"),
        source=address(fields, b"SourceAddr", b"SourcePort"),
        source_node=text(fields, b"SourceNode"),
    )


def _decode_ack(data: bytes) -> Ack:
    fields = unpack_fields(data)
    return Ack(seq_no=number(fields, b"SeqNo", U32), payload=raw(fields, b"Payload"))


def _decode_nack(data: bytes) -> Nack:
    return Nack(seq_no=number(unpack_fields(data), b"SeqNo", U32))


def _decode_suspect(data: bytes) -> Suspect:
    fields = unpack_fields(data)
    return Suspect(
        incarnation=number(fields, b"Incarnation", U32), node=name(fields, b"Node"), from_node=text(fields, b"From")
    )


def _decode_dead(data: bytes) -> Dead:
    fields = unpack_fields(data)
    return Dead(
        incarnation=number(fields, b"Incarnation", U32), node=name(fields, b"Node"), from_node=text(fields, b"From")
    )


def _decode_alive(data: bytes) -> Alive:
    fields = unpack_fields(data)
    return Alive(
        incarnation=number(fields, b"Incarnation", U32),
        node=name(fields, b"Node"),
        address=address(fields, b"Addr", b"Port"),
        meta=meta_of(fields),
        vsn=vsn_of(fields),
    )


_DECODERS: dict[int, Callable[[bytes], Message]] = {
    PING: _decode_ping,
    INDIRECT_PING: _decode_indirect_ping,
    ACK: _decode_ack,
    SUSPECT: _decode_suspect,
    ALIVE: _decode_alive,
    DEAD: _decode_dead,
    PUSH_PULL: decode_push_pull,
    USER: lambda data: User(data=data),
    NACK: _decode_nack,
    ERROR: lambda data: StreamError(error=text(unpack_fields(data), b"Error")),
}
