"""Simulated datagrams keep what the real ones promise, and get lost, twice and overtaken when the world says so."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.errors import InvalidSpec
from beeyard.runtime.sim import SimWorld
from tests.support.datagram_conformance import check_datagrams, check_multicast, check_resolving, taken


async def test_sim_datagrams_conform(autojump_clock: MockClock) -> None:
    """Between machines and within one."""
    async with SimWorld(1) as world:
        server, client = world.host("m1"), world.host("a1")
        await check_datagrams(server.net, client.net, "10.9.0.1")
        await check_datagrams(server.net, server.net, "10.9.0.1")
        await check_resolving(client.net, "10.9.0.1", "m1")


async def test_sim_multicast_conforms(autojump_clock: MockClock) -> None:
    """Members of a group hear it; a network that does not pass multicast on keeps it from all."""
    async with SimWorld(1) as world:
        one, other = world.host("a1"), world.host("a2")
        await check_multicast(one.net, other.net, "224.0.0.251", "")
        world.network.multicast = False
        with pytest.raises(trio.TooSlowError):
            await check_multicast(one.net, other.net, "224.0.0.251", "")


async def test_datagrams_are_lost_doubled_and_overtaken(autojump_clock: MockClock) -> None:
    """As often as the network says; a blocked way loses them all for good."""
    async with SimWorld(1) as world:
        one, other = world.host("a1"), world.host("a2")
        reader = await one.net.datagrams("udp://0.0.0.0:7946")
        sender = await other.net.datagrams("udp://0.0.0.0:7946")

        async def arrived(n_sent: int) -> list[int]:
            for number in range(n_sent):
                assert sender.send_nowait(("10.9.0.1", 7946), number.to_bytes(2, "big"))
                await trio.sleep(0.0001)
            await trio.sleep(1)
            return [int.from_bytes(data, "big") for data in taken(reader)]

        got = await arrived(1000)
        assert got != sorted(got)
        assert sorted(got) == list(range(1000))
        world.network.datagram_loss = 0.4
        assert 550 < len(await arrived(1000)) < 650
        world.network.datagram_loss, world.network.datagrams_twice = 0.0, 0.1
        assert 1050 < len(await arrived(1000)) < 1150
        world.isolate("a1")
        assert await arrived(10) == []
        world.heal()
        assert sorted(set(await arrived(10))) == list(range(10))


async def test_datagrams_of_a_paused_and_of_a_dead_machine(autojump_clock: MockClock) -> None:
    """What comes while the CPU stands waits in the kernel's buffer, up to its size; a power cut takes it and the port."""
    async with SimWorld(1) as world:
        one, other = world.host("a1"), world.host("a2")
        reader = await one.net.datagrams("udp://0.0.0.0:7946")
        sender = await other.net.datagrams("udp://0.0.0.0:7946")
        world.pause("a1")
        for _ in range(300):
            assert await sender.send(("10.9.0.1", 7946), b"x" * 1000)
        with trio.move_on_after(5) as scope:
            await reader.receive()
        assert scope.cancelled_caught
        world.resume("a1")
        await reader.receive()
        assert len(taken(reader)) == 211
        world.power_cut("a1")
        assert await sender.send(("10.9.0.1", 7946), b"x")
        with pytest.raises(trio.ClosedResourceError):
            await reader.receive()


async def test_an_address_of_datagrams_is_written_in_one_way(autojump_clock: MockClock) -> None:
    """The error says how."""
    async with SimWorld(1) as world:
        host = world.host("a1")
        for wrong in ("tcp://0.0.0.0:1", "0.0.0.0:1", "udp://", "udp://::1:5", "udp://a:70000", "udp://unix:///x"):
            with pytest.raises(InvalidSpec, match="udp://HOST:PORT"):
                await host.net.datagrams(wrong)
