"""Which addresses a host has, which one it is known by, and which ones it asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from beeyard.core.errors import HostError, InvalidSpec, PeerError
from beeyard.core.model import Link
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers.advertise import chosen, named
from beeyard.discovery.peers.own_addresses import OwnAddress, candidates, own_addresses
from beeyard.discovery.peers.probe import targets_far, targets_near
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import Netlink


class Routes:
    """Names and routes as `Net` gives them."""

    def __init__(self, names: dict[str, list[str]], sources: dict[str, str]) -> None:
        self.names = names
        self.sources = sources  # host → own address towards it

    async def resolve(self, host: str) -> list[str]:
        if host.replace(".", "").isdigit():
            return [host]
        if host not in self.names:
            raise PeerError(f"no such host: {host}")
        return self.names[host]

    async def source_to(self, host: str) -> str:
        if host not in self.sources:
            raise PeerError(f"no route to {host}")
        return self.sources[host]


@dataclasses.dataclass
class Somewhere:
    """What `own_addresses` asks of a host."""

    netlink: Netlink
    net: Routes


def own(address: str, interface: str = "eth0", prefix_length: int = 24) -> OwnAddress:
    return OwnAddress(interface=interface, address=address, prefix_length=prefix_length)


TWO = [own("10.0.0.7"), own("192.168.1.3", "eth1")]
NOWHERE = Routes({}, {})


async def nobody() -> Sequence[Address]:
    return []


async def asked_for_nothing() -> Sequence[Address]:
    raise AssertionError("nobody had to be asked")


async def test_the_only_address_is_the_one():
    """Whoever there is or is not."""
    assert await chosen(NOWHERE, [own("10.0.0.7"), own("fd77::7")], [], asked_for_nothing) == "10.0.0.7"
    assert await chosen(NOWHERE, [own("fd77::7")], [], asked_for_nothing) == "fd77::7"


async def test_the_only_address_has_to_lead_to_a_peer_where_that_is_wanted():
    """One on a bridge of the host itself does not."""
    routes = Routes({}, {"10.0.0.9": "10.0.0.7"})
    peers = [Address("10.0.0.9", 3388)]
    assert await chosen(routes, [own("10.0.0.7")], peers, asked_for_nothing, must_lead=True) == "10.0.0.7"
    with pytest.raises(
        InvalidSpec, match=r"this host has one address and .* it leads: 172\.17\.0\.1 on eth0; name one"
    ):
        await chosen(routes, [own("172.17.0.1")], peers, nobody, must_lead=True)


@pytest.mark.parametrize(
    ("peers", "address"),
    [
        (["10.0.0.9"], "10.0.0.7"),
        (["other", "10.0.0.9"], "192.168.1.3"),
        (["unknown", "10.9.9.9", "10.0.0.9"], "10.0.0.7"),  # without a name, without a route
        (["10.0.0.7", "192.168.1.9"], "192.168.1.3"),  # the way to oneself says nothing
    ],
)
async def test_of_several_the_one_that_leads_to_a_peer(peers, address):
    """The first of them to which there is a way decides, and it need not answer."""
    ways = {"10.0.0.9": "10.0.0.7", "10.0.0.7": "10.0.0.7", "192.168.1.9": "192.168.1.3"}
    routes = Routes({"other": ["192.168.1.9"]}, ways)
    assert await chosen(routes, TWO, [Address(peer, 3388) for peer in peers], asked_for_nothing) == address


async def test_without_a_known_peer_those_that_answer_decide():
    """Asking needs no address of one's own."""

    async def somebody() -> Sequence[Address]:
        return [Address("192.168.1.9", 3388)]

    routes = Routes({}, {"192.168.1.9": "192.168.1.3"})
    assert await chosen(routes, TWO, [Address("unknown", 1)], somebody) == "192.168.1.3"


async def test_several_and_no_peer_is_an_error_that_lists_them():
    """A guess would make a member that nobody reaches."""
    with pytest.raises(InvalidSpec) as refused:
        await chosen(NOWHERE, TWO, [], nobody)
    assert str(refused.value) == (
        "invalid advertise: this host has several addresses and no peer was found to which one of them leads: "
        "10.0.0.7 on eth0, 192.168.1.3 on eth1; name one"
    )


async def test_a_host_without_an_address_says_so():
    """It cannot be reached by anybody."""
    with pytest.raises(HostError, match="has no address at which others could reach it"):
        await chosen(NOWHERE, [], [], nobody)


async def test_a_named_address_is_taken_as_it_is():
    """Also one that is not this host's: behind a NAT it is the router's."""
    routes = Routes({"n1.example": ["10.0.0.7", "10.0.0.8"]}, {})
    assert await named(routes, "203.0.113.9", 3388) == Address("203.0.113.9", 3388)
    assert await named(routes, "n1.example:4000", 3388) == Address("10.0.0.7", 4000)


@pytest.mark.parametrize("text", ["0.0.0.0", "127.0.0.1:3388", "224.0.0.1", "unknown", "10.0.0.7:x", "eth0/24"])
async def test_a_named_address_by_which_nobody_reaches_the_host_is_refused(text):
    """With the value."""
    with pytest.raises(InvalidSpec, match="invalid advertise: '"):
        await named(NOWHERE, text, 3388)


async def test_the_addresses_of_a_host_are_those_of_links_that_run():
    """No loopback, none of a link that is down, none that is good on its link alone; IPv4 first."""
    links = (
        Link(name="eth0", mtu=1500, up=True, addresses=("fd77::7/64", "10.0.0.7/24", "fe80::1/64")),
        Link(name="eth1", mtu=1500, up=False, addresses=("192.168.1.3/24",)),
        Link(name="eth2", mtu=1500, up=True, addresses=("172.16.0.3/16",)),
    )
    found = await own_addresses(Somewhere(FakeKernel(links, seed="n1"), NOWHERE))
    assert found == [own("10.0.0.7"), own("172.16.0.3", "eth2", 16), own("fd77::7", "eth0", 64)]
    assert candidates(found) == found[:2]
    assert candidates(found[2:]) == found[2:]


async def test_a_host_whose_kernel_tells_nothing_is_known_by_its_way_to_the_outside():
    """Or by nothing."""
    assert await own_addresses(Somewhere(FakeKernel((), seed="n1"), NOWHERE)) == []
    found = await own_addresses(Somewhere(FakeKernel((), seed="n1"), Routes({}, {"192.0.2.1": "10.0.0.7"})))
    assert [str(address) for address in found] == ["10.0.0.7"]


@pytest.mark.parametrize(
    ("address", "prefix_length", "n_near", "n_far", "first", "last"),
    [
        ("10.0.0.7", 24, 254, 254, "10.0.0.1", "10.0.0.254"),
        ("10.0.0.7", 25, 126, 126, "10.0.0.1", "10.0.0.126"),
        ("10.0.5.7", 22, 256, 1022, "10.0.4.1", "10.0.7.254"),
        ("10.0.5.7", 16, 256, 1024, "10.0.4.0", "10.0.7.255"),
        ("10.0.0.7", 8, 255, 1023, "10.0.0.1", "10.0.3.255"),
        ("10.0.0.7", 32, 1, 1, "10.0.0.7", "10.0.0.7"),
        ("10.0.0.6", 31, 2, 2, "10.0.0.6", "10.0.0.7"),
    ],
)
def test_a_scan_asks_a_network_up_to_1022_and_never_its_broadcast(address, prefix_length, n_near, n_far, first, last):
    """Of a larger one the part around the host's own address."""
    here = own(address, prefix_length=prefix_length)
    near, far = list(targets_near(here)), list(targets_far(here))
    assert (len(near), len(far), far[0], far[-1]) == (n_near, n_far, first, last)
    assert set(near) <= set(far)
    assert address in near
