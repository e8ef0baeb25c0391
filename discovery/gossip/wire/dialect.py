"""msgpack as memberlist speaks it: the old spec, in which text and bytes are both "raw". Reads what new-spec peers send too.

A struct is a map with Go's field names. A field that is missing or nil has its zero value, one that nobody knows is passed
over. Go writes an absent slice as nil and an empty one as empty; the rules need not care: both are b"" or (), and are
written as Go's senders mostly do. Where users can make the other form, messages say so (`empty_payload`).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any

import msgpack

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.discovery.gossip.message import NOWHERE, Address

Fields = dict[bytes, Any]

U8 = 0xFF
U16 = 0xFFFF
U32 = 0xFFFF_FFFF
U64 = 0xFFFF_FFFF_FFFF_FFFF

# msgpack makes room for an array as soon as it has read the length, and arrays nest 1,024 deep: a bigger number would let
# 3 kB of headers take up memory without end. The longest lists of one message are a coordinate's 8 numbers and a ring's keys.
ARRAY_LENGTH_MAX = 64


_packer = msgpack.Packer(use_bin_type=False, unicode_errors="surrogateescape")


def pack(value: Any) -> bytes:
    """One value; dicts keep their order, which is to be the sorted one of Go's field names."""
    packed: bytes = _packer.pack(value)
    return packed


_short_packer = msgpack.Packer(use_bin_type=False, use_single_float=True)


def pack_short(value: Any) -> bytes:
    """As `pack`, with floats of 4 bytes: 24 bits of a number. Go's decoder takes them for its float64."""
    try:
        packed: bytes = _short_packer.pack(value)
    except OverflowError:  # a float that has no room in 4 bytes
        packed = msgpack.packb(value, use_bin_type=False)
    return packed


def unpack(data: bytes) -> tuple[Any, bytes]:
    """The first value in `data`, text as bytes, and what follows it.

    Raises:
        RemoteProtocolError: there is no whole value.
    """
    try:
        return msgpack.unpackb(data, raw=True, max_array_len=ARRAY_LENGTH_MAX), b""
    except msgpack.ExtraData as more:
        return more.unpacked, more.extra
    except (ValueError, TypeError, OverflowError) as error:
        raise no_msgpack("in a message", error) from None


def unpack_fields(data: bytes) -> Fields:
    """The map that `data` begins with.

    Raises:
        RemoteProtocolError: it begins with none.
    """
    fields, _ = unpack(data)
    if type(fields) is not dict:
        raise RemoteProtocolError(f"a map is due, not {_shown(fields)}")
    return fields


def number(fields: Fields, key: bytes, largest: int) -> int:
    """A number from 0 to `largest`."""
    value = fields.get(key, 0)
    if type(value) is int and 0 <= value <= largest:
        return value
    if value is None:
        return 0
    raise wrong(key, value, f"a number from 0 to {largest}")


def flag(fields: Fields, key: bytes) -> bool:
    """True or false."""
    value = fields.get(key, False)
    if value is True or value is False:
        return bool(value)
    if value is None:
        return False
    raise wrong(key, value, "true or false")


def raw(fields: Fields, key: bytes) -> bytes:
    """Bytes; none for nil."""
    value = fields.get(key)
    if value is None:
        return b""
    if type(value) is bytes:
        return value
    raise wrong(key, value, "bytes")


def text(fields: Fields, key: bytes) -> str:
    """Text in UTF-8."""
    value = fields.get(key)
    if value is None:
        return ""
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise wrong(key, value, "text in UTF-8")


def name(fields: Fields, key: bytes) -> str:
    """Text that is not empty."""
    value = fields.get(key)
    if type(value) is bytes and value:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise wrong(key, value or "", "the name of a member")


def items(fields: Fields, key: bytes) -> tuple[Any, ...]:
    """A list; an empty one for nil."""
    value = fields.get(key)
    if value is None:
        return ()
    if type(value) is list:
        return tuple(value)
    raise wrong(key, value, "a list")


def raws(fields: Fields, key: bytes) -> tuple[bytes, ...]:
    """A list of bytes; an empty one for nil."""
    values = items(fields, key)
    if not all(type(value) is bytes for value in values):
        raise wrong(key, values, "a list of bytes")
    return values


def texts(fields: Fields, key: bytes) -> tuple[str, ...]:
    """A list of texts; an empty one for nil."""
    values = raws(fields, key)
    try:
        return tuple([value.decode() for value in values])
    except UnicodeDecodeError:
        raise wrong(key, values, "a list of texts in UTF-8") from None


def address(fields: Fields, host_key: bytes, port_key: bytes) -> Address:
    """A host and a port; `NOWHERE` when both are missing."""
    host = fields.get(host_key)
    port = fields.get(port_key, 0)
    if type(port) is not int or not 0 <= port <= U16:
        port = number(fields, port_key, U16)
    if not host:
        return Address("", port) if port else NOWHERE
    if type(host) is not bytes:
        raise wrong(host_key, host, "the bytes of an IP address")
    return Address(host_from_bytes(host), port)


def no_msgpack(where: str, error: Exception) -> RemoteProtocolError:
    """The error for what msgpack could not read; it says nothing itself about a byte that begins no value."""
    return RemoteProtocolError(f"no msgpack {where}: {str(error) or 'a byte begins no value'}")


def wrong(key: bytes, value: object, right: str) -> RemoteProtocolError:
    """The error that says what a field must be."""
    return RemoteProtocolError(f"{key.decode(errors='replace')} is {_shown(value)}: must be {right}")


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, str | bytes | int | float | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def is_empty(fields: Fields, key: bytes) -> bool:
    """Whether bytes are there, but none."""
    return fields.get(key) == b""


def or_nil(value: bytes, empty: bool = False) -> bytes | None:
    """Bytes as Go's senders mostly write them: nil for none, or with `empty` empty for none."""
    return value if value or empty else None


@lru_cache(maxsize=8192)
def host_to_bytes(host: str) -> bytes:
    """4 bytes for IPv4, which is what peers compare, and 16 for IPv6; none for "".

    Raises:
        LocalProtocolError: it is not an IP address.
    """
    try:
        return ipaddress.ip_address(host).packed if host else b""
    except ValueError:
        raise LocalProtocolError(f"host {host!r} is not an IP address") from None


@lru_cache(maxsize=8192)
def host_from_bytes(packed: bytes) -> str:
    """The address as text; an IPv4 address within IPv6 is the IPv4 address.

    Raises:
        RemoteProtocolError: of another length than an IP address.
    """
    if len(packed) == 4:
        return ".".join(map(str, packed))
    if len(packed) == 16:
        parsed = ipaddress.IPv6Address(packed)
        return str(parsed.ipv4_mapped or parsed)
    raise RemoteProtocolError(f"an IP address has 4 or 16 bytes, not {len(packed)}")
