"""Asking a LAN something on a real Linux host: frames out of an interface, and the first answer that comes in.

Theory of operation
-------------------
Many ask at once, some twenty while a host starts 200 tasks a second, and nearly always about the same interface. They share
one packet socket for each interface and Ethernet type: an *ear*, opened for the first who asks and closed behind the last.
It is bound to its Ethernet type, so the kernel hands it neither what this host sends itself nor the traffic of its tasks,
which a socket for every type would see packet by packet; for IPv6 a filter lets neighbour discovery through and nothing else.

A trio system task reads each ear and shows every frame to everybody who asks. Nothing is handed to a thread, except the
closing of the socket, which waits for the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence

import trio

_SOL_PACKET, _ADD_MEMBERSHIP, _DROP_MEMBERSHIP, _MR_MULTICAST = 263, 1, 2, 0
_SO_ATTACH_FILTER = 26
_ETHERTYPE_IPV6 = 0x86DD
_FRAME_BYTES = 2048
# Frames read in one go, so that a storm on the LAN does not keep everything else waiting.
_FRAMES_AT_ONCE = 64

# Classic BPF: ICMPv6 (58) straight behind the IPv6 header, of type 135 or 136: neighbour solicitation, advertisement.
# Source: Linux include/uapi/linux/filter.h; struct sock_filter {u16 code; u8 jt, jf; u32 k}.
_LOAD_BYTE, _JUMP_EQUAL, _RETURN = 0x30, 0x15, 0x06
_NEIGHBOUR_DISCOVERY = b"".join(
    struct.pack("@HBBI", *instruction)
    for instruction in (
        (_LOAD_BYTE, 0, 0, 20),
        (_JUMP_EQUAL, 0, 4, 58),
        (_LOAD_BYTE, 0, 0, 54),
        (_JUMP_EQUAL, 1, 0, 135),
        (_JUMP_EQUAL, 0, 1, 136),
        (_RETURN, 0, 0, 0xFFFF),
        (_RETURN, 0, 0, 0),
    )
)


class _Asker:
    """One question under way."""

    def __init__(self, is_answer: Callable[[bytes], bool]) -> None:
        self._is_answer = is_answer
        self.done = trio.Event()
        self.answer: bytes | None = None
        self.error: OSError | None = None

    def hear(self, frame: bytes) -> None:
        """Look at a frame that came in."""
        if not self.done.is_set() and self._is_answer(frame):
            self.answer = frame
            self.done.set()

    def fail(self, error: OSError) -> None:
        """There will be no answer."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class _Ear:
    """A socket that hears one Ethernet type on one interface."""

    def __init__(self, interface: str, ethertype: int) -> None:
        self.askers: dict[_Asker, None] = {}
        self.broken = False  # its interface is down or gone
        self.closed = False
        # Protocol 0 until it is bound: nothing is heard from other interfaces meanwhile, nor past the filter.
        self.socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.htons(0)
        )
        try:
            if ethertype == _ETHERTYPE_IPV6:
                self._filter()
            self.socket.bind((interface, ethertype))
            self._index = socket.if_nametoindex(interface)
        except BaseException:
            self.socket.close()
            raise

    def _filter(self) -> None:
        program = ctypes.create_string_buffer(_NEIGHBOUR_DISCOVERY, len(_NEIGHBOUR_DISCOVERY))
        fprog = struct.pack("@HP", len(_NEIGHBOUR_DISCOVERY) // 8, ctypes.addressof(program))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)

    def join(self, group: bytes) -> None:
        """Have the interface take frames for a multicast MAC address; counted by the kernel."""
        self.socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, self._membership(group))

    def leave(self, group: bytes) -> None:
        """The reverse of `join`. An interface that is gone has left."""
        try:
            self.socket.setsockopt(_SOL_PACKET, _DROP_MEMBERSHIP, self._membership(group))
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL):
                raise

    def _membership(self, group: bytes) -> bytes:
        return struct.pack("@iHH8s", self._index, _MR_MULTICAST, len(group), group)

    async def listen(self) -> None:
        """Show everything that comes to all who ask, until the socket is closed or its interface goes."""
        try:
            while not self.closed:
                await trio.lowlevel.wait_readable(self.socket)
                self._read()
        except trio.ClosedResourceError:
            return  # nobody asks any more
        except OSError as error:
            self.broken = True
            for asker in self.askers:
                asker.fail(OSError(error.errno, os.strerror(error.errno or 0)))

    def _read(self) -> None:
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = self.socket.recv(_FRAME_BYTES)
            except BlockingIOError:
                return
            for asker in self.askers:
                asker.hear(frame)


class Questions:
    """All questions of this host's own namespace. `close` closes a socket without waiting for it."""

    def __init__(self, close: Callable[[socket.socket], None]) -> None:
        self._close = close
        self._ears: dict[tuple[str, int], _Ear] = {}

    @property
    def n_ears(self) -> int:
        """How many sockets are open."""
        return len(self._ears)

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int,
        groups: Sequence[bytes],
    ) -> bytes | None:
        """See `Netlink.ask`."""
        asker = _Asker(is_answer)
        joined: list[tuple[_Ear, bytes]] = []
        ears: dict[int, _Ear] = {}
        try:
            for frame in frames:
                ethertype = _ethertype(frame)
                if ethertype not in ears:
                    ears[ethertype] = self._ear(interface, ethertype)
                    ears[ethertype].askers[asker] = None
            for group in groups:
                ear = ears[_ETHERTYPE_IPV6]
                ear.join(group)
                joined.append((ear, group))
            for _ in range(times):
                for frame in frames:
                    ears[_ethertype(frame)].socket.send(frame)
                with trio.move_on_after(wait_s / times):
                    await asker.done.wait()
                    break
            if asker.error is not None:
                raise asker.error
            return asker.answer
        finally:
            for ear, group in joined:
                ear.leave(group)
            for ethertype, ear in ears.items():
                self._leave(interface, ethertype, ear, asker)

    def _ear(self, interface: str, ethertype: int) -> _Ear:
        ear = self._ears.get((interface, ethertype))
        if ear is None or ear.broken:
            ear = self._ears[interface, ethertype] = _Ear(interface, ethertype)
            trio.lowlevel.spawn_system_task(ear.listen, name=f"ear on {interface}")
        return ear

    def _leave(self, interface: str, ethertype: int, ear: _Ear, asker: _Asker) -> None:
        del ear.askers[asker]
        if ear.askers:
            return
        if self._ears.get((interface, ethertype)) is ear:
            del self._ears[interface, ethertype]
        ear.closed = True
        # Wakes the reader with ClosedResourceError before the number can be anybody else's.
        trio.lowlevel.notify_closing(ear.socket)
        self._close(ear.socket)


def _ethertype(frame: bytes) -> int:
    return int.from_bytes(frame[12:14], "big")


__all__ = ["Questions"]
