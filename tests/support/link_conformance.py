"""What the drivers promise of every kind and mode of link, checked in the same way on a real kernel and on the fake one.

Each case says which kinds of link the kernel must have. `cases_for(kinds)` gives those that a kernel can play: this
machine's own has perhaps macvlan alone, a kernel started for the purpose has all. See `tests/support/link_world.py`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import pytest
import trio

from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.netdrivers import attach, codec, codec_route, detach, host_access, host_links, vlan
from beeyard.runtime.host import Netlink
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


def _needs(*kinds: str) -> Callable[[Case], Case]:
    def note(case: Case) -> Case:
        _CASES.append((kinds, case))
        return case

    return note


def cases_for(kinds: Iterable[str]) -> list[Case]:
    """The cases that a kernel with these kinds of link can play."""
    present = tuple(kinds)
    return [case for needed, case in _CASES if all(kind in present for kind in needed)]


# --- macvlan ---------------------------------------------------------------------------------------------------------


@_needs("macvlan")
async def every_macvlan_mode_gives_a_link_that_answers_until_it_is_silenced(world: LinkWorld) -> None:
    """One answer for each family, with the link's own MAC address; none after `detach`."""
    for mode in ("bridge", "private", "vepa"):
        netns = world.create_netns()
        link = await attach(world.netlink, netns, a_grant(*ADDRESSES, mode=mode), "eth0")
        assert (await mode_of(world, netns), link.mtu) == (mode, 1500)
        for address in ("10.9.0.10", "fd00:9::10"):
            assert await world.claims(address) == [link.mac], mode
        await detach(world.netlink, netns)
        assert [*await world.claims("10.9.0.10"), *await world.claims("fd00:9::10")] == []


@_needs("macvlan")
async def passthru_has_the_parents_mac_and_leaves_it_free(world: LinkWorld) -> None:
    """It answers with the parent's MAC address; once it is silenced the parent can be used again at once."""
    parent = await link_of(world, "eth2")
    netns = world.create_netns()
    link = await attach(world.netlink, netns, a_grant(*ADDRESSES, mode="passthru", parent="eth2"), "eth0")
    assert (link.mac, await mode_of(world, netns)) == (parent.mac, "passthru")
    assert await world.claims("10.9.0.10") == [parent.mac]
    await detach(world.netlink, netns)
    await detach(world.netlink, netns)
    assert await world.claims("10.9.0.10") == []
    again = await attach(world.netlink, world.create_netns(), a_grant(*ADDRESSES, parent="eth2"), "eth0")
    assert await world.claims("10.9.0.10") == [again.mac]


@_needs("macvlan")
async def passthru_and_others_exclude_each_other(world: LinkWorld) -> None:
    """Whoever comes second is refused, whatever it is."""
    passthru, bridge = (a_grant("10.9.0.11/24", mode=mode, parent="eth2") for mode in ("passthru", "bridge"))
    first = world.create_netns()
    await attach(world.netlink, first, bridge, "eth0")
    assert await refused(world, passthru) == (
        errno.EBUSY,
        "use parent eth2: other macvlan links already sit on it and mode passthru needs it alone; "
        "use another parent or remove them",
    )
    world.drop_netns(first)
    await gone(world, "eth2")
    await attach(world.netlink, world.create_netns(), passthru, "eth0")
    for second in (passthru, bridge):
        code, sentence = await refused(world, second)
        assert code == errno.EBUSY
        assert sentence.startswith("use parent eth2: ")
        assert "passthru" in sentence


@_needs("macvlan")
async def passthru_never_cuts_the_host_off(world: LinkWorld) -> None:
    """A parent with an address of the host is refused, and so is a MAC address that is not the parent's."""
    assert await refused(world, a_grant(mode="passthru")) == (
        errno.EBUSY,
        "use parent eth0: the host has its own address 10.9.0.2/24 on it, which macvlan mode passthru would cut off; "
        "use an interface without addresses or another mode",
    )
    parent = await link_of(world, "eth2")
    mac = "02:42:0a:09:00:0a"
    assert await refused(world, a_grant(mode="passthru", parent="eth2", mac=mac)) == (
        errno.EINVAL,
        f"use parent eth2: macvlan mode passthru keeps the MAC address {parent.mac} of the parent; {mac} is not possible",
    )


@_needs("macvlan")
async def a_link_without_an_address_is_up_and_silent(world: LinkWorld) -> None:
    """A network without address management: the task gets its link alone."""
    netns = world.create_netns()
    world.frames_seen()
    link = await attach(world.netlink, netns, a_grant(addresses=(), gateways=()), "eth0")
    assert link.addresses == ()
    (described,) = codec.read_links(await world.netlink.request(codec.get_link(name="eth0"), netns))
    assert described.up
    assert await defaults(world, netns) == []
    assert [f for f in world.frames_seen() if f[6:12].hex(":") == link.mac and f[12:14] == b"\x08\x06"] == []


# --- ipvlan ----------------------------------------------------------------------------------------------------------


@_needs("ipvlan")
async def ipvlan_l2_answers_and_announces_with_the_parents_mac(world: LinkWorld) -> None:
    """Each flag too; after `detach` nothing answers, and the address works at once in another namespace."""
    parent = await link_of(world, "eth0")
    for flag in ("", "bridge", "private", "vepa"):
        netns, other = world.create_netns(), world.create_netns()
        world.frames_seen()
        grant = an_ipvlan_grant(*ADDRESSES, flag=flag)
        link = await attach(world.netlink, netns, grant, "eth0")
        assert (link.mac, link.mtu, await mode_of(world, netns)) == (parent.mac, 1500, "l2")
        announced: list[bytes] = []
        with trio.move_on_after(2):  # the kernel hands what an ipvlan link says to everybody to a worker
            while len(announced) < 2:
                ours = [f for f in world.frames_seen() if f[6:12].hex(":") == parent.mac and f[0] & 1]
                announced += [
                    f for f in ours if f[12:14] == b"\x08\x06" and f[28:32] == f[38:42] == bytes([10, 9, 0, 10])
                ]
                await trio.sleep(0.01)
        assert len(announced) == 2, flag
        for address in ("10.9.0.10", "fd00:9::10"):
            assert await world.claims(address) == [parent.mac], flag
        await detach(world.netlink, netns)
        assert [*await world.claims("10.9.0.10"), *await world.claims("fd00:9::10")] == []
        await attach(world.netlink, other, grant, "eth0")
        assert await world.claims("10.9.0.10") == [parent.mac]
        await detach(world.netlink, other)


@_needs("ipvlan")
async def ipvlan_l3_is_silent_on_the_lan_and_routes_without_a_gateway(world: LinkWorld) -> None:
    """No ARP, no announcement, and the default route of each family leads to the link itself."""
    for mode in ("l3", "l3s"):
        netns = world.create_netns()
        world.frames_seen()
        await attach(world.netlink, netns, an_ipvlan_grant(*ADDRESSES, mode=mode), "eth0")
        assert await mode_of(world, netns) == mode
        assert await world.claims("10.9.0.10") == []
        assert [f for f in world.frames_seen() if f[28:32] == bytes([10, 9, 0, 10])] == []
        assert await defaults(world, netns) == [("0.0.0.0/0", None, 1024), ("::/0", None, 1024)]
        await detach(world.netlink, netns)
        addresses = codec.read_addresses(await world.netlink.request(codec.dump_addresses(), netns))
        assert [str(a) for a in addresses if not a.ip.is_loopback] == []
        internal = world.create_netns()
        await attach(world.netlink, internal, an_ipvlan_grant("10.9.0.11/24", mode=mode, internal=True), "eth0")
        assert await defaults(world, internal) == []
        await detach(world.netlink, internal)


@_needs("ipvlan")
async def ipvlan_refuses_what_it_cannot_do(world: LinkWorld) -> None:
    """A MAC address, an unknown mode or flag, an address that a sibling has, too large an MTU."""
    mac = "02:42:0a:09:00:0a"
    assert await refused(world, an_ipvlan_grant(mac=mac)) == (
        errno.EINVAL,
        f"attach eth0: ipvlan links have their parent's MAC address and cannot have {mac}; leave it out or use macvlan",
    )
    assert await refused(world, an_ipvlan_grant(mode="l4")) == (
        errno.EINVAL,
        "attach eth0: ipvlan mode l4 is not available; use one of l2, l3, l3s",
    )
    assert await refused(world, an_ipvlan_grant(flag="loud")) == (
        errno.EINVAL,
        "attach eth0: ipvlan flag loud is not available; use one of bridge, private, vepa",
    )
    assert (await refused(world, an_ipvlan_grant(mtu=9000)))[1] == (
        "use parent eth0: its MTU is 1500 and pool lan-r1 asks for 9000; lower one or raise the other"
    )
    assert (await refused(world, an_ipvlan_grant(mtu=60)))[1].startswith("create eth0: MTU 60 is not possible here")
    assert (await refused(world, an_ipvlan_grant(parent="lo")))[1] == (
        "use parent lo: ipvlan links need an Ethernet interface; give the pool another parent (-o parent=…)"
    )
    await attach(world.netlink, world.create_netns(), an_ipvlan_grant("10.9.0.10/24"), "eth0")
    assert await refused(world, an_ipvlan_grant("10.9.0.10/24")) == (
        errno.EADDRINUSE,
        "add address 10.9.0.10/24 to eth0: another ipvlan link on eth0 already has this address; give each task its own",
    )


@_needs("ipvlan", "macvlan")
async def macvlan_and_ipvlan_exclude_each_other(world: LinkWorld) -> None:
    """Whoever comes second is told of the other; the inventory sees ipvlan in any namespace."""
    first = world.create_netns()
    await attach(world.netlink, first, an_ipvlan_grant(), "eth0")
    assert await refused(world, a_grant("10.9.0.11/24")) == (
        errno.EBUSY,
        "use parent eth0: links of another kind (ipvlan) already sit on it, which excludes macvlan; "
        "use another parent or remove them",
    )
    links, _ = await host_links(world.netlink)
    assert {link.name: link.child_kind for link in links} == {"eth0": "ipvlan", "eth2": ""}
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.12/24", parent="eth2"), "eth0")
    assert await refused(world, an_ipvlan_grant("10.9.0.11/24", parent="eth2")) == (
        errno.EBUSY,
        "use parent eth2: links of another kind (macvlan) already sit on it, which excludes ipvlan; "
        "use another parent or remove them",
    )


# --- VLANs -----------------------------------------------------------------------------------------------------------


@_needs("vlan", "macvlan")
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
    assert await vlan.find(world.netlink, "eth0.100") is None


@_needs("vlan")
async def a_vlan_of_somebody_else_is_used_and_stays(world: LinkWorld) -> None:
    """It is not even set up: whoever made it knows why it is as it is."""
    base = await link_of(world, "eth0")
    await world.netlink.request(codec.create_vlan(name="eth0.100", parent=base.index, vlan_id=100, group=0))
    assert not await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    assert not await vlan.remove(world.netlink, "eth0.100")
    assert await vlan.ours(world.netlink) == []
    assert not (await link_of(world, "eth0.100")).up


@_needs("vlan")
async def a_vlan_follows_the_mtu_of_its_base(world: LinkWorld) -> None:
    """A base that may carry more now: the next task's VLAN may too."""
    base = await link_of(world, "eth0")
    await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    await world.netlink.request(codec.set_mtu(base.index, 1400))
    assert (await link_of(world, "eth0.100")).mtu == 1400
    await world.netlink.request(codec.set_mtu(base.index, 1500))
    await vlan.ensure(world.netlink, a_vlan("eth0.100"))
    assert (await link_of(world, "eth0.100")).mtu == 1500


@_needs("vlan", "macvlan")
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


@_needs("macvlan")
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


@_needs("macvlan")
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


@_needs("macvlan")
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


# --- their tools -----------------------------------------------------------------------------------------------------


def an_ipvlan_grant(*addresses: str, **changes: object) -> AddressGrant:
    """An ipvlan grant in mode l2 on eth0."""
    return a_grant(*addresses, **({"driver": "ipvlan", "mode": "l2"} | changes))


def a_vlan(name: str) -> vlan.Vlan:
    """The VLAN of a parent's name."""
    parsed = vlan.parse(name)
    assert parsed is not None
    return parsed


async def link_of(world: LinkWorld, name: str) -> codec.LinkInfo:
    """A link of the host, which must be there."""
    link = await vlan.find(world.netlink, name)
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


__all__ = ["ADDRESSES", "Case", "LinkWorld", "an_ipvlan_grant", "cases_for"]
