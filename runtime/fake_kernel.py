"""A simulated host's kernel behind the `Netlink` port: it reads and writes the same bytes as Linux does.

It lives outside the daemons, so it survives their crashes as a kernel does. `FakeKernel.live_addresses` is what the LAN
would see; simulations check with it that no address is on the LAN twice. What it does with each request is in
`runtime.fake_requests`, and the rules of Linux in `runtime.fake_links` and `runtime.fake_routes`.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from beeyard.core.model import Link
from beeyard.runtime import silence
from beeyard.runtime.fake_links import FakeHostLinks, FakeLink, FakeNamespace
from beeyard.runtime.fake_neighbours import FakeNeighbours
from beeyard.runtime.fake_refuse import refuse
from beeyard.runtime.fake_requests import FakeRequests
from beeyard.runtime.host import RequestRefused

_DEFAULT_LINKS = (Link(name="eth0", mtu=1500, up=True),)


class LiveAddress(NamedTuple):
    """An address that answers on the LAN."""

    netns: str  # "": the host itself
    interface: str
    address: str  # without prefix length
    mac: str
    vlan_id: int = 0  # through which VLAN; 0: none
    arp: bool = True  # whether it says so on the LAN when asked; else it is reached by routes alone


class SentFrame(NamedTuple):
    """A frame that left through `send_frame`."""

    netns: str
    interface: str
    frame: bytes


class FakeKernel:
    """The `Netlink` port of one simulated host.

    Args:
        links: the host's own links besides its loopback; one with `child_kind` "ipvlan" refuses macvlan children.
        kinds: the kinds of link that this kernel can create.
        seed: what makes the MAC addresses that it draws differ from those of other hosts.
    """

    def __init__(
        self, links: Sequence[Link] = _DEFAULT_LINKS, kinds: tuple[str, ...] = ("macvlan",), *, seed: str = ""
    ) -> None:
        self.frames: list[SentFrame] = []
        self.neighbours = FakeNeighbours()
        self._links = FakeHostLinks(kinds, seed)
        self._host = self._links.namespaces[""]
        self._links.set_up(self._host.links[1], True)
        self._n_namespaces = itertools.count(1)
        self._fds: dict[int, FakeNamespace] = {}
        self._requests = FakeRequests(self._links, self._fds)
        self._next_fd = itertools.count(100)
        for link in links:
            self.add_link(link)

    # --- the port ---

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        """See `Netlink.request`."""
        await trio.lowlevel.checkpoint()
        return self._requests.perform(self._namespace(netns), message)

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        """See `Netlink.send_frame`."""
        await trio.lowlevel.checkpoint()
        self._send(netns, interface, frame)

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int = 1,
        groups: Sequence[bytes] = (),
    ) -> bytes | None:
        """See `Netlink.ask`."""
        await trio.lowlevel.checkpoint()

        def send() -> None:
            for frame in frames:
                self._send("", interface, frame)

        return await self.neighbours.ask(send, frames, is_answer, wait_s=wait_s, times=times)

    @contextlib.asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        """See `Netlink.netns_fd`."""
        await trio.lowlevel.checkpoint()
        namespace = self._namespace(netns)
        namespace.settings.update(settings)
        fd = next(self._next_fd)
        self._fds[fd] = namespace
        try:
            yield fd
        finally:
            del self._fds[fd]

    # --- the host's own hands: what executors, operators and a power switch do ---

    def create_netns(self) -> str:
        """A new namespace; gives its path."""
        path = f"/fake/netns/{next(self._n_namespaces)}"
        self._links.namespaces[path] = FakeNamespace(path)
        return path

    def drop_netns(self, netns: str) -> None:
        """Drop a namespace with its links; one that is gone is fine."""
        if netns and netns in self._links.namespaces:
            self._links.drop(self._links.namespaces[netns])

    def links_down(self, netns: str) -> None:
        """Silence every link of a task's namespace, as its shim does; a namespace that is gone is fine."""
        if netns not in self._links.namespaces:
            return
        namespace, conversation = self._links.namespaces[netns], silence.conversation()
        with contextlib.suppress(StopIteration):  # all is said
            message = next(conversation)
            while True:
                try:
                    replies = self._requests.perform(namespace, message)
                except RequestRefused as error:
                    message = conversation.throw(error)
                else:
                    message = conversation.send(replies)

    def add_link(self, link: Link) -> None:
        """Plug a link of the host itself in."""
        added = self._host.add(link.name, mac=link.mac or self._links.draw_mac(), mtu=link.mtu or 1500)
        added.taken_by = link.child_kind
        added.addresses = [ipaddress.ip_interface(address) for address in link.addresses]
        self._links.set_up(added, link.up)

    def set_link_up(self, name: str, up: bool) -> None:
        """Take a link of the host itself up or down."""
        self._links.set_up(self._own(name), up)

    def rename_link(self, name: str, new_name: str) -> None:
        """Give a link of the host itself another name; what sits on it stays."""
        self._own(name).name = new_name

    def remove_link(self, name: str) -> None:
        """Unplug a link of the host itself; what sits on it goes too."""
        self._links.delete(self._own(name))

    def reboot(self) -> None:
        """Lose what a power cut loses: namespaces with their links, the host's routes, and links made by request."""
        for path in [path for path in self._links.namespaces if path]:
            self.drop_netns(path)
        for name in [link.name for link in self._host.links.values() if link.kind]:
            if (link := self._host.by_name(name)) is not None:  # it may have gone with its parent
                self._links.delete(link)
        self._host.way.routes.clear()
        self._host.way.neighbours.clear()

    # --- inspection ---

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Paths of the namespaces that exist, without the host's own."""
        return tuple(path for path in self._links.namespaces if path)

    def links_of(self, netns: str) -> list[FakeLink]:
        """The links of a namespace, loopback included, by index."""
        return [link for _, link in sorted(self._namespace(netns).links.items())]

    def routes_of(self, netns: str) -> list[tuple[str, str, int]]:
        """Default routes of a namespace: (interface, gateway or "", metric)."""
        routes = self._namespace(netns).way.routes
        return [(r.link.name, str(r.gateway or ""), r.metric) for r in routes if r.is_default]

    def ways_of(self, netns: str) -> list[tuple[str, str, str, str]]:
        """Other routes of a namespace: (destination, interface, gateway or "", source or "")."""
        routes = [route for route in self._namespace(netns).way.routes if not route.is_default]
        return [(str(r.destination), r.link.name, str(r.gateway or ""), str(r.source or "")) for r in routes]

    def neighbours_of(self, netns: str) -> list[tuple[str, str, str]]:
        """Permanent neighbours of a namespace: (interface, address, MAC address)."""
        namespace = self._namespace(netns)
        known = namespace.way.neighbours.items()
        return [(namespace.links[index].name, str(address), mac) for (index, address), mac in known]

    def live_addresses(self) -> list[LiveAddress]:
        """Every address of this host that answers on the LAN, in order of namespace and link."""
        return [
            LiveAddress(path, link.name, str(address.ip), link.mac, link.vlan, link.speaks_arp)
            for path, namespace in self._links.namespaces.items()
            for link in namespace.links.values()
            if link.answers
            for address in link.addresses
        ]

    # --- small help ---

    def _send(self, netns: str, interface: str, frame: bytes) -> None:
        link = self._namespace(netns).by_name(interface)
        if link is None:
            refuse(errno.ENODEV)
        if not link.up:
            refuse(errno.ENETDOWN)
        self.frames.append(SentFrame(netns, interface, frame))

    def _namespace(self, netns: str) -> FakeNamespace:
        if netns not in self._links.namespaces:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), netns)
        return self._links.namespaces[netns]

    def _own(self, name: str) -> FakeLink:
        link = self._host.by_name(name)
        assert link is not None, f"the host has no link {name}"
        return link
