"""One Serf message to bytes and back, and what Serf puts into memberlist's fields: tags, coordinates, filters."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from beeyard.discovery.gossip.message import Coordinate, Message


class NodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A query is for these members alone."""

    names: tuple[str, ...]


class TagFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A query is for members whose tag (absent: "") contains a match of this regular expression, Go's syntax."""

    tag: str
    expression: str


def encode_serf(message: Message) -> bytes:
    """The Serf message with its type byte: what `User.data` and `PushPull.user_state` and payloads of `_serf_` queries hold.

    Raises:
        LocalProtocolError: an address is not an IP address, or a message is not one of Serf's.
    """
    raise NotImplementedError


def decode_serf(data: bytes) -> Message:
    """The Serf message that `data` is.

    Of a push/pull, members and events whose name is not text are left out: one of them must not hide the others.

    Raises:
        RemoteProtocolError: it is none, or a field is not what it must be.
    """
    raise NotImplementedError


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """`Alive.meta` for these tags. The caller checks that it has at most `META_BYTES_MAX` bytes."""
    raise NotImplementedError


def decode_tags(meta: bytes) -> dict[str, str]:
    """The tags in `Alive.meta`; bytes that are not text are shown as escapes.

    Meta of Serf's protocol 2 and older is the value of the tag "role" alone.

    Raises:
        RemoteProtocolError: meta says that it holds tags and does not.
    """
    raise NotImplementedError


def encode_coordinate(coordinate: Coordinate) -> bytes:
    """`Ack.payload`."""
    raise NotImplementedError


def decode_coordinate(payload: bytes) -> Coordinate:
    """The coordinate in `Ack.payload`: 8 dimensions, every number finite.

    Raises:
        RemoteProtocolError: there is none. An ack over a stream, and one of a helper, has an empty payload: ask first.
    """
    raise NotImplementedError


def encode_filter(condition: NodeFilter | TagFilter) -> bytes:
    """One entry of `Query.filters`."""
    raise NotImplementedError


def decode_filter(blob: bytes) -> NodeFilter | TagFilter:
    """What one entry of `Query.filters` asks for.

    Raises:
        RemoteProtocolError: it is no filter. (Serf then ignores the query.)
    """
    raise NotImplementedError


META_BYTES_MAX = 512  # Source: MetaMaxSize in memberlist's net.go
