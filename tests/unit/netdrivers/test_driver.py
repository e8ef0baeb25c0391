"""The driver's promises on the fake kernel; `tests/e2e/test_driver.py` checks the same ones on the real kernel."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator

import pytest

from beeyard.core.errors import NetlinkError
from beeyard.core.model import Link
from beeyard.netdrivers import attach, codec, host_links
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.driver_conformance import CASES, KernelWorld
from tests.support.grants import a_grant

_LINKS = (
    Link(name="eth0", mtu=1500, up=True, addresses=("10.9.0.2/24",)),
    Link(name="eth1", mtu=1500, up=True, child_kind="ipvlan"),
)


class FakeWorld:
    """A fake kernel as a world."""

    def __init__(self) -> None:
        self.kernel = FakeKernel(_LINKS)
        self.netlink = self.kernel
        self.create_netns = self.kernel.create_netns
        self.drop_netns = self.kernel.drop_netns

    def set_parent_up(self, up: bool) -> None:
        self.kernel.set_link_up("eth0", up)

    async def answers(self, address: str) -> bool:
        return address in [live.address for live in self.kernel.live_addresses()]

    def frames_seen(self) -> list[bytes]:
        frames = [sent.frame for sent in self.kernel.frames]
        self.kernel.frames.clear()
        return frames


@contextlib.asynccontextmanager
async def fake_world() -> AsyncIterator[KernelWorld]:
    yield FakeWorld()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_driver_on_the_fake_kernel(case):
    """See the case's own docstring."""
    async with fake_world() as world:
        await case(world)


async def test_attach_when_the_kernel_lacks_macvlan_says_how_to_get_it():
    kernel = FakeKernel(kinds=())
    with pytest.raises(NetlinkError) as caught:
        await attach(kernel, kernel.create_netns(), a_grant(), "eth0")
    assert caught.value.errno == errno.EOPNOTSUPP
    assert str(caught.value) == "create eth0: this host's kernel cannot create macvlan links; run: modprobe macvlan"


async def test_attach_on_a_parent_with_ipvlan_links_says_that_they_exclude_each_other():
    kernel = FakeKernel(_LINKS)
    with pytest.raises(NetlinkError) as caught:
        await attach(kernel, kernel.create_netns(), a_grant(parent="eth1"), "eth0")
    assert str(caught.value) == (
        "use parent eth1: links of another kind (ipvlan) already sit on it, which excludes macvlan; "
        "use another parent or remove them"
    )


async def test_host_links_knows_both_kinds_where_the_kernel_has_both():
    _, kinds = await host_links(FakeKernel(kinds=("macvlan", "ipvlan")))
    assert kinds == ("ipvlan", "macvlan")


async def test_host_links_sees_macvlan_links_of_the_host_itself():
    kernel = FakeKernel()
    async with kernel.netns_fd("") as own:
        await attach_in_host(kernel, own)
    links, _ = await host_links(kernel)
    assert [(link.name, link.child_kind) for link in links] == [("eth0", "macvlan"), ("m0", "")]


async def attach_in_host(kernel: FakeKernel, own: int) -> None:
    (parent,) = codec.read_links(await kernel.request(codec.get_link(name="eth0")))
    await kernel.request(codec.create_macvlan(name="m0", index=0, parent=parent.index, netns_fd=own, mode="bridge"))


async def test_attach_has_links_keep_to_themselves():
    """No address of a router's, and no ARP answer for an address of another link of the task."""
    kernel = FakeKernel()
    netns = kernel.create_netns()
    await attach(kernel, netns, a_grant(), "eth0")
    link = kernel.links_of(netns)[1]
    assert not link.makes_own_addresses
    assert (link.arp_ignore, link.arp_announce) == (1, 2)
    assert link.namespace.settings == {"ipv6/conf/default/accept_ra": "0"}


async def test_attach_prefers_the_first_interface_for_the_default_route():
    kernel = FakeKernel()
    netns = kernel.create_netns()
    await attach(kernel, netns, a_grant("10.9.0.10/24", gateways=("10.9.0.1",)), "eth0")
    await attach(kernel, netns, a_grant("10.9.0.11/24", gateways=("10.9.0.1",)), "eth1")
    assert kernel.routes_of(netns) == [("eth0", "10.9.0.1", 1024), ("eth1", "10.9.0.1", 1025)]
