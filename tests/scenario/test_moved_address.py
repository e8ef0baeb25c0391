"""A host loses the address by which others know it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from beeyard.core.model import Link
from beeyard.discovery.gossip.message import Address
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.gossip_world import GossipWorld


def a_link(name: str, address: str) -> Link:
    return Link(name=name, mtu=1500, up=True, addresses=(address,))


def give_address(world: GossipWorld, name: str, ip: str) -> None:
    """A host's only address is another one from now on, as DHCP may have it."""
    machine = world.machines[name]
    machine.parts.kernel.remove_link("eth0")
    machine.parts.kernel.add_link(a_link("eth0", f"{ip}/16"))
    machine.ip = machine.net.ip = ip


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[GossipWorld, FakeKernel, str]]:
    """Two members, n1 and n2, that know each other; and the kernel and the address of n2's host."""
    async with GossipWorld(1) as world:
        world.begin("n1")
        world.begin("n2")
        await world.until_one("n1", "n2", within_s=5.0)
        machine = world.machines["n2"]
        yield world, machine.parts.kernel, machine.ip


async def test_a_member_whose_address_is_gone_is_known_by_the_new_one(autojump_clock: MockClock) -> None:
    """It leaves and comes back within a minute, and nobody takes it for failed for longer than that."""
    async with GossipWorld(1) as world:
        for name in ("n1", "n2", "n3"):
            world.begin(name, tags=lambda own: {"role": "manager", "manager": f"{own}:2377", "node": ""})
        await world.until_one("n1", "n2", "n3", within_s=5.0)
        await world.members["n2"].discovery.set_tags({"role": "manager", "manager": "10.9.0.2:2377", "node": "later"})
        await trio.sleep(30)
        old = world.machines["n2"].ip
        give_address(world, "n2", "10.9.7.7")
        seen = world.members["n1"].discovery.node
        await world.until(lambda: seen.member("n2").address.host == "10.9.7.7", timeout_s=60.0)
        await world.until_one("n1", "n2", "n3", within_s=10.0)
        assert world.members["n2"].discovery.me == Address("10.9.7.7", 3388)
        assert old != "10.9.7.7"
        tags = seen.member("n2").tags
        assert (tags["manager"], tags["node"]) == ("10.9.7.7:2377", "later")
        await trio.sleep(120)
        assert world.are_one("n1", "n2", "n3")


async def test_a_cable_that_is_pulled_is_no_reason_to_take_another_address(autojump_clock: MockClock) -> None:
    """Nor is a lease that is renewed: the address comes back."""
    async with pair() as (world, kernel, ip):
        kernel.add_link(a_link("eth1", "172.16.0.3/24"))
        kernel.set_link_up("eth0", False)
        await trio.sleep(120)
        kernel.set_link_up("eth0", True)
        kernel.remove_link("eth0")
        await trio.sleep(15)
        kernel.add_link(a_link("eth0", f"{ip}/16"))
        await trio.sleep(120)
        assert world.members["n2"].discovery.me == Address(ip, 3388)
        assert world.are_one("n1", "n2")


async def test_a_bridge_of_the_host_itself_is_no_address_to_move_to(autojump_clock: MockClock) -> None:
    """Where the network is away for long, with its address, what is left leads to nobody: the address comes back."""
    async with pair() as (world, kernel, ip):
        kernel.add_link(a_link("docker0", "172.17.0.1/16"))
        kernel.remove_link("eth0")
        await trio.sleep(120)
        assert world.members["n2"].discovery.me == Address(ip, 3388)
        kernel.add_link(a_link("eth0", f"{ip}/16"))
        await trio.sleep(60)
        assert world.are_one("n1", "n2")


async def test_a_member_without_peers_takes_the_only_address_there_is(autojump_clock: MockClock) -> None:
    """Nobody tells which leads anywhere, and who comes later finds it there."""
    async with GossipWorld(1) as world:
        world.begin("n1")
        await trio.sleep(5)
        give_address(world, "n1", "10.9.7.7")
        await trio.sleep(60)
        assert world.members["n1"].discovery.me == Address("10.9.7.7", 3388)


async def test_an_address_that_was_named_is_never_changed(autojump_clock: MockClock) -> None:
    """Whoever named it knows better, as where a host is behind a NAT."""
    async with GossipWorld(1) as world:
        world.begin("n1")
        ip = world.machine("n2").ip
        world.begin("n2", advertise=ip)
        await world.until_one("n1", "n2", within_s=5.0)
        give_address(world, "n2", "10.9.7.7")
        await trio.sleep(120)
        assert world.members["n2"].discovery.me == Address(ip, 3388)


async def test_an_address_that_comes_and_goes_is_kept(autojump_clock: MockClock) -> None:
    """Twenty seconds away and twenty there, again and again: no other address would be better."""
    async with pair() as (world, kernel, ip):
        kernel.add_link(a_link("eth1", "172.16.0.3/24"))
        for _ in range(10):
            kernel.remove_link("eth0")
            await trio.sleep(20)
            kernel.add_link(a_link("eth0", f"{ip}/16"))
            await trio.sleep(20)
        assert world.members["n2"].discovery.me == Address(ip, 3388)
        assert world.are_one("n1", "n2")


async def test_two_members_of_a_host_find_each_other_at_its_new_address(autojump_clock: MockClock) -> None:
    """Both move, one after the other, and all that each knows of the other is the address that is gone."""
    async with GossipWorld(1) as world:
        world.begin("m", machine="n1")
        world.begin("a", machine="n1")
        await world.until_one("a", "m", within_s=30.0)
        await trio.sleep(30)
        give_address(world, "n1", "10.9.7.7")
        await trio.sleep(120)
        assert {world.members[name].discovery.me.host for name in ("a", "m")} == {"10.9.7.7"}
        await world.until_one("a", "m", within_s=60.0)
