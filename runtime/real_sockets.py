"""Which ports of this host other programs have, from /proc/net and by binding them for a moment."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import socket
from collections.abc import Iterator

import trio

from beeyard.core.model import HostPort

# Source: Linux include/net/tcp_states.h. A datagram socket that is bound and not connected is in state "close".
_LISTEN = "0A"
_TABLES = (("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp"))
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_KINDS = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "sctp": (socket.SOCK_STREAM, 132)}


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
    found = set()
    for protocol, port, state, _ in _sockets():
        if port and (state == _LISTEN if protocol == "tcp" else not low <= port <= high):
            found.add(HostPort(protocol=protocol, port=port))
    return sorted(found)


def _sockets() -> Iterator[tuple[str, int, str, str]]:
    """(protocol, local port, state, inode) of each socket of this namespace."""
    for name, protocol in _TABLES:
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
