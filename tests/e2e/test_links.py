"""Every kind and mode of link that this machine's own kernel has, and who reaches whom in each.

`tests/uml` plays the same on a kernel that has all kinds.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from beeyard.netdrivers import attach, host_access
from beeyard.runtime.real_netlink import RealNetlink
from tests.support.grants import a_grant
from tests.support.link_conformance import cases_for
from tests.support.link_world import real_link_world, talks
from tests.support.netns import Lan, inside, ip

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("case", cases_for(["macvlan"]), ids=lambda case: case.__name__)
async def test_links_on_the_real_kernel(case):
    """See the case's own docstring."""
    with real_link_world() as world:
        await case(world)


@pytest.mark.parametrize(
    ("mode", "within_the_host"), [("bridge", (True, True)), ("private", (False, False)), ("vepa", (True, False))]
)
async def test_who_reaches_whom_in_each_macvlan_mode(mode, within_the_host):
    """Tasks of one host (with a switch that sends back where it came from, and without), then of another host."""
    with contextlib.closing(Lan()) as lan:
        tasks = []
        for number, host in ((2, lan.add_host(2)), (3, lan.add_host(3))):
            with inside(host), contextlib.closing(RealNetlink()) as netlink:
                for i in (10 * number, 10 * number + 1)[: 4 - number]:
                    netns = lan.create_netns()
                    await attach(netlink, netns, a_grant(f"10.9.0.{i}/24", f"fd00:9::{i}/64", mode=mode), "eth0")
                    tasks.append((netns, f"10.9.0.{i}", f"fd00:9::{i}"))
        first, sibling, other = tasks
        seen = []
        for hairpin in ("on", "off"):
            ip(f"-n {os.path.basename(lan.netns)} link set port2 type bridge_slave hairpin {hairpin}")
            seen.append(await talks(first[0], sibling[0], sibling[1]))
            assert seen[-1] == await talks(first[0], sibling[0], sibling[2])
        assert tuple(seen) == within_the_host
        for address in other[1:]:
            assert await talks(first[0], other[0], address)


async def test_a_host_and_its_task_reach_each_other_only_with_host_access():
    """Both families, both ways, to each address of the host; other hosts still reach both."""
    with real_link_world() as world:
        ip("addr add 10.8.0.2/24 dev eth0")
        netns = world.create_netns()
        grant = a_grant("10.9.0.10/24", "fd00:9::10/64", host_access=True)
        await attach(world.netlink, netns, grant, "eth0")
        assert not await talks(world.host, netns, "10.9.0.10")
        assert not await talks(netns, world.host, "10.9.0.2")
        await host_access.connect(world.netlink, netns, grant, "eth0")
        for address in ("10.9.0.10", "fd00:9::10"):
            assert await talks(world.host, netns, address)
            assert await talks(world.lan.netns, netns, address)
        for address in ("10.9.0.2", "fd00:9::2", "10.8.0.2"):
            assert await talks(netns, world.host, address)
        assert await talks(world.lan.netns, world.host, "10.9.0.2")
        await host_access.disconnect(world.netlink, grant)
        assert not await talks(world.host, netns, "10.9.0.10")
