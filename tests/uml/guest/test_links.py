"""Links on a kernel that has all kinds: what each promises, and who reaches whom in each mode."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from beeyard.core.network_options import vlan_of
from beeyard.netdrivers import attach, vlan
from beeyard.runtime.real_netlink import RealNetlink
from tests.support.grants import a_grant
from tests.support.link_conformance import Case, cases_for
from tests.support.link_world import real_link_world, talks
from tests.support.netns import Lan, inside, ip

# A task's namespace and its two addresses.
Task = tuple[str, str, str]


# Those that this machine's own kernel plays too, in tests/e2e, are not played here again.
CASES = [case for case in cases_for(["macvlan", "ipvlan", "vlan"]) if case not in cases_for(["macvlan"])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_links_on_a_kernel_with_all_kinds(case: Case) -> None:
    """See the case's own docstring."""
    with real_link_world() as world:
        await case(world)


@contextlib.asynccontextmanager
async def two_hosts(hairpin: str = "off", **grant: str) -> AsyncIterator[tuple[Lan, list[Task]]]:
    """Host 2 with two tasks and host 3 with one; their links as `grant` says, alike."""
    with contextlib.closing(Lan()) as lan:
        tasks: list[Task] = []
        for number, host in ((2, lan.add_host(2)), (3, lan.add_host(3))):
            with inside(host), contextlib.closing(RealNetlink()) as netlink:
                numbers = (10 * number, 10 * number + 1)[: 4 - number]
                tasks += [await a_task(lan, netlink, i, **grant) for i in numbers]
        ip(f"-n {os.path.basename(lan.netns)} link set port2 type bridge_slave hairpin {hairpin}")
        yield lan, tasks


async def a_task(lan: Lan, netlink: RealNetlink, number: int, **grant: str) -> Task:
    """A task on the host that the thread is in; its parent is made when it is a VLAN."""
    netns = lan.create_netns()
    wanted = a_grant(f"10.9.0.{number}/24", f"fd00:9::{number}/64", **grant)
    tagged = vlan_of(wanted.parent)
    if tagged is not None:
        await vlan.ensure(netlink, tagged)
    await attach(netlink, netns, wanted, "eth0")
    return netns, f"10.9.0.{number}", f"fd00:9::{number}"


async def reaches(one: Task, other: Task) -> tuple[bool, bool]:
    """Whether one task and another exchange packets, over IPv4 and over IPv6."""
    return await talks(one[0], other[0], other[1]), await talks(one[0], other[0], other[2])


ALWAYS, NEVER = (True, True), (False, False)


@pytest.mark.parametrize(
    ("flag", "hairpin", "within_the_host"),
    [("", "off", ALWAYS), ("private", "on", NEVER), ("vepa", "off", NEVER)],
)
async def test_who_reaches_whom_in_ipvlan_l2(flag: str, hairpin: str, within_the_host: tuple[bool, bool]) -> None:
    """Tasks of one host as the flag says; those of two hosts always."""
    async with two_hosts(hairpin, driver="ipvlan", mode="l2", flag=flag) as (_, (first, sibling, other)):
        assert await reaches(first, sibling) == within_the_host
        assert await reaches(first, other) == ALWAYS
        assert await reaches(other, first) == ALWAYS


@pytest.mark.parametrize("mode", ["l3", "l3s"])
async def test_routed_modes_reach_other_hosts_by_routes_alone(mode: str) -> None:
    """Nobody asks for a task on the LAN: without a route to its host it is not found, with one it is."""
    with contextlib.closing(Lan()) as lan:
        tasks = []
        for number in (2, 3):
            host = lan.add_host(number)
            with inside(host), contextlib.closing(RealNetlink()) as netlink:
                netns = lan.create_netns()
                grant = a_grant(f"10.8.{number}.10/24", driver="ipvlan", mode=mode, gateways=())
                await attach(netlink, netns, grant, "eth0")
                tasks.append((netns, f"10.8.{number}.10", os.path.basename(host)))
        (one, one_address, one_host), (other, other_address, other_host) = tasks
        assert not await talks(one, other, other_address)
        ip(f"-n {one_host} route add {other_address}/32 via 10.9.0.3")
        ip(f"-n {other_host} route add {one_address}/32 via 10.9.0.2")
        assert await talks(one, other, other_address)
        assert await talks(other, one, one_address)
        assert await lan.arp(one_address) == []


@pytest.mark.parametrize("driver", ["macvlan", "ipvlan"])
async def test_vlans_are_apart(driver: str) -> None:
    """Tasks of one VLAN reach each other across hosts; those of another VLAN and of the untagged LAN do not."""
    kind = {"driver": driver, "mode": "bridge" if driver == "macvlan" else "l2"}
    with contextlib.closing(Lan()) as lan:
        tasks = []
        for number in (2, 3):
            with inside(lan.add_host(number)), contextlib.closing(RealNetlink()) as netlink:
                tasks.append(await a_task(lan, netlink, 10 * number, parent="eth0.100", **kind))
                tasks.append(await a_task(lan, netlink, 10 * number + 1, parent="eth0.200", **kind))
        hundred, two_hundred, other_hundred, other_two_hundred = tasks
        assert await reaches(hundred, other_hundred) == ALWAYS
        assert await reaches(two_hundred, other_two_hundred) == ALWAYS
        assert await reaches(hundred, other_two_hundred) == NEVER
        assert await reaches(hundred, two_hundred) == NEVER
        assert await lan.arp(hundred[1]) == []
