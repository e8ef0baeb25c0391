"""Route netlink of a real Linux host: one socket of our own per namespace, spoken to from the trio thread.

Theory of operation
-------------------
The kernel answers a netlink request while it is being sent, so a request is one `send` and one or two `recv`s that find
their data waiting; nothing is handed to a thread on that way (a hand-over costs 160 µs, a request 15–200). What a request
can wait for is the lock that serialises all network changes of the host: some 16 ms for each link that somebody deletes or
takes down, which is why nobody does: see `runtime.silence`.

A socket belongs for ever to the namespace in which it was opened. To open one in a task's namespace the trio thread enters
it for some 0.1 ms, in which nothing is awaited and no KeyboardInterrupt is raised; could it not return, the process would
end at once. (A helper thread for this costs 0.1 to 0.4 ms a task for waking two threads, a fifth of an attachment.)

A socket also keeps its namespace alive: those of tasks live only as long as a `netns_fd` context or a single request, so
that a namespace that is dropped really goes, with its links.

Closing a packet socket waits 12 ms for an RCU grace period; `_Closer` does it elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import queue
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

import trio

from beeyard.runtime.real_netlink_socket import NetlinkSocket
from beeyard.runtime.real_questions import Questions

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
# 4 threads close 330 packet sockets a second, more than one daemon can attach links.
_N_CLOSERS = 4


class RealNetlink:
    """The `Netlink` port of this host. Safe to use from any number of tasks of one trio loop."""

    def __init__(self) -> None:
        self._own: NetlinkSocket | None = None
        self._entered: dict[str, list[_Session]] = {}  # open `netns_fd` contexts, by namespace
        self._closer = _Closer()
        self._questions = Questions(self._closer.close)

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        """See `Netlink.request`."""
        await trio.lowlevel.checkpoint()
        if not netns:
            if self._own is None:
                self._own = NetlinkSocket()
            return self._own.request(message)
        if netns in self._entered:
            return self._entered[netns][-1].channel.request(message)
        async with self.netns_fd(netns):
            replies = self._entered[netns][-1].channel.request(message)
        return replies

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        """See `Netlink.send_frame`."""
        await trio.lowlevel.checkpoint()
        if not netns:
            packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            try:
                packets.sendto(frame, (interface, 0))
            finally:
                self._closer.close(packets)
            return
        async with contextlib.AsyncExitStack() as stack:
            session = next((s for s in self._entered.get(netns, ()) if s.packets is not None), None)
            if session is None:
                await stack.enter_async_context(self.netns_fd(netns, frames=True))
                session = self._entered[netns][-1]
            assert session.packets is not None
            session.packets.sendto(frame, (interface, 0))

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int = 1,
        groups: Sequence[bytes] = (),
    ) -> bytes | None:
        """See `Netlink.ask`."""
        await trio.lowlevel.checkpoint()
        return await self._questions.ask(interface, frames, is_answer, wait_s=wait_s, times=times, groups=groups)

    @contextlib.asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        """See `Netlink.netns_fd`."""
        await trio.lowlevel.checkpoint()
        session = _open_session(netns, settings, frames)
        self._entered.setdefault(netns, []).append(session)
        try:
            yield session.fd
        finally:
            self._entered[netns].remove(session)
            if not self._entered[netns]:
                del self._entered[netns]
            session.close(self._closer)

    def close(self) -> None:
        """Give everything back. Contexts must have ended."""
        assert not self._entered, "a namespace is still in use"
        assert not self._questions.n_ears, "somebody still waits for an answer"
        if self._own is not None:
            self._own.close()
            self._own = None
        self._closer.stop()


@dataclasses.dataclass(eq=False)
class _Session:
    """What is open in a task's namespace."""

    fd: int
    channel: NetlinkSocket
    packets: socket.socket | None

    def close(self, closer: _Closer) -> None:
        os.close(self.fd)
        self.channel.close()
        if self.packets is not None:
            closer.close(self.packets)


@trio.lowlevel.enable_ki_protection
def _open_session(netns: str, settings: Mapping[str, str], frames: bool) -> _Session:
    """Open what a session needs inside the namespace, and come back."""
    with contextlib.ExitStack() as undo:
        try:
            fd = os.open(netns or "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except ProcessLookupError as error:  # /proc/PID of a process that is just going away
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), netns) from error
        undo.callback(os.close, fd)
        with _inside(fd, netns):
            for name, value in settings.items():
                _write_setting(name, value)
            channel = NetlinkSocket()
            undo.callback(channel.close)
            packets = None
            if frames:
                kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                # Protocol 0: it sends and never receives.
                packets = socket.socket(socket.AF_PACKET, kind, 0)
        undo.pop_all()
        return _Session(fd, channel, packets)


@contextlib.contextmanager
def _inside(fd: int, netns: str) -> Iterator[None]:
    """This thread is in the namespace for the length of the context, in which nothing may await."""
    # thread-self, not self: RealNetlink need not live in the main thread.
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _set_namespace(fd)
        except OSError as error:
            if error.errno == errno.EINVAL:  # an ordinary file: the namespace that was mounted there is gone
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), netns) from error
            raise
        try:
            yield
        finally:
            _return_to(own)
    finally:
        os.close(own)


def _return_to(own: int) -> None:
    try:
        _set_namespace(own)
    except OSError:
        # Safety: a daemon in a task's namespace would do everything else there too. Tasks outlive it, and it starts anew.
        os.abort()


def _set_namespace(fd: int) -> None:
    # Python 3.12 has os.setns.
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write_setting(name: str, value: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # this kernel has no such thing, so it cannot do any harm
        setting = os.open(f"/proc/sys/net/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(setting, value.encode())
        finally:
            os.close(setting)


class _Closer:
    """Closes sockets whose closing waits for the kernel, in threads that are started when needed."""

    def __init__(self) -> None:
        self._sockets: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def close(self, opened: socket.socket) -> None:
        """Close it soon."""
        self._sockets.put(opened)
        if len(self._threads) < _N_CLOSERS and self._sockets.qsize() >= len(self._threads):
            thread = threading.Thread(target=self._loop, name="packet socket closer", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Return when all are closed."""
        for _ in self._threads:
            self._sockets.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _loop(self) -> None:
        while (opened := self._sockets.get()) is not None:
            opened.close()
