"""Which ports of this host other programs have: asked of the kernel, read in /proc/net, or tried by binding them."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import socket
import struct
from collections.abc import Iterator, Sequence

import trio

from beeyard.core.model import HostPort
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.real_netlink_socket import NetlinkSocket

# Source: Linux include/net/tcp_states.h. A datagram socket that is bound and not connected is in state "close".
_LISTEN = "0A"
_TCP_TABLES = (("tcp", "tcp"), ("tcp6", "tcp"))
_UDP_TABLES = (("udp", "udp"), ("udp6", "udp"))
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_KINDS = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "sctp": (socket.SOCK_STREAM, 132)}
# Source: Linux include/uapi/linux/sock_diag.h and inet_diag.h: struct inet_diag_req_v2, the same states as a bit each, and
# struct inet_diag_msg, with the local port behind four bytes.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_DIAG_REQUEST = struct.Struct("=BBBBI48x")
_DIAG_PORT_AT = nl.HEADER.size + 4


class RealSockets:
    """The port `Sockets` of this host."""

    async def listening(self) -> list[HostPort]:
        """See `Sockets.listening`."""
        return await trio.to_thread.run_sync(_listening)

    async def probe(self, port: HostPort) -> str:
        """See `Sockets.probe`."""
        await trio.lowlevel.checkpoint()
        try:
            if _is_free(port):
                return ""
        except PermissionError:
            # A port below 1024, and an agent that may not bind those: what has it can be read all the same.
            if not await trio.to_thread.run_sync(_is_seen, port):
                return ""
        return await trio.to_thread.run_sync(_owner, port)


def _listening() -> list[HostPort]:
    try:
        with open(_RANGE) as file:
            low, high = map(int, file.read().split())
    except OSError:
        low, high = 32768, 60999
    try:
        found = {HostPort(port=port) for port in _tcp_listeners()}
    except OSError:  # a kernel without the module for it
        found = {HostPort(port=port) for _, port, state, _ in _sockets(_TCP_TABLES) if state == _LISTEN}
    for protocol, port, _, _ in _sockets(_UDP_TABLES):
        if port and not low <= port <= high:
            found.add(HostPort(protocol=protocol, port=port))
    return sorted(found)


def _tcp_listeners() -> set[int]:
    """The ports on which somebody listens.

    The kernel is asked for listeners alone: reading them in /proc/net has it go through its table of all connections, 10 ms
    on a machine with 24 GiB however few there are.
    """
    channel = NetlinkSocket(_NETLINK_SOCK_DIAG)
    ports: set[int] = set()
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << int(_LISTEN, 16))
            request = nl.message(_SOCK_DIAG_BY_FAMILY, nl.NLM_F_REQUEST | nl.NLM_F_DUMP, asked)
            for reply in channel.request(request):
                ports.add(int.from_bytes(reply[_DIAG_PORT_AT : _DIAG_PORT_AT + 2], "big"))
    finally:
        channel.close()
    return ports


def _sockets(tables: Sequence[tuple[str, str]] = _TCP_TABLES + _UDP_TABLES) -> Iterator[tuple[str, int, str, str]]:
    """(protocol, local port, state, inode) of each socket of this namespace."""
    for name, protocol in tables:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/thread-self/net/{name}") as file:
            next(file, None)
            for line in file:
                fields = line.split()
                yield protocol, int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]


def _is_free(port: HostPort) -> bool:
    """Whether a socket could be bound to the port on all addresses: for a moment, it is."""
    kind, number = _KINDS[port.protocol]
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, kind | socket.SOCK_CLOEXEC, number) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if port.protocol == "tcp":
                    # What is left of connections that have ended does not take a port.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            if error.errno == errno.EACCES:
                raise
            # Every other error says that this host has no such protocol or family, so nobody has its port.
    return True


def _is_seen(port: HostPort) -> bool:
    return any(
        (protocol, number) == (port.protocol, port.port) and (state == _LISTEN or protocol != "tcp")
        for protocol, number, state, _ in _sockets()
    )


def _owner(port: HostPort) -> str:
    """The program that has a port, as far as it can be seen."""
    inodes = {
        f"socket:[{inode}]"
        for protocol, number, _, inode in _sockets()
        if (protocol, number) == (port.protocol, port.port)
    }
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in inodes:
                pid = link.split("/")[2]
                with open(f"/proc/{pid}/comm") as file:
                    return f"{file.read().strip()} (pid {pid})"
    return "something on this node"


__all__ = ["RealSockets"]
