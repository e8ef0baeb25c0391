"""Every message of memberlist and Serf, as the rules see it. `wire` turns them into bytes and back.

Names on the wire are those of Go's fields (`SeqNo`, `LTime`): snake case here. What a sender left out has its zero value.
Source: message types of memberlist 0.2.2 (net.go) and Serf 0.9.4 (messages.go, internal_query.go).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from beeyard.core.membership import Coordinate as Coordinate


class Address(NamedTuple):
    """Where a member is reached: an IPv4 or IPv6 address as text without brackets, and one port for UDP and TCP."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


NOWHERE = Address("", 0)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What they have in common: nothing but that they travel."""


# --- memberlist ------------------------------------------------------------------------------------------------------


class Ping(Message, frozen=True, kw_only=True):
    """Are you there? `node` "" asks whoever it reaches."""

    seq_no: int
    node: str = ""
    source: Address = NOWHERE  # where the answer is wanted; NOWHERE: where the packet came from
    source_node: str = ""


class IndirectPing(Message, frozen=True, kw_only=True):
    """Ask a third one for me."""

    seq_no: int
    target: Address
    node: str
    nack: bool = False
    source: Address = NOWHERE
    source_node: str = ""


class Ack(Message, frozen=True, kw_only=True):
    """I am. The payload is Serf's coordinate."""

    seq_no: int
    payload: bytes = b""


class Nack(Message, frozen=True, kw_only=True):
    """The one that you asked for did not answer me in time, but I am here."""

    seq_no: int


class Suspect(Message, frozen=True, kw_only=True):
    """`from_node` believes that a member is dead."""

    incarnation: int
    node: str
    from_node: str


class Alive(Message, frozen=True, kw_only=True):
    """A member says where and what it is."""

    incarnation: int
    node: str
    address: Address
    meta: bytes = b""
    vsn: bytes = b""  # 6 bytes: protocol min, max, current; delegate min, max, current


class Dead(Message, frozen=True, kw_only=True):
    """A member is dead; it left by itself if it says so (`from_node` is `node`)."""

    incarnation: int
    node: str
    from_node: str


class User(Message, frozen=True, kw_only=True):
    """A message of the layer above, as bytes: with Serf, its type and its body."""

    data: bytes


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A member in a push/pull. `state`: 0 alive, 1 suspect, 2 dead, 3 left."""

    name: str
    address: Address
    meta: bytes = b""
    incarnation: int = 0
    state: int = 0
    vsn: bytes = b""


class PushPull(Message, frozen=True, kw_only=True):
    """All that one side knows. `user_state` is Serf's `MergeState`, encoded."""

    nodes: tuple[NodeRecord, ...] = ()
    user_state: bytes = b""
    join: bool = False


class StreamError(Message, frozen=True, kw_only=True):
    """In place of an answer on a stream: why there is none."""

    error: str


# --- serf ------------------------------------------------------------------------------------------------------------


class JoinIntent(Message, frozen=True, kw_only=True):
    """A member is joining, at its Lamport time."""

    l_time: int
    node: str


class LeaveIntent(Message, frozen=True, kw_only=True):
    """A member is leaving, or was told to have left; `prune`: and is to be forgotten."""

    l_time: int
    node: str
    prune: bool = False


class EventItem(NamedTuple):
    """One user event in a push/pull."""

    name: str
    payload: bytes


class EventsAt(msgspec.Struct, frozen=True, kw_only=True):
    """The user events of one Lamport time."""

    l_time: int
    events: tuple[EventItem, ...]


class MergeState(Message, frozen=True, kw_only=True):
    """Serf's part of a push/pull."""

    l_time: int = 0
    status_l_times: dict[str, int] = {}
    left_members: tuple[str, ...] = ()
    event_l_time: int = 0
    events: tuple[EventsAt | None, ...] = ()
    query_l_time: int = 0


class UserEvent(Message, frozen=True, kw_only=True):
    """An event of a user, for all members. `coalesce`: of several of one name only the newest need be shown."""

    l_time: int
    name: str
    payload: bytes = b""
    coalesce: bool = False
    empty_payload: bool = False  # it was sent with a payload of no bytes, which the wire tells from none


class Query(Message, frozen=True, kw_only=True):
    """A question to all members, or to those that pass every filter. `flags`: QUERY_*."""

    l_time: int
    id: int
    address: Address  # where answers go
    source_node: str
    name: str
    payload: bytes = b""
    filters: tuple[bytes, ...] = ()
    flags: int = 0
    relay_factor: int = 0
    timeout_ns: int = 0
    empty_payload: bool = False  # it was sent with a payload of no bytes, which the wire tells from none


QUERY_WANTS_ACK = 1  # of an answer: it is the ack
QUERY_NO_BROADCAST = 2


class QueryResponse(Message, frozen=True, kw_only=True):
    """An answer, or with flag 1 the word that the question has come."""

    l_time: int
    id: int
    from_node: str
    flags: int = 0
    payload: bytes = b""
    empty_payload: bool = False  # it was sent with a payload of no bytes, which the wire tells from none


class Relay(Message, frozen=True, kw_only=True):
    """Pass this on to somebody else. `inner` is a Serf message as bytes, type first."""

    destination: Address
    destination_node: str = ""
    inner: bytes


class ConflictResponse(Message, frozen=True, kw_only=True):
    """What a member knows of a name, in a query's answer; None: nothing."""

    member: MemberRecord | None = None


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A member as Serf shows it. `status`: 0 none, 1 alive, 2 leaving, 3 left, 4 failed."""

    name: str
    address: Address
    tags: dict[str, str] = {}
    status: int = 0
    protocol: tuple[int, int, int] = (0, 0, 0)  # min, max, current
    delegate: tuple[int, int, int] = (0, 0, 0)


class KeyRequest(Message, frozen=True, kw_only=True):
    """A key to install, use or remove, in a query's payload."""

    key: bytes = b""


class KeyResponse(Message, frozen=True, kw_only=True):
    """How that went on one member; `keys` and `primary_key` in base64."""

    result: bool
    message: str = ""
    keys: tuple[str, ...] = ()
    primary_key: str = ""
