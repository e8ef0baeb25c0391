"""One Serf message to bytes and back: the type byte, then a msgpack map with Go's field names, sorted.

Source: Serf 0.9.4 messages.go, internal_query.go, delegate.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import (
    Address,
    ConflictResponse,
    JoinIntent,
    KeyRequest,
    KeyResponse,
    LeaveIntent,
    MemberRecord,
    MergeState,
    Message,
    Query,
    QueryResponse,
    Relay,
    UserEvent,
)
from beeyard.discovery.gossip.wire.dialect import (
    U8,
    U32,
    U64,
    Fields,
    address,
    flag,
    host_to_bytes,
    is_empty,
    name,
    number,
    or_nil,
    pack,
    raw,
    raws,
    text,
    texts,
    unpack,
    unpack_fields,
    wrong,
)
from beeyard.discovery.gossip.wire.limits import META_BYTES_MAX
from beeyard.discovery.gossip.wire.merge_state import decode_merge_state, encode_merge_state
from beeyard.discovery.gossip.wire.serf_parts import (
    NodeFilter,
    TagFilter,
    decode_coordinate,
    decode_filter,
    decode_tags,
    decode_view,
    encode_coordinate,
    encode_filter,
    encode_tags,
)

LEAVE: Final = 0
JOIN: Final = 1
PUSH_PULL: Final = 2
USER_EVENT: Final = 3
QUERY: Final = 4
QUERY_RESPONSE: Final = 5
CONFLICT_RESPONSE: Final = 6
KEY_REQUEST: Final = 7
KEY_RESPONSE: Final = 8
RELAY: Final = 9

TIMEOUT_NS_MAX = (1 << 63) - 1


def encode_serf(message: Message) -> bytes:
    """The Serf message with its type byte: what `User.data`, `PushPull.user_state` and payloads of `_serf_` queries hold.

    Lamport times wrap as Go's do, at 2**64.

    Raises:
        LocalProtocolError: an address is not an IP address, or a message is not one of Serf's.
    """
    encoder = _ENCODERS.get(type(message))
    if encoder is None:
        raise LocalProtocolError(f"{type(message).__name__} is no message of Serf")
    return encoder(message)


def decode_serf(data: bytes) -> Message:
    """The Serf message that `data` is.

    Of a push/pull, members and events whose name is not text are left out: one of them must not hide the others.

    Raises:
        RemoteProtocolError: it is none, or a field is not what it must be.
    """
    if not data:
        raise RemoteProtocolError("a message of Serf is empty: must begin with its type")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        raise RemoteProtocolError(f"message type {data[0]} of Serf is not known here")
    return decoder(data[1:])


# --- to bytes --------------------------------------------------------------------------------------------------------


def _encode_join(join: JoinIntent) -> bytes:
    return b"\x01" + pack({"LTime": join.l_time & U64, "Node": join.node})


def _encode_leave(leave: LeaveIntent) -> bytes:
    return b"\x00" + pack({"LTime": leave.l_time & U64, "Node": leave.node, "Prune": leave.prune})


def _encode_user_event(event: UserEvent) -> bytes:
    fields = {
        "CC": event.coalesce,
        "LTime": event.l_time & U64,
        "Name": event.name,
        "Payload": or_nil(event.payload, event.empty_payload),
    }
    return b"\x03" + pack(fields)


def _encode_query(query: Query) -> bytes:
    fields = {
        "Addr": host_to_bytes(query.address.host) or None,
        "Filters": query.filters or None,
        "Flags": query.flags,
        "ID": query.id,
        "LTime": query.l_time & U64,
        "Name": query.name,
        "Payload": or_nil(query.payload, query.empty_payload),
        "Port": query.address.port,
        "RelayFactor": query.relay_factor,
        "SourceNode": query.source_node,
        "Timeout": query.timeout_ns,
    }
    return b"\x04" + pack(fields)


def _encode_query_response(response: QueryResponse) -> bytes:
    fields = {
        "Flags": response.flags,
        "From": response.from_node,
        "ID": response.id,
        "LTime": response.l_time & U64,
        "Payload": or_nil(response.payload, response.empty_payload),
    }
    return b"\x05" + pack(fields)


def _encode_conflict_response(response: ConflictResponse) -> bytes:
    member = response.member
    if member is None:
        return b"\x06\xc0"
    fields = {
        "Addr": host_to_bytes(member.address.host) or None,
        "DelegateCur": member.delegate[2],
        "DelegateMax": member.delegate[1],
        "DelegateMin": member.delegate[0],
        "Name": member.name,
        "Port": member.address.port,
        "ProtocolCur": member.protocol[2],
        "ProtocolMax": member.protocol[1],
        "ProtocolMin": member.protocol[0],
        "Status": member.status,
        "Tags": member.tags,
    }
    return b"\x06" + pack(fields)


def _encode_key_response(response: KeyResponse) -> bytes:
    fields = {
        "Keys": response.keys or None,
        "Message": response.message,
        "PrimaryKey": response.primary_key,
        "Result": response.result,
    }
    return b"\x08" + pack(fields)


def _encode_relay(relay: Relay) -> bytes:
    host, _, zone = relay.destination.host.partition("%")
    destination = {"IP": host_to_bytes(host) or None, "Port": relay.destination.port, "Zone": zone}
    return b"\x09" + pack({"DestAddr": destination, "DestName": relay.destination_node}) + relay.inner


_ENCODERS: dict[type[Message], Callable[[Any], bytes]] = {
    LeaveIntent: _encode_leave,
    JoinIntent: _encode_join,
    MergeState: lambda state: b"\x02" + encode_merge_state(state),
    UserEvent: _encode_user_event,
    Query: _encode_query,
    QueryResponse: _encode_query_response,
    ConflictResponse: _encode_conflict_response,
    # Unlike other bytes, Go's sender always has a slice here: it comes from base64.
    KeyRequest: lambda request: b"\x07" + pack({"Key": request.key}),
    KeyResponse: _encode_key_response,
    Relay: _encode_relay,
}


# --- from bytes ------------------------------------------------------------------------------------------------------


def _decode_join(data: bytes) -> JoinIntent:
    fields = unpack_fields(data)
    return JoinIntent(l_time=number(fields, b"LTime", U64), node=name(fields, b"Node"))


def _decode_leave(data: bytes) -> LeaveIntent:
    fields = unpack_fields(data)
    return LeaveIntent(l_time=number(fields, b"LTime", U64), node=name(fields, b"Node"), prune=flag(fields, b"Prune"))


def _decode_user_event(data: bytes) -> UserEvent:
    fields = unpack_fields(data)
    return UserEvent(
        l_time=number(fields, b"LTime", U64),
        name=text(fields, b"Name"),
        payload=raw(fields, b"Payload"),
        empty_payload=is_empty(fields, b"Payload"),
        coalesce=flag(fields, b"CC"),
    )


def _decode_query(data: bytes) -> Query:
    fields = unpack_fields(data)
    return Query(
        l_time=number(fields, b"LTime", U64),
        id=number(fields, b"ID", U32),
        address=address(fields, b"Addr", b"Port"),
        source_node=text(fields, b"SourceNode"),
        name=text(fields, b"Name"),
        payload=raw(fields, b"Payload"),
        empty_payload=is_empty(fields, b"Payload"),
        filters=raws(fields, b"Filters"),
        flags=number(fields, b"Flags", U32),
        relay_factor=number(fields, b"RelayFactor", U8),
        timeout_ns=number(fields, b"Timeout", TIMEOUT_NS_MAX),
    )


def _decode_query_response(data: bytes) -> QueryResponse:
    fields = unpack_fields(data)
    return QueryResponse(
        l_time=number(fields, b"LTime", U64),
        id=number(fields, b"ID", U32),
        from_node=text(fields, b"From"),
        flags=number(fields, b"Flags", U32),
        payload=raw(fields, b"Payload"),
        empty_payload=is_empty(fields, b"Payload"),
    )


def _decode_conflict_response(data: bytes) -> ConflictResponse:
    if data[:1] == b"\xc0":
        return ConflictResponse()
    fields = unpack_fields(data)
    return ConflictResponse(
        member=MemberRecord(
            name=name(fields, b"Name"),
            address=address(fields, b"Addr", b"Port"),
            tags=_tags(fields.get(b"Tags")),
            status=number(fields, b"Status", U8),
            protocol=_versions(fields, b"Protocol"),
            delegate=_versions(fields, b"Delegate"),
        )
    )


def _versions(fields: Fields, of: bytes) -> tuple[int, int, int]:
    return number(fields, of + b"Min", U8), number(fields, of + b"Max", U8), number(fields, of + b"Cur", U8)


def _tags(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise wrong(b"Tags", value, "a map")
    return {text({b"tag": tag}, b"tag"): text(value, tag) for tag in value}


def _decode_key_request(data: bytes) -> KeyRequest:
    return KeyRequest(key=raw(unpack_fields(data), b"Key"))


def _decode_key_response(data: bytes) -> KeyResponse:
    fields = unpack_fields(data)
    return KeyResponse(
        result=flag(fields, b"Result"),
        message=text(fields, b"Message"),
        keys=texts(fields, b"Keys"),
        primary_key=text(fields, b"PrimaryKey"),
    )


def _decode_relay(data: bytes) -> Relay:
    fields, inner = unpack(data)
    destination = fields.get(b"DestAddr") if type(fields) is dict else None
    if type(destination) is not dict:
        raise RemoteProtocolError("a message to relay has no DestAddr: must say where to")
    where = address(destination, b"IP", b"Port")
    zone = text(destination, b"Zone")
    if zone:
        where = Address(f"{where.host}%{zone}", where.port)
    return Relay(destination=where, destination_node=text(fields, b"DestName"), inner=inner)


_DECODERS: dict[int, Callable[[bytes], Message]] = {
    LEAVE: _decode_leave,
    JOIN: _decode_join,
    PUSH_PULL: decode_merge_state,
    USER_EVENT: _decode_user_event,
    QUERY: _decode_query,
    QUERY_RESPONSE: _decode_query_response,
    CONFLICT_RESPONSE: _decode_conflict_response,
    KEY_REQUEST: _decode_key_request,
    KEY_RESPONSE: _decode_key_response,
    RELAY: _decode_relay,
}

__all__ = [
    "META_BYTES_MAX",
    "NodeFilter",
    "TagFilter",
    "decode_coordinate",
    "decode_filter",
    "decode_serf",
    "decode_tags",
    "decode_view",
    "encode_coordinate",
    "encode_filter",
    "encode_serf",
    "encode_tags",
]
