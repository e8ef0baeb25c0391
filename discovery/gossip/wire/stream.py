"""One exchange over TCP: a message each way, compressed and encrypted as a whole. Bytes in, messages out, no I/O."""

from __future__ import annotations

import msgspec

from beeyard.discovery.gossip.message import Message
from beeyard.discovery.gossip.wire.keyring import Keyring


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one message of a stream may cost. memberlist's own limits are 20 MiB, 40 MiB, 1 Mi nodes, 20 MiB."""

    frame_bytes_max: int = 4 << 20  # as sent: encrypted or compressed
    plain_bytes_max: int = 8 << 20  # decompressed
    nodes_max: int = 1 << 16
    user_bytes_max: int = 4 << 20  # of a user message, and of the user state in a push/pull


class StreamReader:
    """Reads the one message that a peer sends on a connection: `Ping`, `Ack`, `User`, `PushPull` or `StreamError`."""

    def __init__(
        self, keyring: Keyring | None = None, *, verify_incoming: bool = True, limits: StreamLimits = StreamLimits()
    ) -> None:
        """See `PacketCodec` for what the arguments mean."""

    def feed(self, data: bytes) -> Message | None:
        """Take in what came; the message when it is whole, else None. What follows the message is ignored.

        Raises:
            RemoteProtocolError: it is none, too large, or (not) encrypted against our settings. Its text is what the
                peer is told in a `StreamError`; the connection is of no use then.
        """
        raise NotImplementedError

    def end(self) -> None:
        """The peer closed its side.

        Raises:
            RemoteProtocolError: in the middle of a message. A peer that sent nothing at all is fine: a port scan.
        """
        raise NotImplementedError


def frame(
    message: Message, keyring: Keyring | None = None, *, verify_outgoing: bool = True, compress: bool = True
) -> bytes:
    """All bytes to send for `message` on a stream.

    Args:
        keyring: None or empty: not encrypted.
        verify_outgoing: False: not encrypted although there are keys.
        compress: False is legal towards everybody, and larger.
    """
    raise NotImplementedError
