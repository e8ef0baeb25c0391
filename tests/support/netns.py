"""Network namespaces of the real kernel for tests: a LAN with hosts on it, and sockets opened inside. Needs root.

Everything is named after this process, and is taken away again by `Lan.close`, whatever happened in between.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator

import trio

from beeyard.netdrivers.announce import internet_checksum
from deploy.lan import SWITCH, make_switch, plug_in

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL, _ETH_P_ARP, _ETH_P_IPV6 = 0x0003, 0x0806, 0x86DD
# Replies inside one machine come within a millisecond; the rest is for a busy one.
_ANSWER_S = 0.4
# For what asks for a MAC address first: the kernel repeats a question that was lost after a second.
HEARD_S = 2.5
_numbers = itertools.count(1)


def ip(arguments: str) -> str:
    """Run one `ip` command; gives what it printed."""
    done = subprocess.run(["ip", *arguments.split()], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"ip {arguments}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def inside(netns: str) -> Iterator[None]:
    """This thread is in the namespace (a path) for the length of the context. Do not await in it lightly.

    Threads that are made meanwhile are there too, and come back with it.
    """
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with open(netns) as there:
            assert _libc.setns(there.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            there_id = os.stat("/proc/thread-self/ns/net").st_ino
            assert _libc.setns(own, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            if os.fstat(own).st_ino != there_id:
                _bring_threads_back(there_id, own)
    finally:
        os.close(own)


def _bring_threads_back(there_id: int, own: int) -> None:
    """Have the threads that trio keeps for whoever needs one next leave a namespace: what such a thread starts is there too.

    Args:
        there_id: inode of the namespace.
        own: descriptor of the one to be in.
    """
    if not _names_of_threads(there_id):
        return
    # One job for each thread: nobody gets a second one while others have none.
    jobs = threading.Barrier(1 + sum(thread.name.startswith("Trio") for thread in threading.enumerate()))

    def come_back() -> None:
        _libc.setns(own, _CLONE_NEWNET)
        jobs.wait()

    for _ in range(jobs.parties - 1):
        trio.lowlevel.start_thread_soon(come_back, lambda _: None)
    jobs.wait(30)
    left_there = _names_of_threads(there_id)
    assert not left_there, f"still in the namespace: {left_there}"


def _names_of_threads(namespace_id: int) -> list[str]:
    found = []
    for thread in threading.enumerate():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            if os.stat(f"/proc/self/task/{thread.native_id}/ns/net").st_ino == namespace_id:
                found.append(thread.name)
    return found


async def received(opened: socket.socket) -> tuple[bytes, tuple[str, int]] | None:
    """The next datagram of a socket, and who sent it; None: none came."""
    opened.setblocking(False)
    with trio.move_on_after(HEARD_S):
        await trio.lowlevel.wait_readable(opened)
        return opened.recvfrom(64)
    return None


class Lan:
    """A bridge in a namespace of its own, with address 10.9.0.1/24 and fd00:9::1/64, and hosts plugged into it."""

    def __init__(self) -> None:
        self._prefix = f"bt{os.getpid()}x{next(_numbers)}"
        self._names: list[str] = []
        self._number = itertools.count()
        name = self._next_name()
        make_switch(name, "10.9.0.1/24", "fd00:9::1/64")
        self._names.append(name)
        self.netns = f"/run/netns/{name}"
        with inside(self.netns):
            self._ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            self._ear.bind((SWITCH, _ETH_P_ALL))
        self._ear.setblocking(False)

    def _next_name(self) -> str:
        return f"{self._prefix}n{next(self._number)}"

    def create_netns(self) -> str:
        """A new namespace; gives its path."""
        name = self._next_name()
        ip(f"netns add {name}")
        self._names.append(name)
        return f"/run/netns/{name}"

    def drop_netns(self, netns: str) -> None:
        """Drop a namespace made by `create_netns`."""
        name = os.path.basename(netns)
        ip(f"netns del {name}")
        self._names.remove(name)

    def add_host(self, number: int) -> str:
        """A namespace that plays a host, with eth0 on the LAN, address 10.9.0.NUMBER; gives its path."""
        netns = self.create_netns()
        plug_in(os.path.basename(netns), os.path.basename(self.netns), number, f"10.9.0.{number}/24")
        return netns

    def frames_seen(self) -> list[bytes]:
        """Every frame that reached the bridge itself since the last call."""
        frames = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(self._ear.recv(65536))
        return frames

    def shout(self, frame: bytes) -> None:
        """Send a frame to everybody on the LAN."""
        self._ear.send(frame)

    async def arp(self, address: str) -> list[str]:
        """The MAC addresses that claim an IPv4 address, asked from the bridge; sorted, each once."""
        with inside(self.netns):
            asker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ARP))
            asker.bind((SWITCH, _ETH_P_ARP))
        claims = set()
        with asker:
            asker.setblocking(False)
            mac = asker.getsockname()[4]
            wanted = socket.inet_aton(address)
            header = b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
            asker.send(header + mac + socket.inet_aton("10.9.0.1") + bytes(6) + wanted)
            with trio.move_on_after(_ANSWER_S):
                while True:
                    await trio.lowlevel.wait_readable(asker)
                    frame = asker.recv(2048)
                    if frame[20:22] == b"\0\2" and frame[28:32] == wanted:
                        claims.add(frame[22:28].hex(":"))
        return sorted(claims)

    async def solicit(self, address: str) -> list[str]:
        """The MAC addresses that claim an IPv6 address, asked from the bridge by multicast; sorted, each answer."""
        with inside(self.netns):
            asker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_IPV6))
            asker.bind((SWITCH, _ETH_P_IPV6))
        claims = []
        with asker:
            asker.setblocking(False)
            mac, wanted = asker.getsockname()[4], socket.inet_pton(socket.AF_INET6, address)
            asker.send(_solicitation(mac, wanted))
            with trio.move_on_after(_ANSWER_S):
                while True:
                    await trio.lowlevel.wait_readable(asker)
                    frame = asker.recv(2048)
                    if frame[20] == 58 and frame[54] == 136 and frame[62:78] == wanted:
                        claims.append(frame[6:12].hex(":"))
        return sorted(claims)

    async def refuses(self, address: str) -> bool:
        """Whether a host answers at all for an address: a UDP packet to a closed port comes back as refused."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with inside(self.netns):
            asker = socket.socket(family, socket.SOCK_DGRAM)
        with asker:
            asker.setblocking(False)
            asker.connect((address, 9))
            asker.send(b"?")
            with trio.move_on_after(HEARD_S):
                await trio.lowlevel.wait_readable(asker)
                with contextlib.suppress(ConnectionRefusedError):
                    asker.recv(16)
                    return False
                return True
        return False

    def advertise(self, prefix: str) -> None:
        """Send one router advertisement that offers a /64 for addresses of the receivers' own making."""
        sender, everyone = (socket.inet_pton(socket.AF_INET6, a) for a in ("fe80::1", "ff02::1"))
        # Source: RFC 4861, section 4.2, with the option of 4.6.2: on-link and autonomous, valid for an hour.
        option = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, prefix)
        body = struct.pack("!BBHII", 64, 0, 1800, 0, 0) + option
        pseudo_header = sender + everyone + struct.pack("!II", 4 + len(body), 58)
        checksum = internet_checksum(pseudo_header + b"\x86\0\0\0" + body)
        icmp = struct.pack("!BBH", 134, 0, checksum) + body
        packet = struct.pack("!IHBB", 6 << 28, len(icmp), 58, 255) + sender + everyone + icmp
        self._ear.send(bytes.fromhex("333300000001") + b"\x02\0\0\0\0\x99" + b"\x86\xdd" + packet)

    def close(self) -> None:
        """Take everything away."""
        self._ear.close()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _solicitation(mac: bytes, wanted: bytes) -> bytes:
    """A neighbour solicitation from fd00:9::1 to the group of an address. Source: RFC 4861, section 4.3."""
    sender = socket.inet_pton(socket.AF_INET6, "fd00:9::1")
    group = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:0")[:13] + wanted[13:]
    body = bytes(4) + wanted + b"\1\1" + mac
    pseudo_header = sender + group + struct.pack("!II", 4 + len(body), 58)
    checksum = internet_checksum(pseudo_header + b"\x87\0\0\0" + body)
    icmp = struct.pack("!BBH", 135, 0, checksum) + body
    packet = struct.pack("!IHBB", 6 << 28, len(icmp), 58, 255) + sender + group + icmp
    return b"\x33\x33" + group[12:] + mac + struct.pack("!H", _ETH_P_IPV6) + packet
