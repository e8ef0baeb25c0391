"""The world of `tests/support/link_conformance.py` on a real kernel, and traffic between its namespaces. Needs root."""

from __future__ import annotations

import contextlib
import os
import socket

from tests.support.netns import Lan, inside, ip, received
from tests.support.real_host import RealHost, real_host


class RealLinkWorld(RealHost):
    """One with a second interface on the same LAN."""

    def __init__(self, lan: Lan, host: str) -> None:
        super().__init__(lan, host)
        bridge = os.path.basename(lan.netns)
        ip(f"link add eth2 netns {self.name} type veth peer name more2 netns {bridge}")
        ip(f"-n {bridge} link set more2 master lan0 up")
        # Without link-local addresses, so that no question of the host's own is mistaken for an announcement.
        ip(f"-n {self.name} link set eth2 addrgenmode none up")
        ip(f"-n {self.name} addr add fd00:9::2/64 dev eth0 nodad")
        # On one LAN with eth0, it would answer for the addresses of eth0 too.
        with inside(host), open("/proc/sys/net/ipv4/conf/eth2/arp_ignore", "w") as setting:
            setting.write("1")

    async def claims(self, address: str) -> list[str]:
        return await (self.lan.solicit(address) if ":" in address else self.lan.arp(address))


def real_link_world() -> contextlib.AbstractContextManager[RealLinkWorld]:
    """A host in which the calling thread is for the length of the context."""
    return real_host(RealLinkWorld)


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
        heard = await received(hearing)
        if heard is None:
            return False
        hearing.sendto(*heard)
        return await received(asking) is not None


__all__ = ["RealLinkWorld", "real_link_world", "talks"]
