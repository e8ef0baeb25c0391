"""Datagrams: messages within compound, compression, checksum and encryption, in this order outwards."""

from __future__ import annotations

from collections.abc import Sequence

from beeyard.discovery.gossip.message import Message
from beeyard.discovery.gossip.wire.keyring import Keyring

PACKET_BYTES_MAX = 1400  # Source: UDPBufferSize in memberlist's config.go; what a sender fills at most
COMPOUND_PARTS_MAX = 127  # memberlist 0.2.2 computes 2 * count in 8 bits, so that more are misread
COMPOUND_OVERHEAD = 2  # the type and the count
PART_OVERHEAD = 2  # the length of each part


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

    @property
    def overhead(self) -> int:
        """Bytes of a datagram that the layers take beside parts and their compound: encryption's, or none."""
        raise NotImplementedError

    def pack(self, parts: Sequence[bytes], *, crc: bool = False) -> bytes:
        """One datagram of 1 to `COMPOUND_PARTS_MAX` parts, each a message from `encode`.

        `crc`: with a checksum, which the receiver must understand (protocol max of its vsn at least 5).
        """
        raise NotImplementedError

    def unpack(self, datagram: bytes) -> list[Message]:
        """The messages of a datagram in their order; parts that cannot be read are left out and counted.

        Raises:
            RemoteProtocolError: it cannot be opened, its checksum is wrong, or nothing in it can be read.
        """
        raise NotImplementedError
