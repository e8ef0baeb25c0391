"""What real Serf agents sent is read as they meant it, and written again byte for byte."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    Alive,
    Dead,
    JoinIntent,
    LeaveIntent,
    MergeState,
    Message,
    Nack,
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
from beeyard.discovery.gossip.wire.serf_codec import decode_serf, encode_serf
from tests.support.serf_vectors import MORE_VECTORS, VECTORS, name_of, read, write

TYPES = {
    Ping: "ping",
    Ack: "ack",
    Nack: "nack",
    Suspect: "suspect",
    Alive: "alive",
    Dead: "dead",
    JoinIntent: "user/join",
    LeaveIntent: "user/leave",
    UserEvent: "user/userevent",
    Query: "user/query",
    QueryResponse: "user/queryresp",
    Relay: "user/relay",
    StreamError: "err",
}

# Our field, and Go's. An address is two of them.
FIELDS = {
    "seq_no": "SeqNo",
    "node": "Node",
    "source_node": "SourceNode",
    "payload": "Payload",
    "incarnation": "Incarnation",
    "from_node": "From",
    "meta": "Meta",
    "vsn": "Vsn",
    "l_time": "LTime",
    "prune": "Prune",
    "name": "Name",
    "coalesce": "CC",
    "id": "ID",
    "filters": "Filters",
    "flags": "Flags",
    "relay_factor": "RelayFactor",
    "timeout_ns": "Timeout",
    "error": "Error",
    "state": "State",
    "event_l_time": "EventLTime",
    "query_l_time": "QueryLTime",
    "left_members": "LeftMembers",
    "status_l_times": "StatusLTimes",
}


def go_value(value: object) -> object:
    """A value as the recording shows it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()} if value else None
    if isinstance(value, tuple):
        return list(value)
    return value


def go_fields(message: msgspec.Struct) -> dict[str, object]:
    """The fields of a message under Go's names; those that are zero may be missing in the recording."""
    fields: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(message).items():
        if isinstance(value, Address):
            prefix = "Source" if name == "source" else ""
            packed = bytes(map(int, value.host.split("."))) if value.host else b""
            fields |= {f"{prefix}Addr": go_value(packed), f"{prefix}Port": value.port}
        elif name in FIELDS:
            fields[FIELDS[name]] = go_value(value)
    return fields


def recorded(body: dict[str, Any]) -> dict[str, Any]:
    """The recording with text where it shows a payload as text, and nothing where it shows an empty list."""
    return {
        key: {"hex": value.encode().hex()} if key == "Payload" and isinstance(value, str) else value or None
        for key, value in body.items()
    }


def assert_says(message: msgspec.Struct, body: dict[str, Any]) -> None:
    """Every field that was recorded is there, and every other one is zero."""
    ours = {key: value or None for key, value in go_fields(message).items()}
    assert {key: value for key, value in ours.items() if value is not None} == {
        key: value for key, value in recorded(body).items() if value is not None
    }


def inner(message: Message) -> Message:
    return decode_serf(message.data) if isinstance(message, User) else message


@pytest.mark.parametrize("vector", [v for v in VECTORS if "messages" in v], ids=name_of)
def test_a_recorded_packet_says_what_the_agent_meant(vector: dict[str, Any]) -> None:
    """Types and all fields are those of the recording."""
    messages = [inner(message) for message in read(vector)]
    assert [message["type"] for message in vector["messages"]] == [TYPES[type(message)] for message in messages]
    for message, said in zip(messages, vector["messages"], strict=True):
        if isinstance(message, Relay):
            assert said["body"]["hex"] == encode_serf(message).hex()
            assert QueryResponse is type(decode_serf(message.inner))
        else:
            assert_says(message, said["body"])


@pytest.mark.parametrize("vector", [v for v in VECTORS if "nodes" in v], ids=name_of)
def test_a_recorded_push_pull_says_what_the_agent_meant(vector: dict[str, Any]) -> None:
    """Header, members and Serf's state are those of the recording."""
    (message,) = read(vector)
    assert isinstance(message, PushPull)
    assert vector["header"] == {
        "Join": message.join,
        "Nodes": len(message.nodes),
        "UserStateLen": len(message.user_state),
    }
    for node, said in zip(message.nodes, vector["nodes"], strict=True):
        assert_says(node, said)
    state = decode_serf(message.user_state)
    assert isinstance(state, MergeState)
    said = dict(vector["userstate"])
    events = said.pop("Events")
    assert_says(state, said)
    assert events["len"] == len(state.events)
    assert events["non_nil"] == [
        {
            "LTime": at.l_time,
            "Events": [{"Name": event.name, "Payload": event.payload.decode()} for event in at.events],
        }
        for at in state.events
        if at is not None
    ]


@pytest.mark.parametrize("vector", [v for v in VECTORS if "body" in v], ids=name_of)
def test_a_recorded_small_stream_says_what_the_agent_meant(vector: dict[str, Any]) -> None:
    """Acks and errors on streams."""
    (message,) = read(vector)
    assert vector["type"] == TYPES[type(message)]
    assert_says(message, vector["body"])


@pytest.mark.parametrize("vector", VECTORS + MORE_VECTORS, ids=name_of)
def test_what_was_read_is_written_byte_for_byte(vector: dict[str, Any]) -> None:
    """Every layer and message comes out as the agent made it, encryption with its nonce included."""
    messages = read(vector)
    if "types" in vector:
        assert vector["types"] == [type(inner(message)).__name__ for message in messages]
    assert vector["hex"] == write(vector, messages).hex()
