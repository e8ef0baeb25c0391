"""What Serf puts into fields of other messages: tags into a member's meta, coordinates into acks, filters into queries.

Source: Serf 0.9.4 serf.go (encodeTags), ping_delegate.go, query.go (filterNode, filterTag).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgpack
import msgspec

from beeyard.core.errors import RemoteProtocolError
from beeyard.core.membership import DIMENSIONS
from beeyard.discovery.gossip.message import Coordinate
from beeyard.discovery.gossip.wire.dialect import (
    U32,
    Fields,
    items,
    no_msgpack,
    number,
    pack,
    pack_short,
    text,
    texts,
    unpack_fields,
    wrong,
)
from beeyard.discovery.gossip.wire.pieces import plain_values

TAGS_FOLLOW: Final = 255  # Source: tagMagicByte; meta without it is the tag "role" of Serf's protocol 2 and older
COORDINATE_VERSION: Final = 1  # Source: PingVersion
FILTER_NODES: Final = 0
FILTER_TAG: Final = 1
FILTER_NAMES_MAX = 1 << 12  # no query that Serf sends has room for as many


class NodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A query is for these members alone."""

    names: tuple[str, ...]


class TagFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A query is for members whose tag (absent: "") contains a match of this regular expression, Go's syntax."""

    tag: str
    expression: str


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """`Alive.meta` for these tags. The caller checks that it has at most `META_BYTES_MAX` bytes."""
    return b"\xff" + pack(dict(tags))


def decode_tags(meta: bytes) -> dict[str, str]:
    """The tags in `Alive.meta`; bytes that are not text are shown as escapes.

    Meta of Serf's protocol 2 and older is the value of the tag "role" alone.

    Raises:
        RemoteProtocolError: meta says that it holds tags and does not.
    """
    if not meta or meta[0] != TAGS_FOLLOW:
        return {"role": _shown(meta)}
    tags = unpack_fields(meta[1:])
    return {_shown(tag): _shown(_tag_value(tags, tag)) for tag in tags}


def _tag_value(tags: Fields, tag: bytes) -> bytes:
    value = tags[tag]
    if value is None:
        return b""
    if type(value) is not bytes:
        raise wrong(tag, value, "text")
    return value


def _shown(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def encode_coordinate(coordinate: Coordinate, *, short: bool = False, view: int | None = None) -> bytes:
    """`Ack.payload`.

    Args:
        short: with floats of 4 bytes, which every reader takes too: a third of what a member sends less.
        view: 32 bits that say what the member believes (`serf.views`). Serf passes over fields that it does not know.
    """
    fields: dict[str, object] = {
        "Adjustment": coordinate.adjustment,
        "Error": coordinate.error,
        "Height": coordinate.height,
        "Vec": coordinate.vec,
    }
    if view is not None:
        fields["View"] = view
    return b"\x01" + (pack_short(fields) if short else pack(fields))


def decode_coordinate(payload: bytes) -> Coordinate:
    """The coordinate in `Ack.payload`: 8 dimensions, every number finite.

    Raises:
        RemoteProtocolError: there is none. An ack over a stream, and one of a helper, has an empty payload: ask first.
    """
    if not payload or payload[0] != COORDINATE_VERSION:
        raise RemoteProtocolError(f"a coordinate begins with {payload[:1]!r}: must begin with its version, 1")
    fields = unpack_fields(payload[1:])
    vec = items(fields, b"Vec")
    if len(vec) != DIMENSIONS:
        raise RemoteProtocolError(f"a coordinate has {len(vec)} dimensions: must have {DIMENSIONS}")
    return Coordinate(
        vec=tuple([_real(b"Vec", value) for value in vec]),
        error=_real(b"Error", fields.get(b"Error")),
        adjustment=_real(b"Adjustment", fields.get(b"Adjustment")),
        height=_real(b"Height", fields.get(b"Height")),
    )


def decode_view(payload: bytes) -> int | None:
    """What the member that sent this `Ack.payload` says of its view; None: nothing, as Serf's own agents do.

    Raises:
        RemoteProtocolError: it has not 32 bits, or the payload is none.
    """
    fields = unpack_fields(payload[1:])
    return number(fields, b"View", U32) if b"View" in fields else None


def _real(key: bytes, value: object) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if value is None or (type(value) is int and -(1 << 53) <= value <= 1 << 53):
        return float(value or 0)
    raise wrong(key, value, "a finite number")


def encode_filter(condition: NodeFilter | TagFilter) -> bytes:
    """One entry of `Query.filters`."""
    if isinstance(condition, NodeFilter):
        return b"\x00" + pack(condition.names)
    return b"\x01" + pack({"Expr": condition.expression, "Tag": condition.tag})


def decode_filter(blob: bytes) -> NodeFilter | TagFilter:
    """What one entry of `Query.filters` asks for.

    Raises:
        RemoteProtocolError: it is no filter. (Serf then ignores the query.)
    """
    kind = blob[0] if blob else None
    if kind == FILTER_NODES:
        return NodeFilter(names=_filter_names(blob[1:]))
    if kind == FILTER_TAG:
        fields = unpack_fields(blob[1:])
        return TagFilter(tag=text(fields, b"Tag"), expression=text(fields, b"Expr"))
    raise RemoteProtocolError(f"a filter of kind {kind} is not known here: must be 0 (nodes) or 1 (tag)")


def _filter_names(data: bytes) -> tuple[str, ...]:
    """A list that may be as long as a query allows, of nothing but names."""
    unpacker = plain_values(len(data))
    try:
        unpacker.feed(data)
        n_names = min(unpacker.read_array_header(), FILTER_NAMES_MAX)
        return texts({b"Nodes": [unpacker.unpack() for _ in range(n_names)]}, b"Nodes")
    except msgpack.OutOfData:
        raise RemoteProtocolError("a filter ends in the middle") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise no_msgpack("in a filter", error) from None
