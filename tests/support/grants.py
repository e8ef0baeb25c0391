"""Builders of address grants."""

from __future__ import annotations

import ipaddress
from typing import Any

from beeyard.core.grant import AddressGrant

_GATEWAYS = {4: "10.9.0.1", 6: "fd00:9::1"}


def a_grant(*addresses: str, **changes: Any) -> AddressGrant:
    """A macvlan grant on eth0 of the LAN 10.9.0.0/24, fd00:9::/64, with the gateway of each family that it has."""
    addresses = addresses or ("10.9.0.10/24", "fd00:9::10/64")
    families = [ipaddress.ip_interface(address).version for address in addresses]
    values: dict[str, Any] = {
        "id": "grant-" + "-".join(addresses),
        "hook": "address",
        "network_id": "network-lan",
        "network_name": "lan",
        "pool_id": "pool-lan-r1",
        "pool_name": "lan-r1",
        "segment": "lan",
        "driver": "macvlan",
        "parent": "eth0",
        "addresses": addresses,
        "gateways": tuple(gateway for version, gateway in _GATEWAYS.items() if version in families),
    }
    return AddressGrant(**(values | changes))
