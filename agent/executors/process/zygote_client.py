"""The agent's side of the zygote: starts it when it is needed, and again when it was killed."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Self

import trio

import beeyard
from beeyard.agent.executors.process import helper
from beeyard.agent.executors.process.order import SHIM_TITLE, ZYGOTE_TITLE, Places, reason_of
from beeyard.agent.turn import Turn
from beeyard.core.errors import ExecutorError

# Made of native/ when Beeyard is built.
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "beeyard-shim")
SOCKET_FD = 3  # where a zygote has its agent
# Room for the command lines that shims and the helper show: a title, a state directory, a task id.
_TITLE_ROOM = "-" * 512
LINE_BYTES_MAX = 16 << 20


def zygote_command(state_dir: str) -> list[str]:
    """The command line of a zygote, whose program is `PROGRAM`; in it that of its helper."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(beeyard.__file__)))
    code = f"import sys; sys.path.insert(0, {root!r}); from {helper.__name__} import main; main()"
    python = [sys.executable, "-I", "-S", "-B", "-X", "no_debug_ranges", "-c", code, state_dir, _TITLE_ROOM]
    return [ZYGOTE_TITLE, state_dir, *python]


class LineStream:
    """JSON lines over a stream socket, which it takes over. A word and its answer cost half of what trio's sockets take."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._received = b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. Idempotent: yes."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def end(self) -> None:
        """Say that nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    async def send(self, **fields: object) -> None:
        """Raises OSError when the other side is gone."""
        await self.send_bytes(json.dumps(fields).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        """As `send`. A checkpoint only when the socket is full: an answer is waited for in any case."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def receive(self, *, soon: bool = False) -> dict[str, object] | None:
        """The next line; None when the other side is gone. `soon`: it is probably there, so it is looked for first."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while b"\n" not in self._received:
            if not soon:
                await trio.lowlevel.wait_readable(self._socket)
            soon = False
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                return None
            if not data or len(self._received) > LINE_BYTES_MAX:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, object] = json.loads(line)
        return answer


class Zygote:
    """The process that forks for one executor."""

    def __init__(self, places: Places, launcher: str = "") -> None:
        """`launcher`: path of a socket on which a zygote answers, instead of a child of this process."""
        self._places = places
        self._launcher = launcher
        self._socket: socket.socket | None = None  # non-blocking
        self._lock = Turn()
        self._has_directories = False
        self.pid = 0

    def make_directories(self) -> None:
        """What shims need. Not before the first one is wanted: an agent that no cluster lets in leaves nothing behind.

        Raises:
            ExecutorError: names the one that cannot be made.
        """
        if self._has_directories:
            return
        for directory in (f"{self._places.state_dir}/shims", f"{self._places.state_dir}/tasks", self._places.log_dir):
            try:
                os.makedirs(directory, mode=0o755, exist_ok=True)
            except OSError as error:
                raise ExecutorError("prepare", reason_of(error)) from error
        self._has_directories = True

    def _start(self) -> socket.socket:
        """Spawn it, or have it started; it serves what is sent before it is up."""
        if self._launcher:
            return self._connect()
        ours, theirs = _pair(socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.pid = os.posix_spawn(
                    PROGRAM,
                    zygote_command(self._places.state_dir),
                    {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LANG": "C.UTF-8"},
                    file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), SOCKET_FD)],
                    setsid=True,
                )
            except OSError as error:
                ours.close()
                raise ExecutorError("zygote", f"cannot start {PROGRAM}: {reason_of(error)}") from error
        ours.setblocking(False)
        return ours

    def _connect(self) -> socket.socket:
        """A zygote that the service manager starts for whoever connects."""
        cannot = f"cannot connect to the launcher {self._launcher}"
        try:
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise ExecutorError("zygote", f"{cannot}: {reason_of(error)}") from error
        try:
            ours.connect(self._launcher)
        except OSError as error:
            ours.close()
            raise ExecutorError("zygote", f"{cannot}: {reason_of(error)}") from error
        ours.setblocking(False)
        return ours

    def _reap(self) -> None:
        """Forget a zygote that is gone."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0

    async def _send(self, data: bytes, fds: Sequence[int]) -> None:
        """A checkpoint only when the zygote is behind: an answer is waited for in any case."""
        async with self._lock:
            for _ in range(2):  # a zygote that was killed is found out here
                if self._socket is None:
                    self._socket = self._start()
                try:
                    await _send_fds(self._socket, data, fds)
                    return
                except (BrokenPipeError, ConnectionResetError):
                    self._reap()
        raise ExecutorError("zygote", "its process ends as soon as it is started")

    async def open(self, request: bytes, *fds: int) -> LineStream:
        """Have a child forked for a request; gives the connection to it, which the caller closes."""
        ours, theirs = _pair(socket.SOCK_STREAM)
        try:
            with theirs:
                await self._send(request, [theirs.fileno(), *fds])
        except BaseException:
            ours.close()
            raise
        return LineStream(ours)

    async def open_shim(self, task_id: str) -> LineStream:
        """Have a shim started for a task; gives the connection on which it waits for its order, which the caller closes."""
        return await self.open(f"{SHIM_TITLE}\0{self._places.state_dir}\0{task_id}\0".encode())

    async def ask(self, op: str, *fds: int, **fields: object) -> dict[str, object]:
        """One request with one answer.

        Raises:
            ExecutorError: the child failed, and says how.
        """
        for _ in range(2):  # once more when the zygote was killed with the request in its hands
            async with await self.open(json.dumps({"op": op, **fields}).encode(), *fds) as lines:
                answer = await lines.receive()
            if answer is not None:
                if "error" in answer:
                    raise ExecutorError(op, str(answer["error"]))
                return answer
        raise ExecutorError(
            op, "the process that was asked ended without an answer; is memory or the number of processes at its limit?"
        )

    async def hand(self, op: str, *fds: int, **fields: object) -> None:
        """One request whose child answers on the first of the descriptors, which are the caller's.

        Raises:
            ExecutorError: there is no zygote.
        """
        await self._send(json.dumps({"op": op, **fields}).encode(), fds)

    async def aclose(self) -> None:
        """End it; tasks and their shims go on."""
        async with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self.pid:
                fd = os.pidfd_open(self.pid)
                try:
                    await trio.lowlevel.wait_readable(fd)
                finally:
                    os.close(fd)
                self._reap()


def _pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    try:
        return socket.socketpair(socket.AF_UNIX, kind)
    except OSError as error:
        raise ExecutorError("zygote", f"cannot speak with it: {reason_of(error)}") from error


async def _send_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    while True:
        try:
            socket.send_fds(sock, [data], list(fds))
            return
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


__all__ = ["PROGRAM", "LineStream", "Zygote", "zygote_command"]
