"""Route netlink of a real Linux host: one socket of our own per namespace, spoken to from the trio thread.

Theory of operation
-------------------
The kernel answers a netlink request while it is being sent, so a request is one `send` and one or two `recv`s that find
their data waiting; nothing is handed to a thread on that way (a hand-over costs 160 µs, a request 15–200). What a request
can wait for is the lock that serialises all network changes of the host: some 16 ms for each link that somebody deletes or
takes down, which is why `runtime.real_silence` exists.

A socket belongs for ever to the namespace in which it was opened. One helper thread enters namespaces and opens sockets
in them, because a thread that could not return from one must not be the one that runs the daemon. A socket also keeps its
namespace alive: those of tasks live only as long as a `netns_fd` context or a single request, so that a namespace that is
dropped really goes, with its links.

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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import outcome
import trio

from beeyard.runtime.real_netlink_socket import NetlinkSocket

_thread = threading.local()
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
# 4 threads close 330 packet sockets a second, more than one daemon can attach links.
_N_CLOSERS = 4


class RealNetlink:
    """The `Netlink` port of this host. Safe to use from any number of tasks of one trio loop."""

    def __init__(self) -> None:
        self._own: NetlinkSocket | None = None
        self._entered: dict[str, list[_Session]] = {}  # open `netns_fd` contexts, by namespace
        self._opener = _Worker("netns")
        self._closer = _Closer()

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

    @contextlib.asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        """See `Netlink.netns_fd`."""
        # Once handed over the job runs; waiting it out is what keeps its sockets from being lost.
        session = await self._opener.run(lambda: _open_session(netns, settings, frames))
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
        if self._own is not None:
            self._own.close()
            self._own = None
        self._opener.stop()
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


def _open_session(netns: str, settings: Mapping[str, str], frames: bool) -> _Session:
    """Runs in the helper thread: open what a session needs inside the namespace, and come back."""
    with contextlib.ExitStack() as undo:
        try:
            # Not the main thread's: this one was started where the daemon lives, and is back there.
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
    """The helper thread is in the namespace for the length of the context."""
    own = _home()
    try:
        _set_namespace(fd)
    except OSError as error:
        if error.errno == errno.EINVAL:  # an ordinary file: the namespace that was mounted there is gone
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), netns) from error
        raise
    try:
        yield
    finally:
        _set_namespace(own)


def _home() -> int:
    """The namespace in which this thread was started, as a descriptor that lives as long as the thread."""
    if not hasattr(_thread, "home"):
        # thread-self, not self: the main thread may be in another namespace than this one.
        _thread.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    home: int = _thread.home
    return home


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


class _Worker:
    """One thread that runs functions one after another; started when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], trio.lowlevel.TrioToken, trio.lowlevel.Task] | None]
        self._jobs = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], Any]) -> Any:
        """The function's result or exception. Cancellation: before it starts, or not at all."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._thread is None:
            # A daemon thread: it holds nothing that must be written, and must not keep the process from ending.
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((function, trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()))
        return await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def stop(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, token, task = job
            result = outcome.capture(function)
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            del job, function, token, task, result
        if hasattr(_thread, "home"):
            os.close(_thread.home)


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
