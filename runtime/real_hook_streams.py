"""The agent's ends of what connects it to one call of a node hook and to the process that holds it, `real_hook_runner`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Self

import structlog
import trio

log = structlog.get_logger(__name__)


class HookStreams:
    """A socket to the runner, and the hook's three streams. Attributes `stdout` and `stderr` are read by the caller.

    `theirs`: descriptors for the runner, in its order; they are closed by `hand_over`.
    """

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            self._runner, runner = map(undo.enter_context, socket.socketpair())
            ends: list[int] = []
            for _ in range(3):
                for end in os.pipe2(os.O_CLOEXEC):
                    undo.callback(os.close, end)
                    ends.append(end)
            undo.pop_all()
        hook_in, stdin, stdout, hook_out, stderr, hook_err = ends
        self.theirs = [runner.detach(), hook_in, hook_out, hook_err]
        self._stdin = trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)
        self.stderr = trio.lowlevel.FdStream(stderr)
        self._answers = trio.SocketStream(trio.socket.from_stdlib_socket(self._runner))
        self._answer = b""
        return self

    def __exit__(self, *_: object) -> None:
        self.hand_over()
        self._answers.socket.close()
        for stream in (self._stdin, self.stdout, self.stderr):
            stream.close()

    def hand_over(self) -> None:
        """The runner has its descriptors, or never will: close ours of them. Idempotent: yes."""
        while self.theirs:
            os.close(self.theirs.pop())

    async def feed(self, document: bytes) -> None:
        """Write the hook's standard input to its end."""
        with contextlib.suppress(trio.BrokenResourceError):  # a hook need not read
            await self._stdin.send_all(document)
        await self._stdin.aclose()

    async def exit_code(self) -> int | None:
        """What the runner tells at its end; None when it was killed. May be called again."""
        with contextlib.suppress(trio.BrokenResourceError):
            while chunk := await self._answers.receive_some(4096):
                self._answer += chunk
        try:
            answer = json.loads(self._answer)
        except ValueError:
            return None
        if "error" in answer:
            log.error("the runner of a node hook failed", reason=answer["error"])
            return None
        return int(answer["exit"])

    def let_go(self) -> None:
        """Tell the runner that it is enough: it ends what is left of the hook, and itself. Idempotent: yes."""
        with contextlib.suppress(OSError):
            self._answers.socket.shutdown(socket.SHUT_WR)


class Kept:
    """A bounded part of what comes over a stream: its beginning, or its end."""

    def __init__(self, n_bytes_max: int, *, end: bool = False) -> None:
        self.data = bytearray()
        self.n_dropped = 0
        self._n_bytes_max = n_bytes_max
        self._end = end

    async def take(self, stream: trio.abc.ReceiveStream) -> None:
        """Read to the end."""
        while chunk := await stream.receive_some(65536):
            self.data += chunk
            surplus = max(0, len(self.data) - self._n_bytes_max)
            self.n_dropped += surplus
            if self._end:
                del self.data[:surplus]
            else:
                del self.data[self._n_bytes_max :]


__all__ = ["HookStreams", "Kept"]
