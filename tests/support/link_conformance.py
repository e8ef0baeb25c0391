"""What the drivers promise of every kind and mode of link, checked in the same way on a real kernel and on the fake one.

Each case says which kinds of link the kernel must have. `cases_for(kinds)` gives those that a kernel can play: this
machine's own has perhaps macvlan alone, a kernel started for the purpose has all. See `tests/support/link_world.py`.
"""

from __future__ import annotations

import errno

import trio

from beeyard.netdrivers import attach, codec, detach, host_links
from tests.support import host_link_conformance  # noqa: F401 - its cases belong to the list
from tests.support.grants import a_grant
from tests.support.link_case import (
    ADDRESSES,
    Case,
    LinkWorld,
    a_vlan,
    an_ipvlan_grant,
    cases_for,
    defaults,
    gone,
    link_of,
    mode_of,
    needs,
    refused,
)

# --- macvlan ---------------------------------------------------------------------------------------------------------


@needs("macvlan")
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


@needs("macvlan")
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


@needs("macvlan")
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


@needs("macvlan")
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


@needs("macvlan")
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


@needs("ipvlan")
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


@needs("ipvlan")
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


@needs("ipvlan")
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


@needs("ipvlan", "macvlan")
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


__all__ = ["ADDRESSES", "Case", "LinkWorld", "a_vlan", "an_ipvlan_grant", "cases_for"]
