"""The world of `tests/support/link_conformance.py` on a real kernel, and traffic between its namespaces. Needs root."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator

import trio

from beeyard.runtime.real_netlink import RealNetlink
from tests.support.netns import Lan, inside, ip

_ANSWER_S = 1.0


class RealLinkWorld:
    """One host on a LAN, all made of namespaces; the test itself is in the host's."""

    def __init__(self, lan: Lan, host: str) -> None:
        self.netlink = RealNetlink()
        self.lan = lan
        self.host = host
        self.create_netns = lan.create_netns
        self.drop_netns = lan.drop_netns
        self.frames_seen = lan.frames_seen
        self._name = os.path.basename(host)
        bridge = os.path.basename(lan.netns)
        ip(f"link add eth2 netns {self._name} type veth peer name more2 netns {bridge}")
        ip(f"-n {bridge} link set more2 master lan0 up")
        # Without link-local addresses, so that no question of the host's own is mistaken for an announcement.
        ip(f"-n {self._name} link set eth2 addrgenmode none up")
        ip(f"-n {self._name} addr add fd00:9::2/64 dev eth0 nodad")
        # On one LAN with eth0, it would answer for the addresses of eth0 too.
        with inside(host), open("/proc/sys/net/ipv4/conf/eth2/arp_ignore", "w") as setting:
            setting.write("1")

    def set_up(self, interface: str, up: bool) -> None:
        ip(f"-n {self._name} link set {interface} {'up' if up else 'down'}")

    async def claims(self, address: str) -> list[str]:
        return await (self.lan.solicit(address) if ":" in address else self.lan.arp(address))


@contextlib.asynccontextmanager
async def real_link_world() -> AsyncIterator[RealLinkWorld]:
    """A host in which the calling thread is for the length of the context."""
    with contextlib.closing(Lan()) as lan:
        host = lan.add_host(2)
        with inside(host):
            world = RealLinkWorld(lan, host)
            with contextlib.closing(world.netlink):
                yield world


async def talks(client: str, server: str, address: str, *, port: int = 7) -> bool:
    """Whether a UDP packet from one namespace to an address in another is heard, and the answer too."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(server):
        hearing = socket.socket(family, socket.SOCK_DGRAM)
        hearing.bind((address, port))
    with inside(client):
        asking = socket.socket(family, socket.SOCK_DGRAM)
    with hearing, asking:
        with contextlib.suppress(OSError):  # no way there at all
            asking.sendto(b"hello", (address, port))
        heard = await _within(hearing)
        if heard is None:
            return False
        hearing.sendto(*heard)
        return await _within(asking) is not None


async def _within(opened: socket.socket) -> tuple[bytes, tuple[str, int]] | None:
    opened.setblocking(False)
    with trio.move_on_after(_ANSWER_S):
        await trio.lowlevel.wait_readable(opened)
        return opened.recvfrom(64)
    return None


__all__ = ["RealLinkWorld", "real_link_world", "talks"]
