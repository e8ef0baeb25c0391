"""One host on a LAN of the real kernel, all made of namespaces, for tests that are in the host's own. Needs root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from beeyard.runtime.real_netlink import RealNetlink
from tests.support.netns import Lan, inside, ip


class RealHost:
    """What the conformance cases of drivers, questions and routes ask of a world."""

    def __init__(self, lan: Lan, host: str) -> None:
        self.netlink = RealNetlink()
        self.lan = lan
        self.host = host
        self.name = os.path.basename(host)
        self.create_netns = lan.create_netns
        self.drop_netns = lan.drop_netns
        self.frames_seen = lan.frames_seen
        self.shout = lan.shout

    def set_up(self, interface: str, up: bool) -> None:
        """Raise an interface of the host, or take it down."""
        ip(f"-n {self.name} link set {interface} {'up' if up else 'down'}")

    def set_parent_up(self, up: bool) -> None:
        """The same of the parent of links, eth0."""
        self.set_up("eth0", up)


Made = TypeVar("Made", bound=RealHost)


@contextlib.contextmanager
def real_host(make: Callable[[Lan, str], Made]) -> Iterator[Made]:
    """A host in which the calling thread is for the length of the context."""
    with contextlib.closing(Lan()) as lan:
        host = lan.add_host(2)
        with inside(host):
            world = make(lan, host)
            with contextlib.closing(world.netlink):
                yield world


__all__ = ["RealHost", "real_host"]
