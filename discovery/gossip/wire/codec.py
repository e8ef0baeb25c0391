"""One memberlist message to bytes and back: the type byte, then a msgpack map with Go's field names, sorted."""

from __future__ import annotations

from beeyard.discovery.gossip.message import Message


def encode(message: Message) -> bytes:
    """The message with its type byte: a part for `PacketCodec.pack`, or what `frame` wraps for a stream.

    Numbers wrap as Go's do (incarnation and sequence number at 2**32), so that nothing a peer brought them to can raise.

    Raises:
        LocalProtocolError: an address is not an IP address, or a message is not one of memberlist's.
    """
    raise NotImplementedError


def decode(data: bytes) -> Message:
    """The one message that `data` is; layers (compound, compression, checksum) belong to `packet` and `stream`.

    Raises:
        RemoteProtocolError: it is none, or a field is not what it must be.
    """
    raise NotImplementedError
