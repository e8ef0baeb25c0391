"""The world in which links are checked, the list of cases, and what cases need."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import pytest

from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import Vlan, vlan_of
from beeyard.netdrivers import attach, codec, codec_route, host_access, own_links, vlan
from beeyard.runtime.host import Netlink, RequestRefused
from tests.support.grants import a_grant

ADDRESSES = ("10.9.0.10/24", "fd00:9::10/64")


class LinkWorld(Protocol):
    """One host with eth0 (10.9.0.2/24, fd00:9::2/64) and eth2 (no address), both up, MTU 1500, on one LAN."""

    @property
    def netlink(self) -> Netlink: ...

    def create_netns(self) -> str: ...

    def drop_netns(self, netns: str) -> None: ...

    def set_up(self, interface: str, up: bool) -> None: ...

    async def claims(self, address: str) -> list[str]:
        """The MAC addresses that somebody on the LAN gets when it asks who has the address; each answer counts."""

    def frames_seen(self) -> list[bytes]:
        """What was sent to everybody on the LAN since the last call."""


Case = Callable[[LinkWorld], Awaitable[None]]
_CASES: list[tuple[tuple[str, ...], Case]] = []


def needs(*kinds: str) -> Callable[[Case], Case]:
    def note(case: Case) -> Case:
        _CASES.append((kinds, case))
        return case

    return note


def cases_for(kinds: Iterable[str]) -> list[Case]:
    """The cases that a kernel with these kinds of link can play."""
    present = tuple(kinds)
    return [case for needed, case in _CASES if all(kind in present for kind in needed)]


def an_ipvlan_grant(*addresses: str, **changes: object) -> AddressGrant:
    """An ipvlan grant in mode l2 on eth0."""
    return a_grant(*addresses, **({"driver": "ipvlan", "mode": "l2"} | changes))


def a_vlan(name: str) -> Vlan:
    """The VLAN of a parent's name."""
    parsed = vlan_of(name)
    assert parsed is not None
    return parsed


async def link_of(world: LinkWorld, name: str) -> codec.LinkInfo:
    """A link of the host, which must be there."""
    link = await own_links.find(world.netlink, name)
    assert link is not None, name
    return link


async def mode_of(world: LinkWorld, netns: str) -> str:
    """The mode of a task's eth0."""
    (link,) = codec.read_links(await world.netlink.request(codec.get_link(name="eth0"), netns))
    return link.mode


async def defaults(world: LinkWorld, netns: str) -> list[tuple[str, str | None, int]]:
    """The default routes of a task: (destination, gateway, metric)."""
    found = codec_route.read_routes(await world.netlink.request(codec_route.dump_routes(), netns))
    named = [(str(r.destination), str(r.gateway) if r.gateway else None, r.metric) for r in found]
    return sorted(route for route in named if route[0] in ("0.0.0.0/0", "::/0"))


def ip_of(text: str) -> codec.Address:
    return ipaddress.ip_address(text)


async def errno_of(world: LinkWorld, request: bytes) -> int | None:
    """The number with which the host's kernel refuses a request."""
    with pytest.raises(RequestRefused) as caught:
        await world.netlink.request(request)
    return caught.value.errno


async def routes(world: LinkWorld, index: int) -> list[str]:
    """Where the host's routes of ours over a link lead."""
    found = codec_route.read_routes(await world.netlink.request(codec_route.dump_routes()))
    return sorted(str(r.destination) for r in found if (r.index, r.protocol) == (index, host_access.ROUTE_PROTOCOL))


async def refused(world: LinkWorld, grant: AddressGrant) -> tuple[int, str]:
    """Error number and sentence of an attachment that must fail; checks that nothing is left of it."""
    netns = world.create_netns()
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, grant, "eth0")
    links = codec.read_links(await world.netlink.request(codec.dump_links(), netns))
    assert [link.name for link in links] == ["lo"]
    return caught.value.errno, str(caught.value)


async def vlan_refused(world: LinkWorld, name: str) -> str:
    """The sentence of a VLAN that cannot be."""
    with pytest.raises(NetlinkError) as caught:
        await vlan.ensure(world.netlink, a_vlan(name))
    return str(caught.value)


async def gone(world: LinkWorld, parent: str) -> None:
    """Wait until a parent carries no link any more: namespaces go in the kernel's own time."""
    link = await link_of(world, parent)
    while True:
        netns = world.create_netns()
        async with world.netlink.netns_fd(netns) as fd:
            with contextlib.suppress(OSError):
                probe = codec.create_macvlan(name="p", index=7, parent=link.index, netns_fd=fd, mode="passthru")
                await world.netlink.request(probe)
                await world.netlink.request(codec.delete_link(7), netns)
                return
