"""MAC addresses that follow from IP addresses."""

from __future__ import annotations

import ipaddress

import pytest

from beeyard.core.mac_address import mac_address


def test_an_address_always_has_the_same_mac_address() -> None:
    """Agents of any release and a manager after a restart agree; whether the prefix length is said makes no difference."""
    assert mac_address("default", "10.77.0.64/24") == mac_address("default", "10.77.0.64") == "02:69:0a:4d:00:40"
    assert mac_address("default", "fd00:1::40/64") == mac_address("default", "fd00:1::40") == "06:f9:fd:a3:09:23"


@pytest.mark.parametrize("address", ["0.0.0.1", "255.255.255.254", "::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe"])
def test_it_is_of_one_host_and_of_no_vendor(address: str) -> None:
    first = int(mac_address("default", address)[:2], 16)
    assert first & 3 == 2


@pytest.mark.parametrize("subnet", ["10.0.0.0/16", "fd00:1::/112"])
def test_no_two_addresses_of_a_subnet_share_one(subnet: str) -> None:
    network = ipaddress.ip_network(subnet)
    macs = {mac_address("default", str(address)) for address in network}
    assert len(macs) == network.num_addresses


def test_subnets_families_and_segments_differ() -> None:
    addresses = ["10.0.0.1", "10.0.1.1", "::10.0.0.1", "fd00:1::1", "fd00:2::1", "fd00:1::1:0:0:1"]
    macs = {mac_address(segment, address) for segment in ("default", "site b") for address in addresses}
    assert len(macs) == 2 * len(addresses)
