"""An encrypted stream over a socket, from the end of its handshake on.

trio's own `SSLStream` makes the handshake, where it matters that every corner is right. For what follows it costs some 100 µs
a message, most of it in locks and checkpoints for cases that TLS 1.3 does not have: nothing but new keys, which OpenSSL
handles by itself, ever makes a writer wait for a reader. Here a message is one call of OpenSSL and one system call.

Theory of operation
-------------------
What is to be sent goes through OpenSSL at once and then waits in `_unsent`, in order, until the socket takes it. Pushing it
is synchronous, so a reader may do it too (an answer of TLS itself), also while a writer waits; and a writer that is cancelled
leaves a stream that still works, though its message will arrive some day. Who has a deadline for each message sends it with
`send_nowait`, which nearly always is all there is to do, and sets the deadline for `flush` alone.
"""

from __future__ import annotations

import contextlib
import os
import ssl

import trio

from beeyard.runtime.frames import InstantStream

# As much as a frame stream asks for at a time, and four of TLS's largest records.
RECEIVE_BYTES = 65536


class TlsStream(InstantStream):
    """An encrypted stream. An end of the connection without TLS's own goodbye counts as an end.

    That is safe because every protocol on it carries the length of its messages, and a peer that crashed cannot say goodbye.
    """

    def __init__(
        self, transport: trio.SocketStream, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self.tls = tls
        self._transport = transport
        self._incoming = incoming
        self._outgoing = outgoing
        self._unsent = b""
        self._over = False  # the other side has said all: nothing more may ever come

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send.

        Raises:
            trio.BrokenResourceError: the connection is gone; `__cause__` tells why.
        """
        await trio.lowlevel.checkpoint()
        if not self.send_nowait(data):
            await self.flush()

    def send_nowait(self, data: bytes | bytearray | memoryview) -> bool:
        """Take all of it and send what the socket takes now; when that was not all, `flush` sends the rest.

        Raises:
            trio.BrokenResourceError: as `send_all`.
        """
        self._fileno()
        if not data:
            return True
        try:
            self.tls.write(data)
            return self._push()
        except ssl.SSLError as error:
            raise self._broken(str(error)) from error
        except OSError as error:
            raise self._broken(f"socket connection broken: {error}") from error

    async def flush(self) -> None:
        """Return when everything that was taken is sent.

        Raises:
            trio.BrokenResourceError: as `send_all`.
        """
        try:
            while not self._push():
                await trio.lowlevel.wait_writable(self._fileno())
        except OSError as error:
            raise self._broken(f"socket connection broken: {error}") from error

    async def wait_send_all_might_not_block(self) -> None:
        """As trio's."""
        await trio.lowlevel.wait_writable(self._fileno())

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive; b"" at the end.

        Cancellation: nothing is lost.

        Raises:
            trio.BrokenResourceError: the connection is gone, or the other side has said why it ends it: `__cause__`.
        """
        self._fileno()
        waited = False
        while True:
            try:
                if not waited and not self._over and not self._incoming.pending and not self.tls.pending():
                    await self._fill()  # Nothing can be read: asking OpenSSL costs more than knowing.
                    waited = True
                data = self.tls.read(max_bytes or RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                await self._fill()
                waited = True
            except (ssl.SSLEOFError, ssl.SSLSyscallError):
                data = b""
                break
            except ssl.SSLError as error:
                self._answer()
                raise self._broken(str(error)) from error
            else:
                break
        self._over = not data
        self._answer()
        if not waited:
            await trio.lowlevel.checkpoint()
        return data

    async def aclose(self) -> None:
        """Say goodbye, without waiting for the other side's, and close the connection. Idempotent: yes."""
        # It "fails" until the other side says goodbye too, and when the connection is broken.
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        self._answer()
        await self._transport.aclose()

    def _push(self) -> bool:
        """Give the socket what it takes now; whether that was all. Raises OSError when the connection is gone."""
        unsent = self._unsent + self._outgoing.read()
        view, sent = memoryview(unsent), 0
        try:
            while sent < len(unsent):
                sent += os.write(self._fileno(), view[sent:])
        except BlockingIOError:
            return False
        finally:
            self._unsent = unsent[sent:]
        return True

    def _answer(self) -> None:
        """Send what TLS itself has to say, such as why it gives up. That the connection is gone is told by its next use."""
        if self._outgoing.pending:
            with contextlib.suppress(OSError, trio.ClosedResourceError):
                self._push()

    async def _fill(self) -> None:
        """Wait for bytes of the other side, or its end, and give them to OpenSSL."""
        while True:
            await trio.lowlevel.wait_readable(self._fileno())
            try:
                data = os.read(self._fileno(), RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken(f"socket connection broken: {error}") from error
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
            return

    def _broken(self, reason: str) -> trio.BrokenResourceError:
        """What to raise while an error is being handled; overridden by who can say it better."""
        return trio.BrokenResourceError(reason)

    def _fileno(self) -> int:
        """The socket, asked for each time: after closing, its number may be another connection's."""
        number = self._transport.socket.fileno()
        if number < 0:
            raise trio.ClosedResourceError("this stream was closed")
        return number


__all__ = ["TlsStream"]
