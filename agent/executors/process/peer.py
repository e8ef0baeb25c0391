"""A shim's side of a conversation: JSON lines over a stream socket."""

from __future__ import annotations

import contextlib
import json
import select
import socket

# 16 MiB: an order holds a task's spec twice; requests after it are a hundred bytes.
LINE_BYTES_MAX = 16 << 20


def request_of(line: bytes) -> dict[str, object]:
    """What a line asks for.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        request = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(request, dict):
        raise ValueError("not an object")
    return request


class Peer:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""

    def fileno(self) -> int:
        """For poll."""
        return self.sock.fileno()

    def lines(self) -> list[bytes] | None:
        """Requests that have arrived whole, unread; None when the connection has ended."""
        if not self._receive():
            return None
        *whole, self._received = self._received.split(b"\n")
        return whole

    def next(self) -> dict[str, object]:
        """The next request, waiting for it; what has come behind it stays for `lines`.

        Raises:
            EOFError: the connection ended.
            ValueError: what came is no request.
        """
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLIN)
        while b"\n" not in self._received:
            waiting.poll()
            if not self._receive():
                raise EOFError
        request, _, self._received = self._received.partition(b"\n")
        return request_of(request)

    def _receive(self) -> bool:
        """Take in what has arrived; False when the connection has ended."""
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        return bool(data) and len(self._received) <= LINE_BYTES_MAX

    def answer(self, **fields: object) -> None:
        """Send an answer; a peer that is gone or does not read loses it."""
        with contextlib.suppress(OSError):
            self.sock.send(json.dumps(fields).encode() + b"\n", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


__all__ = ["Peer", "request_of"]
