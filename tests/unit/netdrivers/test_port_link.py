"""Port links and the firewall on a fake host; the same checks run on the real kernel in tests/e2e."""

from __future__ import annotations

import ipaddress

import pytest

from beeyard.core.model import Link
from beeyard.netdrivers.port_link import N_LINKS, PortLink, attach, present
from beeyard.runtime.fake_firewall import FakeFirewall
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.port_conformance import TABLE, check_firewall, check_port_links


async def test_port_links_conform(autojump_clock: object) -> None:
    kernel = FakeKernel()
    await check_port_links(kernel, kernel.create_netns, kernel.drop_netns)


async def test_the_firewall_conforms() -> None:
    firewall = FakeFirewall()
    await check_firewall(firewall, lambda: firewall.alter(TABLE))


def test_every_number_has_addresses_of_its_own_outside_of_what_others_use() -> None:
    links = [PortLink(number=number, task_id="t") for number in range(N_LINKS)]
    addresses = [address for link in links for pair in link.ends() for address in pair]
    assert len(set(addresses)) == 4 * N_LINKS
    four = [address for address in addresses if address.version == 4]
    assert all(address in ipaddress.ip_network("169.254.192.0/18") for address in four)
    # RFC 3927 reserves the last 256.
    assert not [address for address in four if address in ipaddress.ip_network("169.254.255.0/24")]
    for link in links[:3]:
        for host, task in link.ends():
            assert int(host) % 2 == 0
            assert int(task) == int(host) + 1


async def test_a_number_whose_address_the_host_has_itself_is_left_out() -> None:
    """Cloud images put services on link-local addresses."""
    number = (await attach(kernel := FakeKernel(), kernel.create_netns(), "aa", "t1", answers_unbound=False)).number
    taken = str(PortLink(number=number, task_id="").ends()[0][1])
    kernel = FakeKernel([Link(name="eth0", mtu=9000, up=True, addresses=(f"{taken}/32",))])
    netns = kernel.create_netns()
    other = await attach(kernel, netns, "aa", "t1", answers_unbound=False)
    assert other.number == (number + 1) % N_LINKS
    # And it carries what the host's links carry.
    assert {link.mtu for link in kernel.links_of(netns) if link.name == "port0"} == {9000}


@pytest.mark.parametrize("where", ["host", "task"])
async def test_without_ipv6_on_either_side_a_pair_has_none_also_after_a_restart(where: str) -> None:
    kernel = FakeKernel()
    netns = kernel.create_netns()
    async with kernel.netns_fd("" if where == "host" else netns, settings={"ipv6/conf/default/disable_ipv6": "1"}):
        link = await attach(kernel, netns, "aa", "t1", answers_unbound=True)
    assert [ipaddress.ip_address(address).version for address in link.addresses] == [4]
    assert await present(kernel, "aa") == [link]
