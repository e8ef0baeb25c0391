"""What a user is told of a network that works and is likely to be a slip."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.model import Network
from beeyard.core.network_warnings import network_warnings
from tests.support.builders import a_config_network, a_network, a_network_from, an_ipam


def an(subnet: str = "10.77.0.0/24", **more: Any) -> Network:
    return a_network(ipam=[an_ipam(subnet, **more)])


@pytest.mark.parametrize(
    ("network", "warnings"),
    [
        (an(gateway="10.77.0.1"), []),
        (
            an(gateway="10.77.0.70"),
            [
                "gateway 10.77.0.70 of lan lies in the range of lan-r1, which will not hand it out",
                "gateway 10.77.0.1 of lan-r1 lies in the range of lan, which will not hand it out",
            ],
        ),
        (
            a_network(ipam=[an_ipam(gateway="10.77.0.70", ip_range="10.77.0.8/29")]),
            ["gateway 10.77.0.70 of lan lies in the range of lan-r1, which will not hand it out"],
        ),
        (a_network(ipam=[an_ipam(gateway="10.77.0.70")], labels={"beeyard.segment": "elsewhere"}), []),
        (a_network_from("racks"), []),
    ],
)
def test_a_gateway_in_the_range_of_another_pool(network: Network, warnings: list[str]) -> None:
    r1 = a_config_network("c1", "lan-r1", ipam=[an_ipam(ip_range="10.77.0.64/26", gateway="10.77.0.1")])
    assert network_warnings(network, [network, r1]) == warnings


NO_ROUTE = "no gateway is given for 10.78.0.0/24 of lan: its tasks have no default route"
ADVICE = "; give --gateway if there is one"
NAS = a_network(
    "net2",
    name="nas",
    ipam=[an_ipam("10.78.0.0/24", gateway="10.78.0.9", ip_range="10.78.0.8/29", aux={"router": "10.78.0.1"})],
)


@pytest.mark.parametrize(
    ("network", "others", "warnings"),
    [
        (an("10.78.0.0/24"), [], [f"{NO_ROUTE}, and 10.78.0.1, as routers often have, is given to a task{ADVICE}"]),
        (an("10.78.0.0/24", ip_range="10.78.0.64/26"), [], [f"{NO_ROUTE}{ADVICE}"]),
        (an("10.78.0.0/24", aux={"r": "10.78.0.1"}), [], [f"{NO_ROUTE}{ADVICE}"]),
        (an("10.78.0.0/24", ip_range="10.78.0.0/31"), [NAS], [f"{NO_ROUTE}{ADVICE}"]),
        (msgspec.structs.replace(an("10.78.0.0/24"), internal=True), [], []),
        (msgspec.structs.replace(an("10.78.0.0/24"), ipam_driver="corp"), [], []),
        (a_network(driver="ipvlan", options={"ipvlan_mode": "l3"}, ipam=[an_ipam("10.78.0.0/24")]), [], []),
        (a_config_network("c1", "p", options={"ipvlan_mode": "l3s"}, ipam=[an_ipam("10.78.0.0/24")]), [], []),
    ],
)
def test_a_subnet_without_a_gateway(network: Network, others: list[Network], warnings: list[str]) -> None:
    """Docker would take its first address; here that counts as free, and there is no default route."""
    assert network_warnings(network, others) == warnings


@pytest.mark.parametrize(
    ("subnet", "segment", "is_told"),
    [
        ("10.78.0.0/24", "", False),
        ("10.78.0.0/23", "", True),
        ("10.78.0.128/25", "", True),
        ("10.78.0.128/25", "v9", False),
        ("10.79.0.0/24", "", False),
        ("fd78::/64", "", False),
    ],
)
def test_subnets_that_overlap_without_being_the_same(subnet: str, segment: str, *, is_told: bool) -> None:
    """Tasks of one would take those of the other for hosts behind the router."""
    labels = {"beeyard.segment": segment} if segment else {}
    gateway = "fd78::1" if ":" in subnet else subnet.replace(".0/", ".1/").replace(".128/", ".129/").partition("/")[0]
    network = a_network(
        ipam=[an_ipam(subnet, gateway=gateway, ip_range="" if ":" in subnet else subnet)], labels=labels
    )
    told = [warning for warning in network_warnings(network, [NAS, network]) if "overlaps" in warning]
    sentence = (
        f"subnet {subnet} of lan overlaps 10.78.0.0/24 of nas: on one LAN both should be the same, on two LANs give them "
        "different labels beeyard.segment"
    )
    assert told == ([sentence] if is_told else [])
