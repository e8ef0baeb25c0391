"""Datagrams: messages within compound, compression, checksum and encryption, in this order outwards.

With a key, the first byte is the version of the encryption, which looks like the type of a ping: a packet is opened before
anybody looks at its type. Source: memberlist 0.2.2 net.go (ingestPacket, handleCommand, rawSendMsgPacket).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Message
from beeyard.discovery.gossip.wire.codec import (
    ALIVE,
    COMPOUND,
    COMPRESS,
    DEAD,
    ERROR,
    HAS_CRC,
    PUSH_PULL,
    SUSPECT,
    decode,
)
from beeyard.discovery.gossip.wire.keyring import SEAL_OVERHEAD, Keyring
from beeyard.discovery.gossip.wire.layers import (
    COMPOUND_PARTS_MAX,
    compound,
    compressed,
    decompressed,
    parts_of,
    with_crc,
    without_crc,
)

PACKET_BYTES_MAX = 1400  # Source: UDPBufferSize in memberlist's config.go; what a sender fills at most
COMPOUND_OVERHEAD = 2  # the type and the count
PART_OVERHEAD = 2  # the length of each part

# A sender fills its packet before it compresses it, so that nothing honest gets larger than a datagram can be.
PLAIN_BYTES_MAX = 1 << 16
DEPTH_MAX = 4  # of compounds and compressed messages within each other; honest packets have one of each
MESSAGES_MAX = 255  # of one packet: what one compound holds
NEWS = frozenset([SUSPECT, ALIVE, DEAD])
LZW_WORTH_BYTES = 20  # nothing shorter can get smaller: the shortest compressed message has as many


class PacketCodec:
    """Packs and unpacks the datagrams of one member.

    `refused`: how many parts of otherwise good packets were left out because they could not be read, since the start.
    """

    def __init__(
        self,
        keyring: Keyring | None = None,
        *,
        verify_incoming: bool = True,
        verify_outgoing: bool = True,
        compress: bool = True,
    ) -> None:
        """
        Args:
            keyring: None or empty: nothing is encrypted. It may change while the codec is used.
            verify_incoming: with a key, whether plain packets are refused. False while a cluster starts to encrypt.
            verify_outgoing: with a key, whether packets are encrypted. False while some members have no key yet.
            compress: whether packets that get smaller by it are compressed. Compressed ones are always understood.
        """
        self.keyring = keyring
        self.verify_incoming = verify_incoming
        self.verify_outgoing = verify_outgoing
        self.compress = compress
        self.refused = 0

    @property
    def overhead(self) -> int:
        """Bytes of a datagram that the layers take beside parts and their compound: encryption's, or none."""
        return SEAL_OVERHEAD if self.keyring and self.verify_outgoing else 0

    def pack(self, parts: Sequence[bytes], *, crc: bool = False) -> bytes:
        """One datagram of 1 to `COMPOUND_PARTS_MAX` parts, each a message from `encode`.

        `crc`: with a checksum, which the receiver must understand (protocol max of its vsn at least 5).
        """
        data = parts[0] if len(parts) == 1 else compound(parts)
        if self.compress and len(data) >= LZW_WORTH_BYTES:
            smaller = compressed(data)
            if len(smaller) < len(data):
                data = smaller
        if crc:
            data = with_crc(data)
        if self.keyring and self.verify_outgoing:
            data = self.keyring.seal(data)
        return data

    def unpack(self, datagram: bytes) -> list[Message]:
        """The messages of a datagram in their order; parts that cannot be read are left out and counted.

        Raises:
            RemoteProtocolError: it cannot be opened, its checksum is wrong, or nothing in it can be read.
        """
        data = self._opened(datagram)
        if data and data[0] == HAS_CRC:
            data = without_crc(data)
        if data and data[0] not in (COMPOUND, COMPRESS):  # most packets are one message
            return [_one(data)]
        unpacking = _Unpacking()
        unpacking.go_into(data, 0)
        if not unpacking.messages and unpacking.error is not None:
            raise unpacking.error
        self.refused += unpacking.n_refused
        return unpacking.messages

    def _opened(self, datagram: bytes) -> bytes:
        if not self.keyring:
            return datagram
        try:
            return self.keyring.open(datagram)
        except RemoteProtocolError:
            if self.verify_incoming:
                raise
            return datagram


def _one(data: bytes) -> Message:
    if data and data[0] in (PUSH_PULL, ERROR):
        raise RemoteProtocolError(f"message type {data[0]} came in a packet: must come on a stream")
    if data and data[0] in NEWS and len(data) <= PACKET_BYTES_MAX:
        return _decode_news(data)
    return decode(data)


# News reaches a member eight times and more, each time in the same bytes; a message is never changed, so it may be shared.
_decode_news = functools.lru_cache(maxsize=512)(decode)


class _Unpacking:
    """One walk through the layers of a packet, with what they may cost together."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.n_refused = 0
        self.error: RemoteProtocolError | None = None  # why the last refused part was refused
        self._plain_bytes = PLAIN_BYTES_MAX  # that may still be decompressed

    def go_into(self, data: bytes, depth: int) -> None:
        """Take in all messages of `data`."""
        try:
            kind = data[0] if data else None
            if kind not in (COMPOUND, COMPRESS):
                self.messages.append(_one(data))
                return
            if depth == DEPTH_MAX:
                raise RemoteProtocolError(f"a packet has more than {DEPTH_MAX} layers")
            parts = parts_of(data) if kind == COMPOUND else [self._decompressed(data)]
        except RemoteProtocolError as error:
            self.error = error
            self.n_refused += 1
            return
        for part in parts:
            if len(self.messages) + self.n_refused >= MESSAGES_MAX:
                return
            self.go_into(part, depth + 1)

    def _decompressed(self, data: bytes) -> bytes:
        most, self._plain_bytes = self._plain_bytes, 0  # one that fails costs all that is left
        plain = decompressed(data[1:], most)
        self._plain_bytes = most - len(plain)
        return plain


__all__ = [
    "COMPOUND_OVERHEAD",
    "COMPOUND_PARTS_MAX",
    "PACKET_BYTES_MAX",
    "PART_OVERHEAD",
    "PacketCodec",
]
