"""Layers that packets and streams share: LZW in a message of its own, and the message in a checksum or a compound.

Source: memberlist 0.2.2 util.go (makeCompoundMessage, decodeCompoundMessage, compressPayload, decompressPayload).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.wire import lzw
from beeyard.discovery.gossip.wire.dialect import U8, Fields, number, pack, raw, unpack_fields

COMPOUND_PARTS_MAX: Final = 127  # memberlist 0.2.2 computes 2 * count in 8 bits, so that more are misread
LZW: Final = 0  # the only algorithm
CRC_BYTES: Final = 5  # the type and the sum

_one_length = struct.Struct(">H").pack


def compressed(plain: bytes) -> bytes:
    """The message that says `plain` in fewer bytes, or now and then in more."""
    return b"\x09" + pack({"Algo": LZW, "Buf": lzw.compress(plain)})


def decompressed(data: bytes, most: int) -> bytes:
    """What a compressed message (without its type byte) says.

    Raises:
        RemoteProtocolError: it says nothing, or more than `most` bytes.
    """
    return inflate(unpack_fields(data), most)


def inflate(fields: Fields, most: int) -> bytes:
    """The same of the map in the message."""
    if algorithm := number(fields, b"Algo", U8):
        raise RemoteProtocolError(f"compression {algorithm} is not known here: must be {LZW}, LZW")
    try:
        return lzw.decompress(raw(fields, b"Buf"), most)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from None


def with_crc(plain: bytes) -> bytes:
    """The message that says `plain` and its CRC-32."""
    return b"\x0c%b%b" % (crc32(plain).to_bytes(4, "big"), plain)


def without_crc(data: bytes) -> bytes:
    """What a message with a checksum says.

    Raises:
        RemoteProtocolError: the sum is another one.
    """
    plain = data[CRC_BYTES:]
    expected, found = int.from_bytes(data[1:CRC_BYTES], "big"), crc32(plain)
    if len(data) < CRC_BYTES or expected != found:
        raise RemoteProtocolError(f"checksum {expected:#x} of a packet is wrong: must be {found:#x}")
    return plain


def compound(parts: Sequence[bytes]) -> bytes:
    """One message of several: the type, their number, their lengths, and they."""
    assert 0 < len(parts) <= COMPOUND_PARTS_MAX, f"{len(parts)} parts in a compound: at most {COMPOUND_PARTS_MAX}"
    return b"".join((b"\x07", bytes((len(parts),)), *(_one_length(len(part)) for part in parts), *parts))


def parts_of(data: bytes) -> list[bytes]:
    """The parts of a compound (with its type byte); of one that was cut off, those that are whole.

    Raises:
        RemoteProtocolError: even the list of lengths is cut off.
    """
    n_parts = data[1] if len(data) > 1 else 0
    at = 2 + 2 * n_parts
    if len(data) < at:
        raise RemoteProtocolError(f"a compound of {len(data)} bytes is cut off: its lengths alone take {at}")
    parts = []
    for length in struct.unpack_from(f">{n_parts}H", data, 2):
        if at + length > len(data):
            break
        parts.append(data[at : at + length])
        at += length
    return parts
