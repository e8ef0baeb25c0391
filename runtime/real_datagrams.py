"""Datagrams over UDP of this machine, with multicast, and what its resolver and routes say."""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import socket
import struct
from typing import Any

import structlog
import trio

from beeyard.core.errors import HostError, PeerError
from beeyard.runtime.address import parse_datagram_address
from beeyard.runtime.host_ports import Group, Multicast

log = structlog.get_logger(__name__)

# The longest datagram there is, headers included.
DATAGRAM_BYTES_MAX = 65536
# Below this a socket has what every system gives; asking for less would take away.
BUFFER_BYTES_MIN = 64 << 10
# The port in a question about routes: any will do, nothing is sent.
_DISCARD_PORT = 9


class RealDatagrams:
    """`Datagrams` on a UDP socket.

    Linux reports ICMP errors to sockets that are connected or ask for them (IP_RECVERR). This one is neither, so a peer
    that refuses is not noticed here; should an error come all the same, it is dropped with the call that met it.
    """

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self._closed = False
        self._address = _told(bound.getsockname())
        self._ipv6 = bound.family == socket.AF_INET6

    @property
    def address(self) -> tuple[str, int]:
        """See `Datagrams.address`."""
        return self._address

    def send_nowait(self, to: tuple[str, int], data: bytes) -> bool:
        """See `Datagrams.send_nowait`."""
        return self._try_to_send(to, data) == 0

    async def send(self, to: tuple[str, int], data: bytes) -> bool:
        """See `Datagrams.send`."""
        await trio.lowlevel.checkpoint()
        while (failure := self._try_to_send(to, data)) == errno.EAGAIN:
            await trio.lowlevel.wait_writable(self._socket)
        return failure == 0

    async def receive(self) -> tuple[bytes, tuple[str, int]]:
        """See `Datagrams.receive`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._closed:
                raise trio.ClosedResourceError
            try:
                got = self.receive_nowait()
            except trio.WouldBlock:
                await trio.lowlevel.wait_readable(self._socket)
            else:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return got

    def receive_nowait(self) -> tuple[bytes, tuple[str, int]]:
        """See `Datagrams.receive_nowait`."""
        try:
            data, source = self._socket.recvfrom(DATAGRAM_BYTES_MAX)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError:
            if self._closed:
                raise trio.ClosedResourceError from None
            raise trio.WouldBlock from None  # the kernel forgets an error with the call that told it
        return data, (_told(source) if self._ipv6 else source)

    async def aclose(self) -> None:
        """See `Datagrams.aclose`."""
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()

    def _try_to_send(self, to: tuple[str, int], data: bytes) -> int:
        """0, or the error's number."""
        if self._closed:
            raise trio.ClosedResourceError
        try:
            self._socket.sendto(data, _as_sent(to, self._ipv6))
        except OSError as error:
            return error.errno or errno.EINVAL
        return 0


async def bind_datagrams(address: str, multicast: Multicast | None, receive_buffer_bytes: int) -> RealDatagrams:
    """See `Net.datagrams`."""
    where = parse_datagram_address(address)
    try:
        found = await trio.socket.getaddrinfo(where.host, where.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, name = found[0]
        bound = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    except OSError as error:
        raise HostError(f"cannot bind {address}: {_words(error)}") from error
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if multicast is not None and multicast.share:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _ask_for_buffer(bound, receive_buffer_bytes)
        bound.bind(name)
        if multicast is not None:
            _use_multicast(bound, multicast)
        return RealDatagrams(bound)
    except OSError as error:
        bound.close()
        raise HostError(f"cannot bind {address}: {_words(error)}") from error
    except BaseException:
        bound.close()
        raise


async def resolve(host: str) -> list[str]:
    """See `Net.resolve`."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise PeerError(f"cannot find the address of {host!r}: {_words(error)}") from error
    return list(dict.fromkeys(_told(name)[0] for *_, name in found))


def source_to(host: str) -> str:
    """See `Net.source_to`: the kernel chooses when a datagram socket is connected, which sends nothing."""
    try:
        sockaddr = _as_sent((host, _DISCARD_PORT), ":" in host)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(sockaddr)
            return _told(probe.getsockname())[0]
    except OSError as error:
        raise PeerError(f"no route to {host}: {_words(error)}") from error


def _ask_for_buffer(bound: socket.socket, n_bytes: int) -> None:
    """Ask for a receive buffer as memberlist does. Linux grants up to net.core.rmem_max, root may have more."""
    for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
        asked = n_bytes
        while asked >= BUFFER_BYTES_MIN:
            try:
                bound.setsockopt(socket.SOL_SOCKET, option, asked)
                return
            except PermissionError:
                break
            except OSError:
                asked //= 2


def _use_multicast(bound: socket.socket, wanted: Multicast) -> None:
    index = socket.if_nametoindex(wanted.interface) if wanted.interface else 0
    if bound.family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, wanted.hops)
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        if index:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    else:
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, wanted.hops)
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        if index:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"", b"", index))
    for group in wanted.groups:
        try:
            _join(bound, group)
        except OSError as error:
            log.warning("cannot hear a multicast group", group=group.address, on=group.interface, reason=_words(error))


def _join(bound: socket.socket, group: Group) -> None:
    index = socket.if_nametoindex(group.interface) if group.interface else 0
    packed = ipaddress.ip_address(group.address).packed
    if bound.family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack("=16si", packed, index))
    else:
        # Source: struct ip_mreqn, Linux include/uapi/linux/in.h.
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", packed, b"", index))


@functools.lru_cache(maxsize=4096)
def _as_sent(to: tuple[str, int], ipv6: bool) -> tuple[str, int] | tuple[str, int, int, int]:
    """An address as the system call wants it. With a name Python would ask the resolver while all wait: it is refused."""
    host, _, zone = to[0].partition("%")
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        raise OSError(errno.EINVAL, f"{to[0]!r} is not an address") from None
    if (parsed.version == 6) != ipv6:
        raise OSError(errno.EAFNOSUPPORT, "address family not supported by this socket")
    if not 0 < to[1] < 65536:
        raise OSError(errno.EINVAL, f"there is no port {to[1]}")
    if not ipv6:
        return to
    return host, to[1], 0, (int(zone) if zone.isdigit() else socket.if_nametoindex(zone)) if zone else 0


def _told(name: tuple[Any, ...]) -> tuple[str, int]:
    """The kernel's address as ours: Python tells the zone of a link-local address as a number beside it."""
    if len(name) == 4 and name[3] and "%" not in name[0]:
        with contextlib.suppress(OSError):
            return f"{name[0]}%{socket.if_indextoname(name[3])}", name[1]
    return name[0], name[1]


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


__all__ = ["RealDatagrams", "bind_datagrams", "resolve", "source_to"]
