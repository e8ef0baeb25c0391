"""Who has a port of this machine, found out on the machine itself."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from beeyard.core.model import HostPort
from beeyard.runtime import real_sockets
from beeyard.runtime.real_sockets import RealSockets, _is_seen


@pytest.fixture
def taken():
    """A listener on every address, and a datagram socket on the loopback alone."""
    with socket.create_server(("", 0)) as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", _below_the_range()))
        yield HostPort(port=listener.getsockname()[1]), HostPort(protocol="udp", port=datagrams.getsockname()[1])


def _below_the_range() -> int:
    """A port that no kernel chooses for clients and that is free."""
    for port in range(20000, 30000):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("ten thousand ports are taken")


async def test_listeners_and_bound_datagram_sockets_are_seen_and_clients_are_not(taken) -> None:
    tcp, udp = taken
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("", 0))
        of_client = HostPort(protocol="udp", port=client.getsockname()[1])
        seen = await RealSockets().listening()
    assert tcp in seen
    assert udp in seen
    assert of_client not in seen
    assert seen == sorted(set(seen))


async def test_listeners_are_read_where_the_kernel_cannot_be_asked(taken, monkeypatch) -> None:
    """A kernel without inet_diag knows as much, it only takes longer."""
    asked = await RealSockets().listening()

    def refuse(protocol: int) -> None:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))

    monkeypatch.setattr(real_sockets, "NetlinkSocket", refuse)
    read = await RealSockets().listening()
    assert taken[0] in asked
    assert taken[0] in read


async def test_a_port_is_somebodys_by_name_and_free_once_it_is_closed(taken) -> None:
    sockets = RealSockets()
    for port in taken:
        assert await sockets.probe(port) == f"{_own_name()} (pid {os.getpid()})"
        assert _is_seen(port)
    free = HostPort(port=taken[1].port)
    assert await sockets.probe(free) == ""
    assert not _is_seen(free)


async def test_what_is_left_of_connections_that_ended_takes_no_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = listener.accept()
        accepted.close()  # the side that closes first is left in TIME_WAIT
        client.close()
    assert await RealSockets().probe(HostPort(port=port)) == ""


def _own_name() -> str:
    with open("/proc/self/comm") as file:
        return file.read().strip()
