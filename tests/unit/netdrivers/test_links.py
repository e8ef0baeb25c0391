"""Every kind and mode of link on the fake kernel; `tests/e2e/test_links.py` checks the same on the real one."""

from __future__ import annotations

import errno

import pytest

from beeyard.core.errors import NetlinkError
from beeyard.core.model import Link
from beeyard.netdrivers import attach, host_access, host_links, vlan
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.grants import a_grant
from tests.support.link_conformance import a_vlan, an_ipvlan_grant, cases_for

KINDS = ("ipvlan", "macvlan", "vlan")
_LINKS = (
    Link(name="eth0", mtu=1500, up=True, addresses=("10.9.0.2/24", "fd00:9::2/64")),
    Link(name="eth2", mtu=1500, up=True),
)


class FakeLinkWorld:
    """A fake kernel as a world."""

    def __init__(self, kinds: tuple[str, ...] = KINDS) -> None:
        self.kernel = FakeKernel(_LINKS, kinds)
        self.netlink = self.kernel
        self.create_netns = self.kernel.create_netns
        self.drop_netns = self.kernel.drop_netns
        self.set_up = self.kernel.set_link_up

    async def claims(self, address: str) -> list[str]:
        return [live.mac for live in self.kernel.live_addresses() if live.arp and live.address == address]

    def frames_seen(self) -> list[bytes]:
        frames = [sent.frame for sent in self.kernel.frames]
        self.kernel.frames.clear()
        return frames


@pytest.mark.parametrize("case", cases_for(KINDS), ids=lambda case: case.__name__)
async def test_links_on_the_fake_kernel(case):
    """See the case's own docstring."""
    await case(FakeLinkWorld())


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        (an_ipvlan_grant(), "create eth0: this host's kernel cannot create ipvlan links; run: modprobe ipvlan"),
        (
            an_ipvlan_grant(mode="l3s"),
            "create eth0: this host's kernel cannot create ipvlan links in mode l3s; run: modprobe ipvlan, or use mode l3",
        ),
        (a_grant(flag="private"), "attach eth0: macvlan flag private is not available; only ipvlan has flags"),
    ],
)
async def test_attach_of_what_the_kernel_lacks_says_so(grant, words):
    world = FakeLinkWorld(kinds=())
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, world.create_netns(), grant, "eth0")
    assert str(caught.value) == words


async def test_a_vlan_where_the_kernel_lacks_them_says_how_to_get_them():
    with pytest.raises(NetlinkError) as caught:
        await vlan.ensure(FakeLinkWorld(kinds=("macvlan",)).netlink, a_vlan("eth0.100"))
    assert caught.value.errno == errno.EOPNOTSUPP
    assert str(caught.value) == (
        "create eth0.100: this host's kernel cannot create VLAN sub-interfaces; run: modprobe 8021q"
    )


async def test_a_vlan_with_too_long_a_name_is_refused():
    kernel = FakeKernel([Link(name="enp0s31f6longer", mtu=1500, up=True)], KINDS)
    with pytest.raises(NetlinkError) as caught:
        await vlan.ensure(kernel, a_vlan("enp0s31f6longer.100"))
    assert str(caught.value) == (
        "create enp0s31f6longer.100: its name has more than 15 characters; give enp0s31f6longer a shorter name"
    )


async def test_ipvlan_children_take_the_mode_of_the_last_one():
    """As Linux does; `agent.parents` is there to keep it from happening."""
    world = FakeLinkWorld()
    first = world.create_netns()
    await attach(world.netlink, first, an_ipvlan_grant("10.9.0.10/24"), "eth0")
    assert await world.claims("10.9.0.10") != []
    await attach(world.netlink, world.create_netns(), an_ipvlan_grant("10.9.0.11/24", mode="l3"), "eth0")
    assert await world.claims("10.9.0.10") == []
    assert "10.9.0.10" in [live.address for live in world.kernel.live_addresses()]


async def test_host_links_tells_of_all_kinds_and_of_a_captured_host():
    world = FakeLinkWorld()
    assert (await host_links(world.netlink))[1] == KINDS
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.10/24", parent="eth2", mode="passthru"), "eth0")
    assert [live.netns != "" for live in world.kernel.live_addresses() if live.interface == "eth2"] == []


@pytest.mark.parametrize(("parent", "expected"), [("eth0", "bee-eth0"), ("eth0.100", "bee-eth0.100")])
def test_link_name_tells_its_parent(parent, expected):
    assert host_access.link_name(parent) == expected


def test_link_name_of_a_long_parent_fits():
    names = {host_access.link_name(parent) for parent in ("enp0s31f6.4094", "enp0s31f6.4093", "enp0s31f6n1.409")}
    assert len(names) == 3
    assert max(len(name) for name in names) <= 15


async def test_host_access_adds_a_route_for_an_address_of_the_host_that_is_elsewhere():
    """The task must not go through its gateway to its own host; the host speaks from the subnet that both share."""
    kernel = FakeKernel([Link(name="eth0", mtu=1500, up=True, addresses=("10.8.0.2/24", "10.9.0.2/24"))])
    netns = kernel.create_netns()
    grant = a_grant("10.9.0.10/24", host_access=True)
    link = await attach(kernel, netns, grant, "eth0")
    await host_access.connect(kernel, netns, grant, "eth0")
    host_side = kernel.links_of("")[2]
    assert kernel.ways_of("") == [("10.9.0.10/32", "bee-eth0", "", "10.9.0.2")]
    assert kernel.neighbours_of("") == [("bee-eth0", "10.9.0.10", link.mac)]
    assert kernel.ways_of(netns) == [("10.8.0.2/32", "eth0", "", "")]
    assert kernel.neighbours_of(netns) == [("eth0", "10.8.0.2", host_side.mac), ("eth0", "10.9.0.2", host_side.mac)]
    assert not host_side.arp
    assert not host_side.makes_own_addresses
    assert kernel.links_of("")[0].namespace.settings == {"ipv6/conf/bee-eth0/accept_ra": "0"}
