"""Messages over a byte stream: u32 big-endian length, then msgpack.

One task may send while another receives. `send` must not be called by two tasks at once, and a cancelled send leaves the
stream unusable: give each stream one writer.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
import trio

from beeyard.core.errors import LocalProtocolError, RemoteProtocolError
from beeyard.core.wire import FRAME_BYTES_MAX, encoder

M = TypeVar("M")

# 64 KiB: large enough that a complete set of assignments takes few system calls, small against memory per session.
RECEIVE_BYTES = 65536


class InstantStream(trio.abc.Stream):
    """A stream that can be written to without waiting."""

    @abstractmethod
    def send_nowait(self, data: bytes | bytearray | memoryview) -> bool:
        """Take all of it and send what goes now; whether that was all. Raises trio.BrokenResourceError."""

    @abstractmethod
    async def flush(self) -> None:
        """Return when everything that was taken is sent. Raises trio.BrokenResourceError."""


class FrameStream(Generic[M]):
    """Sends any message and receives those that `decoder` knows."""

    def __init__(
        self, stream: trio.abc.Stream, decoder: msgspec.msgpack.Decoder[M], frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._stream = stream
        self._decoder = decoder
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._unsent = bytearray()

    async def send(self, messages: Iterable[object]) -> None:
        """Send messages in order, as one write.

        Raises:
            LocalProtocolError: one is larger than the other side accepts; nothing was sent.
            trio.BrokenResourceError: the connection is gone.
        """
        if out := self._packed(messages):
            await self._stream.send_all(out)

    def send_nowait(self, messages: Iterable[object]) -> bool:
        """Take messages, as one write, and send what goes without waiting; when that was not all, `flush` sends the rest.

        Raises:
            LocalProtocolError: one is larger than the other side accepts; nothing was sent.
            trio.BrokenResourceError: the connection is gone.
        """
        out = self._packed(messages)
        if isinstance(self._stream, InstantStream):
            return self._stream.send_nowait(out)
        self._unsent += out
        return not out

    async def flush(self) -> None:
        """Return when everything that was taken is sent.

        Raises:
            trio.BrokenResourceError: the connection is gone.
        """
        if isinstance(self._stream, InstantStream):
            await self._stream.flush()
            return
        out, self._unsent = self._unsent, bytearray()
        await self._stream.send_all(out)

    def _packed(self, messages: Iterable[object]) -> bytearray:
        out = bytearray()
        for message in messages:
            start = len(out)
            out += b"\0\0\0\0"
            encoder.encode_into(message, out, start + 4)
            size = len(out) - start - 4
            if size > self._frame_bytes_max:
                raise LocalProtocolError(f"a {type(message).__name__} of {size} bytes is over the frame limit")
            struct.pack_into(">I", out, start, size)
        return out

    async def receive(self) -> M | None:
        """The next message, or None when the other side has closed between two messages.

        Cancellation: nothing is lost, a later call continues.

        Raises:
            RemoteProtocolError: garbage, an oversized frame, or an end in the middle of one.
            trio.BrokenResourceError: the connection is gone.
        """
        while True:
            if len(self._buffer) >= 4:
                size = int.from_bytes(self._buffer[:4], "big")
                if size > self._frame_bytes_max:
                    raise RemoteProtocolError(f"a frame of {size} bytes is over the limit of {self._frame_bytes_max}")
                if len(self._buffer) >= 4 + size:
                    # A copy: a decoded Raw may be a view on its input, and a live view forbids shrinking the buffer.
                    frame = bytes(memoryview(self._buffer)[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return self._decode(frame)
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                if self._buffer:
                    raise RemoteProtocolError("the connection ended in the middle of a message")
                return None
            self._buffer += data

    def _decode(self, frame: bytes) -> M:
        try:
            return self._decoder.decode(frame)
        except (msgspec.MsgspecError, RecursionError) as error:  # the latter: nested too deeply, in what is skipped too
            raise RemoteProtocolError(f"not a message of this protocol: {error}") from error
