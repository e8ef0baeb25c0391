"""Connections to a task's shim."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import trio

from beeyard.agent.executors.process.order import reason_of
from beeyard.agent.executors.process.zygote_client import LineStream
from beeyard.agent.turn import Turn
from beeyard.core.errors import ExecutorError

# 5 s: preparing takes milliseconds; what is being undone may have to wait for a busy disk.
UNDO_S = 5.0


class ShimGone(Exception):
    """Nobody listens for this task."""


class NoAnswer(ExecutorError):
    """A shim is there and does not answer."""


class Line:
    """A connection that is kept, for one conversation at a time."""

    def __init__(self) -> None:
        self.lines: LineStream | None = None
        self.turn = Turn()

    @property
    def is_idle(self) -> bool:
        """Whether there is a connection, and nobody speaks on it."""
        return self.lines is not None and not self.turn.locked()

    def take(self) -> LineStream | None:
        """Whoever converses has it, and puts it back when the answer has come."""
        lines, self.lines = self.lines, None
        return lines

    def close(self) -> None:
        """Hang up. Idempotent: yes."""
        lines = self.take()
        if lines is not None:
            lines.close()


def connect(shim_dir: str) -> LineStream:
    """A new connection to the shim whose directory this is.

    Raises:
        ShimGone: nobody listens there.
        ExecutorError: it has no room for one more, or this process may open no more files.
    """
    try:
        fd = os.open(shim_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return LineStream(_connected(f"/proc/self/fd/{fd}/sock"))
        finally:
            os.close(fd)
    except (FileNotFoundError, ConnectionRefusedError):
        raise ShimGone from None
    except BlockingIOError:
        raise ExecutorError("connect", "its shim has no room for one more connection") from None
    except OSError as error:
        raise ExecutorError("connect", f"cannot speak with its shim: {reason_of(error)}") from error


def _connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)  # a local socket is connected at once, or its shim has no room for one more
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


async def make_shim(lines: LineStream, order: bytes) -> tuple[dict[str, Any] | None, LineStream | None]:
    """Give an order to a shim that has been started. Gives its answer, and the connection if it holds the task now.

    All or nothing under cancellation: a shim whose connection ends before "keep" undoes what it did.
    """
    kept = False
    try:
        await lines.send_bytes(order)
        answer = await lines.receive()
        if answer is not None and "phase" in answer:
            with trio.CancelScope(shield=True):  # Safety: a few bytes into an empty socket buffer
                await lines.send(op="keep")
            kept = True
        return answer, lines if kept else None
    except (ConnectionResetError, BrokenPipeError):
        return None, None
    except trio.Cancelled:
        # Safety: bounded, and needed so that nothing is left when the caller goes on.
        with trio.move_on_after(UNDO_S, shield=True):
            with contextlib.suppress(OSError):
                lines.end()
                while await lines.receive() is not None:
                    pass
        raise
    finally:
        if not kept:
            lines.close()


__all__ = ["UNDO_S", "Line", "NoAnswer", "ShimGone", "connect", "make_shim"]
