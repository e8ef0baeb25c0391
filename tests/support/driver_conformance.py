"""What the macvlan driver promises, checked in the same way on the real kernel and on the fake one.

`check_driver` runs every case in a world of its own; `CASES` serves parametrised tests, so that a failure has a name.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
import trio

from beeyard.core.errors import NetlinkError
from beeyard.netdrivers import attach, codec, detach, host_links
from beeyard.runtime.host import Netlink
from tests.support.counting_netlink import CountingNetlink
from tests.support.grants import a_grant


class KernelWorld(Protocol):
    """One host with link eth0 (MTU 1500, up) on a LAN, and eth1 on which macvlan is impossible; no ipvlan."""

    @property
    def netlink(self) -> Netlink: ...

    def create_netns(self) -> str: ...

    def drop_netns(self, netns: str) -> None: ...

    def set_parent_up(self, up: bool) -> None: ...

    async def answers(self, address: str) -> bool:
        """Whether somebody else on the LAN gets an answer from the address."""

    def frames_seen(self) -> list[bytes]:
        """What was sent to everybody on the LAN since the last call."""


MakeKernel = Callable[[], AbstractAsyncContextManager[KernelWorld]]


async def check_driver(make_kernel: MakeKernel) -> None:
    """Run every case, each in a fresh world."""
    for case in CASES:
        async with make_kernel() as world:
            await case(world)


async def attach_gives_a_link_that_answers(world: KernelWorld) -> None:
    """After `attach` both addresses answer on the LAN, and were announced to it with the link's own MAC."""
    netns = world.create_netns()
    world.frames_seen()
    link = await attach(world.netlink, netns, a_grant("10.9.0.10/24", "fd00:9::10/64"), "eth0")
    assert link.interface == "eth0"
    assert link.mtu == 1500
    assert link.addresses == ("10.9.0.10/24", "fd00:9::10/64")
    assert await world.answers("10.9.0.10")
    assert await world.answers("fd00:9::10")
    mac = bytes.fromhex(link.mac.replace(":", ""))
    ours = [frame for frame in world.frames_seen() if frame[6:12] == mac and frame[0] & 1]
    assert [f[12:14].hex() for f in ours if f[12:14] == b"\x08\x06"] == ["0806", "0806"], "ARP request and reply"
    assert len([f for f in ours if f[12:14] == b"\x86\xdd" and f[54] == 136]) == 1, "one neighbour advertisement"


async def attach_gives_only_what_was_granted(world: KernelWorld) -> None:
    """No address appears on a task's link that was not granted; loopback is up."""
    netns = world.create_netns()
    await attach(world.netlink, netns, a_grant("10.9.0.10/24", "fd00:9::10/64"), "eth0")
    links = {link.name: link for link in codec.read_links(await world.netlink.request(codec.dump_links(), netns))}
    assert sorted(links) == ["eth0", "lo"]
    assert links["lo"].up
    assert links["eth0"].kind == "macvlan"
    addresses = codec.read_addresses(await world.netlink.request(codec.dump_addresses(), netns))
    of_eth0 = sorted(str(a) for a in addresses if a.index == links["eth0"].index)
    assert of_eth0 == ["10.9.0.10/24", "fd00:9::10/64"]


async def attach_takes_mac_and_mtu(world: KernelWorld) -> None:
    """MAC and MTU of the grant are the link's."""
    netns = world.create_netns()
    link = await attach(world.netlink, netns, a_grant("10.9.0.10/24", mac="02:42:0a:09:00:0a", mtu=1400), "eth0")
    assert (link.mac, link.mtu) == ("02:42:0a:09:00:0a", 1400)


async def attach_twice_gives_two_links(world: KernelWorld) -> None:
    """A task on two networks has two links, each with its default route."""
    netns = world.create_netns()
    await attach(world.netlink, netns, a_grant("10.9.0.10/24"), "eth0")
    await attach(world.netlink, netns, a_grant("10.9.0.11/24", "fd00:9::11/64"), "eth1")
    assert sorted(await _names(world, netns)) == ["eth0", "eth1", "lo"]


async def attach_internal_needs_no_gateway(world: KernelWorld) -> None:
    """An internal network's gateway is not used, so it may be anything."""
    await attach(world.netlink, world.create_netns(), a_grant(gateways=("192.0.2.1",), internal=True), "eth0")


async def detach_silences_at_once(world: KernelWorld) -> None:
    """After `detach` no address answers, also when the namespace still exists; a second time is fine."""
    netns = world.create_netns()
    await attach(world.netlink, netns, a_grant("10.9.0.10/24", "fd00:9::10/64"), "eth0")
    assert await world.answers("10.9.0.10")
    await detach(world.netlink, netns)
    assert not await world.answers("10.9.0.10")
    assert not await world.answers("fd00:9::10")
    await detach(world.netlink, netns)


async def detach_of_a_namespace_that_is_gone_is_fine(world: KernelWorld) -> None:
    """`detach` may come after the namespace went."""
    netns = world.create_netns()
    world.drop_netns(netns)
    await detach(world.netlink, netns)


async def an_address_moves_within_the_host(world: KernelWorld) -> None:
    """A silenced task's address works at once in another namespace, with the same MAC too."""
    old, new = world.create_netns(), world.create_netns()
    grant = a_grant("10.9.0.10/24", "fd00:9::10/64")
    await attach(world.netlink, old, grant, "eth0")
    await detach(world.netlink, old)
    await attach(world.netlink, new, grant, "eth0")
    assert await world.answers("10.9.0.10")
    assert await world.answers("fd00:9::10")


async def parent_missing(world: KernelWorld) -> None:
    """A parent that is not there is named."""
    error = await _refused(world, a_grant(parent="eth7"))
    assert error.errno == errno.ENODEV
    assert str(error) == (
        "use parent eth7: this host has no such interface; create it, or give pool lan-r1 another parent (-o parent=…)"
    )


async def parent_down(world: KernelWorld) -> None:
    """A parent that is down is refused rather than giving a task without network."""
    world.set_parent_up(False)
    error = await _refused(world, a_grant())
    assert error.errno == errno.ENETDOWN
    assert str(error) == "use parent eth0: the interface is down; run: ip link set eth0 up"


async def parent_taken(world: KernelWorld) -> None:
    """A parent whose packets go elsewhere already is refused, and host_links says so."""
    error = await _refused(world, a_grant(parent="eth1"))
    assert error.errno == errno.EBUSY
    assert error.interface == "eth1"
    assert "use another parent" in error.advice or "use that as the parent" in error.advice


async def parent_not_ethernet(world: KernelWorld) -> None:
    """A loopback cannot be a parent."""
    error = await _refused(world, a_grant(parent="lo"))
    assert error.errno == errno.EINVAL
    assert str(error) == (
        "use parent lo: macvlan links need an Ethernet interface; give the pool another parent (-o parent=…)"
    )


async def name_in_use(world: KernelWorld) -> None:
    """A second link of the same name is refused, and the first stays."""
    netns = world.create_netns()
    first = await attach(world.netlink, netns, a_grant("10.9.0.10/24"), "eth0")
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, a_grant("10.9.0.11/24"), "eth0")
    assert caught.value.errno == errno.EEXIST
    assert str(caught.value) == (
        "create eth0: the task's namespace already has an interface of this name; remove it or use another name"
    )
    (still,) = codec.read_links(await world.netlink.request(codec.get_link(name="eth0"), netns))
    assert (first.index, first.mac) == (still.index, still.mac)
    assert await world.answers("10.9.0.10")


async def address_in_use(world: KernelWorld) -> None:
    """An address that the namespace has already is refused."""
    netns = world.create_netns()
    await attach(world.netlink, netns, a_grant("10.9.0.10/24"), "eth0")
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, a_grant("10.9.0.10/24"), "eth1")
    assert caught.value.errno == errno.EEXIST
    assert str(caught.value) == (
        "add address 10.9.0.10/24 to eth1: the task's namespace already has this address; attach each address once"
    )
    assert sorted(await _names(world, netns)) == ["eth0", "lo"]


async def mtu_too_large(world: KernelWorld) -> None:
    """A link cannot carry more than its parent."""
    error = await _refused(world, a_grant(mtu=9000))
    assert error.errno == errno.EINVAL
    assert str(error) == "use parent eth0: its MTU is 1500 and pool lan-r1 asks for 9000; lower one or raise the other"


async def mtu_too_small(world: KernelWorld) -> None:
    """Below 68 the kernel refuses, and below 1280 it does with IPv6."""
    error = await _refused(world, a_grant(mtu=60))
    assert error.errno == errno.EINVAL
    assert "create eth0: MTU 60 is not possible here" in str(error)
    assert str(error).endswith("use one from 68 to 1500")
    error = await _refused(world, a_grant(mtu=1000))
    assert error.errno == errno.EINVAL
    expected = "add address fd00:9::10/64 to eth0: IPv6 needs an MTU of at least 1280 and pool lan-r1 asks for 1000"
    assert expected == str(error)


async def mac_in_use(world: KernelWorld) -> None:
    """Two links on one parent cannot have the same MAC address."""
    mac = "02:42:0a:09:00:0a"
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.10/24", mac=mac), "eth0")
    error = await _refused(world, a_grant("10.9.0.11/24", mac=mac))
    assert error.errno == errno.EADDRINUSE
    assert (f"raise eth0: another link on eth0 already has the MAC address {mac}; use another or none") == str(error)


async def mac_impossible(world: KernelWorld) -> None:
    """A multicast MAC address and nonsense are refused by name."""
    error = await _refused(world, a_grant(mac="01:00:5e:00:00:01"))
    assert error.errno == errno.EADDRNOTAVAIL
    assert str(error) == (
        "create eth0: 01:00:5e:00:00:01 cannot be a link's own MAC address; use a unicast one such as 02:42:0a:4d:00:40"
    )
    error = await _refused(world, a_grant(mac="red"))
    assert str(error) == "attach eth0: red is not a MAC address; give six bytes such as 02:42:0a:4d:00:40"


async def gateway_elsewhere(world: KernelWorld) -> None:
    """A gateway outside the subnet is refused, for both families."""
    error = await _refused(world, a_grant("10.9.0.10/24", gateways=("10.8.0.1",)))
    assert str(error) == (
        "route through gateway 10.8.0.1 from eth0: it is not in the subnet of 10.9.0.10/24; "
        "correct the gateway of pool lan-r1"
    )
    error = await _refused(world, a_grant("fd00:9::10/64", gateways=("fd00:8::1",)))
    assert "route through gateway fd00:8::1 from eth0: it is not in the subnet of fd00:9::10/64" in str(error)


async def ipv6_switched_off(world: KernelWorld) -> None:
    """Where IPv6 is off, a grant of both families is refused and one of IPv4 alone works."""
    netns = world.create_netns()
    async with world.netlink.netns_fd(netns, settings={"ipv6/conf/default/disable_ipv6": "1"}):
        pass
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, a_grant(), "eth0")
    assert caught.value.errno == errno.EACCES
    assert str(caught.value) == (
        "add address fd00:9::10/64 to eth0: IPv6 is switched off on this host; "
        "set net.ipv6.conf.default.disable_ipv6 = 0 or use an IPv4 pool"
    )
    assert await _names(world, netns) == ["lo"]
    await attach(world.netlink, netns, a_grant("10.9.0.10/24"), "eth0")
    assert await world.answers("10.9.0.10")


async def settings_that_this_kernel_lacks_are_skipped(world: KernelWorld) -> None:
    """A kernel without some feature has nothing to switch off."""
    async with world.netlink.netns_fd(world.create_netns(), settings={"ipv9/conf/default/accept_ra": "0"}):
        pass


async def namespace_gone(world: KernelWorld) -> None:
    """A task whose namespace went away is told so."""
    netns = world.create_netns()
    world.drop_netns(netns)
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, a_grant(), "eth0")
    assert f"attach eth0: the network namespace {netns} is gone; the task has to start anew" == str(caught.value)


async def kind_unknown(world: KernelWorld) -> None:
    """A driver or mode that is not there is refused with what is."""
    error = await _refused(world, a_grant(driver="overlay"))
    assert error.errno == errno.EOPNOTSUPP
    assert str(error) == "attach eth0: network driver overlay is not available on this host; use macvlan or ipvlan"
    error = await _refused(world, a_grant(mode="source"))
    assert str(error) == "attach eth0: macvlan mode source is not available; use one of bridge, private, vepa, passthru"


async def host_links_tells_parents_and_kinds(world: KernelWorld) -> None:
    """The inventory has eth0 as it is, eth1 as taken, no loopback; asking leaves nothing behind."""
    before = await _names(world, "")
    links, kinds = await host_links(world.netlink)
    by_name = {link.name: link for link in links}
    assert kinds == ("macvlan",)
    assert "lo" not in by_name
    assert (by_name["eth0"].up, by_name["eth0"].mtu, by_name["eth0"].child_kind) == (True, 1500, "")
    assert by_name["eth1"].child_kind in ("ipvlan", "bridge")
    assert len(by_name["eth0"].mac) == 17
    assert "10.9.0.2/24" in by_name["eth0"].addresses
    assert before == await _names(world, "")


async def host_links_does_not_disturb_tasks(world: KernelWorld) -> None:
    """Asking while a task runs on the parent changes nothing for it."""
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.10/24"), "eth0")
    links, _ = await host_links(world.netlink)
    assert [link.child_kind for link in links if link.name == "eth0"] == [""]
    assert await world.answers("10.9.0.10")


async def every_failing_call_leaves_nothing(world: KernelWorld) -> None:
    """Whichever call to the kernel fails, no link is left and trying again works."""
    netns = world.create_netns()
    n_calls = 0
    for n in range(1, 100):
        netlink = CountingNetlink(world.netlink, fail_at=n)
        try:
            await attach(netlink, netns, a_grant(), "eth0")
        except NetlinkError as error:
            failed = error.errno
        else:
            n_calls = netlink.calls
            break
        assert failed == errno.ENOBUFS
        assert await _names(world, netns) == ["lo"], f"call {n}"
    assert n_calls >= 10, "the loop never reached the end of an attachment"
    assert await world.answers("10.9.0.10")


async def every_cancelled_call_leaves_nothing(world: KernelWorld) -> None:
    """Wherever an attachment is cancelled, no link is left and trying again works."""
    netns = world.create_netns()
    for n in range(1, 100):
        netlink = CountingNetlink(world.netlink, cancel_at=n)
        with netlink.scope:
            await attach(netlink, netns, a_grant(), "eth0")
        if not netlink.scope.cancelled_caught:
            assert n > 10, "the loop never reached the end of an attachment"
            break
        assert await _names(world, netns) == ["lo"], f"call {n}"
    assert await world.answers("10.9.0.10")


async def many_at_once(world: KernelWorld) -> None:
    """Attachments of many tasks at the same time do not disturb each other, and neither does taking half away."""
    netns = [world.create_netns() for _ in range(12)]
    async with trio.open_nursery() as nursery:
        for i, path in enumerate(netns):
            nursery.start_soon(attach, world.netlink, path, a_grant(f"10.9.0.{20 + i}/24"), "eth0")
    async with trio.open_nursery() as nursery:
        for path in netns[:6]:
            nursery.start_soon(detach, world.netlink, path)
    assert [await world.answers("10.9.0.20"), await world.answers("10.9.0.31")] == [False, True]


async def _refused(world: KernelWorld, grant: object) -> NetlinkError:
    """The error of an attachment that must fail; checks that nothing is left of it."""
    netns = world.create_netns()
    with pytest.raises(NetlinkError) as caught:
        await attach(world.netlink, netns, grant, "eth0")  # type: ignore[arg-type]
    assert await _names(world, netns) == ["lo"]
    return caught.value


async def _names(world: KernelWorld, netns: str) -> list[str]:
    return [link.name for link in codec.read_links(await world.netlink.request(codec.dump_links(), netns))]


CASES: tuple[Callable[[KernelWorld], Awaitable[None]], ...] = (
    attach_gives_a_link_that_answers,
    attach_gives_only_what_was_granted,
    attach_takes_mac_and_mtu,
    attach_twice_gives_two_links,
    attach_internal_needs_no_gateway,
    detach_silences_at_once,
    detach_of_a_namespace_that_is_gone_is_fine,
    an_address_moves_within_the_host,
    parent_missing,
    parent_down,
    parent_taken,
    parent_not_ethernet,
    name_in_use,
    address_in_use,
    mtu_too_large,
    mtu_too_small,
    mac_in_use,
    mac_impossible,
    gateway_elsewhere,
    ipv6_switched_off,
    settings_that_this_kernel_lacks_are_skipped,
    namespace_gone,
    kind_unknown,
    host_links_tells_parents_and_kinds,
    host_links_does_not_disturb_tasks,
    every_failing_call_leaves_nothing,
    every_cancelled_call_leaves_nothing,
    many_at_once,
)
