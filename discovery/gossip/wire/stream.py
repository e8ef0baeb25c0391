"""One exchange over TCP: a message each way, compressed and encrypted as a whole. Bytes in, messages out, no I/O.

A stream is [encrypted frame: type, length, blob] of [compressed message] of one message. Without encryption nothing says
how long it is: the msgpack in it does. Source: memberlist 0.2.2 net.go (readStream, rawSendMsgStream, readUserMsg).
"""

from __future__ import annotations

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Message, User
from beeyard.discovery.gossip.wire.codec import ACK, COMPRESS, ENCRYPT, ERROR, PING, PUSH_PULL, USER, decode, encode
from beeyard.discovery.gossip.wire.dialect import Fields, number, pack
from beeyard.discovery.gossip.wire.keyring import SEAL_OVERHEAD, Keyring
from beeyard.discovery.gossip.wire.layers import compressed, inflate
from beeyard.discovery.gossip.wire.limits import DEFAULT_LIMITS, StreamLimits
from beeyard.discovery.gossip.wire.pieces import Pieces
from beeyard.discovery.gossip.wire.push_pull import PushPullReader

FRAME_HEADER_BYTES = 5  # the type and the length of the blob; both are authenticated with it
SMALL_BYTES_MAX = 1 << 12  # of a ping, an ack or an error on a stream

# Of a compressed message and a user message. Those of small ones are looked at when they are whole.
KNOWN_FIELDS = frozenset([b"Algo", b"Buf", b"UserMsgLen"])

# memberlist's own sentences: people search for them, and peers log what we answer.
PLAIN_REFUSED = "encryption is configured but remote state is not encrypted"
ENCRYPTED_REFUSED = "remote state is encrypted and encryption is not configured"


class StreamReader:
    """Reads the one message that a peer sends on a connection: `Ping`, `Ack`, `User`, `PushPull` or `StreamError`."""

    def __init__(
        self, keyring: Keyring | None = None, *, verify_incoming: bool = True, limits: StreamLimits = DEFAULT_LIMITS
    ) -> None:
        """See `PacketCodec` for what the arguments mean."""
        self._keyring = keyring
        self._verify_incoming = verify_incoming
        self._limits = limits
        self._frame: bytearray | None = None  # of an encrypted stream, from its first byte
        self._plain: _PlainReader | None = None
        self._whole = False

    def feed(self, data: bytes) -> Message | None:
        """Take in what came; the message when it is whole, else None. What follows the message is ignored.

        Raises:
            RemoteProtocolError: it is none, too large, or (not) encrypted against our settings. Its text is what the
                peer is told in a `StreamError`; the connection is of no use then.
        """
        if not data or self._whole:
            return None
        if self._frame is None and self._plain is None:
            self._begin(data[0])
        message = self._feed_frame(data) if self._frame is not None else self._feed_plain(data)
        self._whole = message is not None
        return message

    def end(self) -> None:
        """The peer closed its side.

        Raises:
            RemoteProtocolError: in the middle of a message. A peer that sent nothing at all is fine: a port scan.
        """
        if not self._whole and (self._frame is not None or self._plain is not None):
            raise RemoteProtocolError("the stream ends in the middle of a message")

    def _begin(self, kind: int) -> None:
        if kind == ENCRYPT:
            if not self._keyring:
                raise RemoteProtocolError(ENCRYPTED_REFUSED)
            self._frame = bytearray()
            return
        if self._keyring and self._verify_incoming:
            raise RemoteProtocolError(PLAIN_REFUSED)
        self._plain = _PlainReader(self._limits)

    def _feed_plain(self, data: bytes) -> Message | None:
        assert self._plain is not None
        return self._plain.feed(data)

    def _feed_frame(self, data: bytes) -> Message | None:
        frame = self._frame
        assert frame is not None
        assert self._keyring is not None
        frame += data
        if len(frame) < FRAME_HEADER_BYTES:
            return None
        length = int.from_bytes(frame[1:FRAME_HEADER_BYTES], "big")
        if length > self._limits.frame_bytes_max:
            raise RemoteProtocolError(f"a frame has {length} bytes: must have at most {self._limits.frame_bytes_max}")
        if len(frame) < FRAME_HEADER_BYTES + length:
            return None
        blob = bytes(frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + length])
        plain = self._keyring.open(blob, associated=bytes(frame[:FRAME_HEADER_BYTES]))
        frame.clear()
        return _whole(_PlainReader(self._limits).feed(plain))


class _PlainReader:
    """Reads a message that is not encrypted, and may be compressed."""

    def __init__(self, limits: StreamLimits, *, may_be_compressed: bool = True) -> None:
        self._limits = limits
        self._may_be_compressed = may_be_compressed
        self._kind: int | None = None
        self._push_pull: PushPullReader | None = None
        self._pieces: Pieces | None = None
        self._small = bytearray()
        self._fields: Fields | None = None
        self._user = bytearray()
        self._user_bytes = 0  # still to come

    def feed(self, data: bytes) -> Message | None:
        """The message when it is whole, else None.

        Raises:
            RemoteProtocolError: it is none, or too large.
        """
        if self._kind is None:
            if not data:
                return None
            self._begin(data[0])
            data = data[1:]
        if self._push_pull is not None:
            return self._push_pull.feed(data)
        assert self._pieces is not None
        if self._kind in (PING, ACK, ERROR):
            self._small += data[:SMALL_BYTES_MAX]
        return self._pieces.feed(data, self._go_on)

    def _begin(self, kind: int) -> None:
        self._kind = kind
        if kind == PUSH_PULL:
            self._push_pull = PushPullReader(self._limits)
            return
        if kind == COMPRESS and self._may_be_compressed:
            most = self._limits.frame_bytes_max
        elif kind == USER:
            most = self._limits.user_bytes_max + SMALL_BYTES_MAX
        elif kind in (PING, ACK, ERROR):
            most = SMALL_BYTES_MAX
        else:
            raise RemoteProtocolError(f"message type {kind} is not known on a stream")
        self._pieces = Pieces(most)

    def _go_on(self) -> Message | None:
        assert self._pieces is not None
        if self._fields is None:
            self._fields = self._read_fields(self._pieces)
        if self._kind == COMPRESS:
            plain = inflate(self._fields, self._limits.plain_bytes_max)
            return _whole(_PlainReader(self._limits, may_be_compressed=False).feed(plain))
        if self._kind == USER:
            piece = self._pieces.read_bytes(self._user_bytes)
            self._user += piece
            self._user_bytes -= len(piece)
            return None if self._user_bytes else User(data=bytes(self._user))
        assert self._kind is not None
        return decode(bytes([self._kind]) + self._small)

    def _read_fields(self, pieces: Pieces) -> Fields:
        fields = pieces.read_fields(KNOWN_FIELDS)
        if self._kind == USER:
            self._user_bytes = number(fields, b"UserMsgLen", self._limits.user_bytes_max)
        return fields


def _whole(message: Message | None) -> Message:
    if message is None:
        raise RemoteProtocolError("a message on a stream ends in the middle")
    return message


def _encode_user(user: User) -> bytes:
    """A packet ends where its message does; a stream has to say so."""
    return b"\x08" + pack({"UserMsgLen": len(user.data)}) + user.data


def frame(
    message: Message, keyring: Keyring | None = None, *, verify_outgoing: bool = True, compress: bool = True
) -> bytes:
    """All bytes to send for `message` on a stream.

    Args:
        keyring: None or empty: not encrypted.
        verify_outgoing: False: not encrypted although there are keys.
        compress: False is legal towards everybody, and larger.
    """
    data = _encode_user(message) if isinstance(message, User) else encode(message)
    if compress:
        data = compressed(data)
    if not keyring or not verify_outgoing:
        return data
    # The blob is authenticated with its own length, which is known before.
    header = b"\x0a" + (len(data) + SEAL_OVERHEAD).to_bytes(4, "big")
    return header + keyring.seal(data, associated=header)
