"""What the drivers promise of the links that they make for the host itself. See `tests/support/link_conformance.py`."""

from __future__ import annotations

import errno
import ipaddress

import pytest

from beeyard.core.errors import NetlinkError
from beeyard.netdrivers import attach, codec, codec_route, host_access, host_links, own_links, vlan
from tests.support.grants import a_grant
from tests.support.link_case import ADDRESSES, LinkWorld, a_vlan, errno_of, ip_of, link_of, needs, routes, vlan_refused

# --- VLANs -----------------------------------------------------------------------------------------------------------


@needs("vlan", "macvlan")
async def a_vlan_is_made_and_taken_away(world: LinkWorld) -> None:
    """Up, without addresses, with the base's MTU, and known as ours; tasks on it and on its base do not exclude."""
    wanted = a_vlan("eth0.100")
    assert [await vlan.ensure(world.netlink, wanted), await vlan.ensure(world.netlink, wanted)] == [True, True]
    link, base = await link_of(world, "eth0.100"), await link_of(world, "eth0")
    assert (link.kind, link.vlan_id, link.up, link.mtu, link.mac) == ("vlan", 100, True, base.mtu, base.mac)
    assert await vlan.ours(world.netlink) == ["eth0.100"]
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.10/24"), "eth0")
    await attach(world.netlink, world.create_netns(), a_grant("10.9.1.10/24", parent="eth0.100", gateways=()), "eth0")
    links, kinds = await host_links(world.netlink)
    reported = {link.name: (link.child_kind, link.addresses) for link in links}
    assert "vlan" in kinds
    assert (reported["eth0"][0], reported["eth0.100"]) == ("", ("", ()))
    assert [await vlan.remove(world.netlink, "eth0.100"), await vlan.remove(world.netlink, "eth0.100")] == [True, False]
    assert await own_links.find(world.netlink, "eth0.100") is None


@needs("vlan")
async def a_vlan_of_somebody_else_is_used_and_stays(world: LinkWorld) -> None:
    """It is not even set up: whoever made it knows why it is as it is."""
    base = await link_of(world, "eth0")
    await world.netlink.request(codec.create_vlan(name="eth0.100", parent=base.index, vlan_id=100, group=0))
    assert not await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    assert not await vlan.remove(world.netlink, "eth0.100")
    assert await vlan.ours(world.netlink) == []
    assert not (await link_of(world, "eth0.100")).up


@needs("vlan")
async def a_vlan_follows_the_mtu_of_its_base(world: LinkWorld) -> None:
    """A base that may carry more now: the next task's VLAN may too."""
    base = await link_of(world, "eth0")
    await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    await world.netlink.request(codec.set_mtu(base.index, 1400))
    assert (await link_of(world, "eth0.100")).mtu == 1400
    await world.netlink.request(codec.set_mtu(base.index, 1500))
    await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    assert (await link_of(world, "eth0.100")).mtu == 1500


@needs("vlan", "macvlan")
async def a_vlan_that_cannot_be_is_refused(world: LinkWorld) -> None:
    """Each reason by name, and nothing is left."""
    eth0, eth2 = await link_of(world, "eth0"), await link_of(world, "eth2")
    for name, words in (
        ("eth0.0", "create eth0.0: 0 is no VLAN id; use one from 1 to 4094"),
        ("eth0.4095", "create eth0.4095: 4095 is no VLAN id; use one from 1 to 4094"),
        ("eth7.100", "create eth7.100: it does not exist and neither does eth7, on which it could be made"),
        ("lo.100", "create lo.100: lo is no Ethernet interface; give the pool another parent"),
    ):
        assert (await vlan_refused(world, name)).startswith(words)
    await vlan.ensure(world.netlink, a_vlan("eth0.10"))
    assert await vlan_refused(world, "eth0.10.20") == (
        "create eth0.10.20: eth0.10 is a VLAN itself and no VLAN is made within another; make it by hand or use eth0.10"
    )
    await world.netlink.request(codec.create_host_side(name="eth0.11", parent=eth2.index, group=0))
    assert await vlan_refused(world, "eth0.11") == (
        "create eth0.11: a link of this name exists that is no VLAN (macvlan); rename it or use another id"
    )
    await world.netlink.request(codec.create_vlan(name="eth0.12", parent=eth0.index, vlan_id=13, group=0))
    assert await vlan_refused(world, "eth0.12") == (
        "create eth0.12: a link of this name exists that is VLAN 13 on eth0; rename it or use another id"
    )
    assert await vlan_refused(world, "eth0.13") == (
        "create eth0.13: VLAN 13 of eth0 exists under another name; use that name as the parent"
    )
    world.set_up("eth0", False)
    assert await vlan_refused(world, "eth0.14") == "create eth0.14: eth0 is down; run: ip link set eth0 up"
    assert await vlan_refused(world, "eth0.10") == "create eth0.10: eth0 is down; run: ip link set eth0 up"
    assert sorted(await vlan.ours(world.netlink)) == ["eth0.10"]


# --- host access -----------------------------------------------------------------------------------------------------


@needs("macvlan")
async def host_access_is_not_seen_on_the_lan(world: LinkWorld) -> None:
    """One answer for the host and one for the task, each with its own MAC address; nothing is left at the end."""
    parent, netns = await link_of(world, "eth0"), world.create_netns()
    grant = a_grant(*ADDRESSES, host_access=True)
    link = await attach(world.netlink, netns, grant, "eth0")
    for _ in range(2):
        await host_access.connect(world.netlink, netns, grant, "eth0")
    host_side = await link_of(world, "bee-eth0")
    assert host_side.up
    assert await routes(world, host_side.index) == ["10.9.0.10/32", "fd00:9::10/128"]
    for address, mac in (("10.9.0.2", parent.mac), ("fd00:9::2", parent.mac), ("10.9.0.10", link.mac)):
        assert await world.claims(address) == [mac], address
    links, _ = await host_links(world.netlink)
    assert [(link.name, link.child_kind) for link in links] == [("eth0", "macvlan"), ("eth2", "")]
    own = codec.read_addresses(await world.netlink.request(codec.dump_addresses()))
    assert [str(a) for a in own if a.index == host_side.index] == []
    await host_access.disconnect(world.netlink, grant)
    await host_access.disconnect(world.netlink, grant)
    assert await routes(world, host_side.index) == []
    assert [await world.claims("10.9.0.2"), await world.claims("10.9.0.10")] == [[parent.mac], [link.mac]]
    for _ in range(2):
        await host_access.remove(world.netlink, "bee-eth0")
    assert await host_access.ours(world.netlink) == []


@needs("macvlan")
async def host_access_forgets_who_is_gone(world: LinkWorld) -> None:
    """`prune` keeps the ways that are wanted, and nothing but ours."""
    grants = [a_grant(f"10.9.0.{i}/24", host_access=True) for i in (10, 11)]
    for grant in grants:
        netns = world.create_netns()
        await attach(world.netlink, netns, grant, "eth0")
        await host_access.connect(world.netlink, netns, grant, "eth0")
    (host_side,) = await host_access.ours(world.netlink)
    await host_access.prune(world.netlink, host_side, ["10.9.0.11"])
    assert await routes(world, host_side.index) == ["10.9.0.11/32"]


@needs("macvlan")
async def host_access_that_cannot_be_is_refused(world: LinkWorld) -> None:
    """Another mode, a parent on which the host has no address, no address at all, a name that is somebody else's."""
    netns = world.create_netns()
    for changes, words in (
        (
            {"mode": "private"},
            "give the host access over eth0: host access is for macvlan mode bridge and this is macvlan mode private; "
            "leave beeyard.host_access out or use that mode",
        ),
        (
            {"parent": "eth2"},
            "give the host access over eth2: the host has no address on eth2 to which 10.9.0.10/24 could speak; "
            "give it one or leave beeyard.host_access out",
        ),
        ({"addresses": ()}, "give the host access over eth0: a task without an address of its own has no host access"),
        ({"parent": "eth7"}, "use parent eth7: this host has no such interface"),
    ):
        with pytest.raises(NetlinkError) as caught:
            await host_access.connect(world.netlink, netns, a_grant("10.9.0.10/24", **changes), "eth0")
        assert str(caught.value).startswith(words)
    eth2 = await link_of(world, "eth2")
    await world.netlink.request(codec.create_host_side(name="bee-eth0", parent=eth2.index, group=0))
    with pytest.raises(NetlinkError, match="a link named bee-eth0 exists that somebody else made; rename it"):
        await host_access.connect(world.netlink, netns, a_grant("10.9.0.10/24"), "eth0")
    assert await host_access.ours(world.netlink) == []


# --- what the drivers build on ---------------------------------------------------------------------------------------


@needs("macvlan")
async def routes_and_neighbours_that_cannot_be_are_refused(world: LinkWorld) -> None:
    """With the error numbers that the drivers rely on."""
    index = (await link_of(world, "eth0")).index
    destination, here, there = ipaddress.ip_network("10.9.0.10/32"), ip_of("10.9.0.10"), ip_of("10.8.0.3")
    set_route, protocol = codec_route.set_route, host_access.ROUTE_PROTOCOL
    for request, code in (
        (set_route(destination, index=99, protocol=protocol), errno.ENODEV),
        (set_route(destination, index=index, protocol=protocol, source=there), errno.EINVAL),
        (set_route(destination, index=index, protocol=protocol, gateway=there), errno.ENETUNREACH),
        (codec_route.delete_route(destination, index=index, protocol=protocol), errno.ESRCH),
        (codec_route.set_neighbour(99, here, "02:00:00:00:00:0a"), errno.ENODEV),
        (codec_route.delete_neighbour(index, here), errno.ENOENT),
        (codec.set_mtu(index, 60), errno.EINVAL),
    ):
        assert await errno_of(world, request) == code
    # What was made is replaced, and is gone with its link.
    for metric in (0, 0, 5):
        await world.netlink.request(set_route(destination, index=index, protocol=protocol, metric=metric))
    assert await routes(world, index) == ["10.9.0.10/32"] * 2
    world.set_up("eth0", False)
    assert await routes(world, index) == []
    assert await errno_of(world, set_route(destination, index=index, protocol=protocol)) == errno.ENETDOWN


@needs("vlan")
async def vlans_that_cannot_be_are_refused_by_the_kernel_too(world: LinkWorld) -> None:
    """With the error numbers that the drivers rely on."""
    index = (await link_of(world, "eth0")).index
    for name, parent, vlan_id, code in (
        ("eth0.5", index, 5000, errno.ERANGE),
        ("lo.5", 1, 5, errno.EOPNOTSUPP),
        ("eth0.5", 99, 5, errno.ENODEV),
    ):
        request = codec.create_vlan(name=name, parent=parent, vlan_id=vlan_id, group=0)
        assert await errno_of(world, request) == code
    world.set_up("eth0", False)
    await world.netlink.request(codec.create_vlan(name="eth0.5", parent=index, vlan_id=5, group=0))
    assert await errno_of(world, codec.set_link_up((await link_of(world, "eth0.5")).index)) == errno.ENETDOWN
