"""Duplicate address detection on the real kernel: the promises that the fake kernel keeps too, and what it costs."""

from __future__ import annotations

import os

import pytest
import trio

from beeyard.netdrivers import probe
from tests.support.ask_conformance import CASES
from tests.support.held import before_test, descriptors_and_threads
from tests.support.netns import Lan, ip
from tests.support.real_host import RealHost, real_host

pytestmark = pytest.mark.netns


class AskingHost(RealHost):
    """One with others on its LAN."""

    def __init__(self, lan: Lan, host: str) -> None:
        super().__init__(lan, host)
        self.own_mac = self._mac(self.name)

    @staticmethod
    def _mac(name: str) -> str:
        return ip(f"-n {name} -o link show eth0").split("link/ether ")[1].split()[0]

    def foreigner(self, *addresses: str) -> str:
        name = os.path.basename(self.lan.add_host(99))
        for address in addresses:
            ip(f"-n {name} addr add {address} dev eth0{' nodad' if ':' in address else ''}")
        return self._mac(name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_asking_on_the_real_kernel(case):
    """See the case's own docstring."""
    with real_host(AskingHost) as world:
        await case(world)


async def test_many_questions_share_one_socket_and_leave_nothing():
    """100 at once hold two descriptors; afterwards descriptors and threads are back where they were."""
    with real_host(AskingHost) as world:
        before = before_test()
        async with trio.open_nursery() as nursery:
            for number in range(100):
                wanted = [("eth0", f"10.9.0.{100 + number}/24"), ("eth0", f"fd00:9::{number:x}/64")]
                nursery.start_soon(probe.conflicts, world.netlink, wanted, 0.5)
            await trio.sleep(0.2)
            # The two sockets, and the netlink socket of the daemon's own.
            assert descriptors_and_threads()[0] <= before[0] + 3
        world.netlink.close()
        assert descriptors_and_threads() == before


async def test_a_parent_that_goes_down_meanwhile_ends_the_question():
    """Whoever waits is not left waiting, and the next who asks gets a fresh socket."""
    with real_host(AskingHost) as world:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(probe.conflicts, world.netlink, [("eth0", "10.9.0.64/24")], 60.0)
                await trio.sleep(0.1)
                world.set_parent_up(False)
        world.set_parent_up(True)
        mac = world.foreigner("10.9.0.64/24")
        (found,) = await probe.conflicts(world.netlink, [("eth0", "10.9.0.64/24")], 1.0)
        assert found[0].mac == mac
