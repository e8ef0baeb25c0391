"""The driver on the real kernel: the promises that the fake kernel keeps too, and what only real traffic shows."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

import pytest
import trio

from beeyard.netdrivers import attach, codec, detach
from beeyard.runtime.host import RequestRefused
from beeyard.runtime.real_netlink import RealNetlink
from beeyard.runtime.real_silence import silence_links
from tests.support.driver_conformance import CASES
from tests.support.grants import a_grant
from tests.support.held import before_test, descriptors_and_threads
from tests.support.netns import Lan, inside, ip, received
from tests.support.real_host import RealHost, real_host

pytestmark = pytest.mark.netns


class DriverHost(RealHost):
    """One with a second parent."""

    def __init__(self, lan: Lan, host: str) -> None:
        super().__init__(lan, host)
        # A bridge port receives its packets for the bridge, as an ipvlan parent does for its children.
        ip(f"-n {self.name} link add br1 type bridge")
        ip(f"-n {self.name} link add eth1 type veth peer name far1")
        ip(f"-n {self.name} link set eth1 master br1 up")

    async def answers(self, address: str) -> bool:
        if ":" in address:
            return await self.lan.refuses(address)
        claims = await self.lan.arp(address)
        assert len(claims) <= 1, f"{address} is on the LAN twice: {claims}"
        return bool(claims)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_driver_on_the_real_kernel(case):
    """See the case's own docstring."""
    with real_host(DriverHost) as world:
        await case(world)


async def test_tasks_on_one_host_and_on_two_reach_each_other():
    """UDP over both families between two tasks of one host, and from there to a task of another host."""
    with contextlib.closing(Lan()) as lan:
        tasks = []
        for number, host in ((2, lan.add_host(2)), (3, lan.add_host(3))):
            with inside(host), contextlib.closing(RealNetlink()) as netlink:
                for i in (10 * number, 10 * number + 1):
                    netns = lan.create_netns()
                    await attach(netlink, netns, a_grant(f"10.9.0.{i}/24", f"fd00:9::{i}/64"), "eth0")
                    tasks.append((netns, f"10.9.0.{i}", f"fd00:9::{i}"))
        first = tasks[0][0]
        for netns, *addresses in tasks[1:]:
            for address in addresses:
                assert await _echo(first, netns, address) == b"hello"


async def test_silence_links_from_inside_has_the_effect_of_detach():
    """What a shim calls in its own namespace: nothing answers any more, and doing it again is fine."""
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)), contextlib.closing(RealNetlink()) as netlink:
        netns = lan.create_netns()
        await attach(netlink, netns, a_grant("10.9.0.10/24", "fd00:9::10/64"), "eth0")
        assert await lan.arp("10.9.0.10")
        with inside(netns):
            silence_links()
            silence_links()
        assert await lan.arp("10.9.0.10") == []
        assert not await lan.refuses("fd00:9::10")
        links = codec.read_links(await netlink.request(codec.dump_links(), netns))
        addresses = codec.read_addresses(await netlink.request(codec.dump_addresses(), netns))
        (lo,) = [link.index for link in links if link.loopback]
        assert [str(a) for a in addresses if a.index != lo] == []
        assert [str(a) for a in addresses if a.index == lo] == ["127.0.0.1/8", "::1/128"]


async def test_detach_while_a_task_talks_ends_the_talk():
    """A connected peer hears nothing more after `detach`, and neither does the task."""
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)), contextlib.closing(RealNetlink()) as netlink:
        netns = lan.create_netns()
        await attach(netlink, netns, a_grant("10.9.0.10/24"), "eth0")
        with inside(netns):
            task = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            task.bind(("10.9.0.10", 7))
        with inside(lan.netns):
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with task, peer:
            peer.connect(("10.9.0.10", 7))
            peer.send(b"before")
            _, sender = await received(task)
            await detach(netlink, netns)
            peer.send(b"after")
            assert await received(task) is None
            with pytest.raises(OSError, match=r"unreachable|Invalid"):
                task.sendto(b"out", sender)


async def test_request_gives_the_kernels_own_words_and_leaks_nothing():
    """Extended messages arrive; sockets, descriptors and threads are back where they were after 50 tasks."""
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)):
        netns = lan.create_netns()
        before = before_test()
        with contextlib.closing(RealNetlink()) as netlink:
            for _ in range(50):
                await detach(netlink, netns)
                with pytest.raises(OSError, match="Unknown device type"):
                    await netlink.request(codec.orphan("nosuchkind"), netns)
            await netlink.send_frame("", "lo", bytes(60))
        assert descriptors_and_threads() == before


async def test_a_dropped_namespace_goes_with_its_link_when_nobody_uses_it():
    """Nothing in RealNetlink keeps a task's namespace alive once its calls have returned."""
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)), contextlib.closing(RealNetlink()) as netlink:
        netns = lan.create_netns()
        await attach(netlink, netns, a_grant("10.9.0.10/24"), "eth0")
        lan.drop_netns(netns)
        with trio.fail_after(5):
            while await lan.arp("10.9.0.10"):
                pass  # each question waits for its answer


async def test_router_advertisements_give_a_task_no_address():
    """A router on the LAN offers a prefix: the host's own link takes it, a task's does not."""
    with contextlib.closing(Lan()) as lan:
        host = lan.add_host(2)
        netns = lan.create_netns()
        with inside(host), contextlib.closing(RealNetlink()) as netlink:
            await attach(netlink, netns, a_grant("10.9.0.10/24", "fd00:9::10/64"), "eth0")
            with trio.fail_after(10):
                while "fd00:5:" not in ip(f"-n {os.path.basename(host)} addr show dev eth0"):
                    lan.advertise("fd00:5::")
                    await trio.sleep(0.1)
            shown = ip(f"-n {os.path.basename(netns)} addr show dev eth0")
            assert [line.split()[1] for line in shown.splitlines() if "inet" in line] == [
                "10.9.0.10/24",
                "fd00:9::10/64",
            ]
            assert "proto ra" not in ip(f"-n {os.path.basename(netns)} -6 route")


async def test_doomed_macvlan_tells_free_from_taken_and_leaves_the_parent_free():
    """EINVAL on a free link, which can be given to a bridge afterwards; EBUSY on the bridge's port."""
    with contextlib.closing(Lan()) as lan, inside(lan.add_host(2)), contextlib.closing(RealNetlink()) as netlink:
        ip("link add br1 type bridge")
        (parent,) = codec.read_links(await netlink.request(codec.get_link(name="eth0")))
        before = ip("link show")
        assert await _errno_of(netlink, codec.doomed_macvlan(parent.index)) == errno.EINVAL
        assert ip("link show") == before
        ip("link set eth0 master br1")
        assert await _errno_of(netlink, codec.doomed_macvlan(parent.index)) == errno.EBUSY


async def _errno_of(netlink: RealNetlink, request: bytes) -> int | None:
    with pytest.raises(RequestRefused) as caught:
        await netlink.request(request)
    return caught.value.errno


async def _echo(client_netns: str, server_netns: str, address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(server_netns):
        server = socket.socket(family, socket.SOCK_DGRAM)
        server.bind((address, 7))
    with inside(client_netns):
        client = socket.socket(family, socket.SOCK_DGRAM)
    with server, client:
        client.sendto(b"hello", (address, 7))
        heard = await received(server)
        assert heard is not None, f"{address} did not hear"
        server.sendto(heard[0], heard[1])
        answer = await received(client)
        assert answer is not None, f"{address} did not answer"
        return answer[0]
