"""Whether an address that a plugin gave can be a task's: plugins are programs of others, and their answers are checked."""

from __future__ import annotations

import ipaddress

from beeyard.core.address_space import edge_addresses
from beeyard.core.model import IPAMConfig
from beeyard.manager.ipam.fault import quote

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

# What plugins say when they have nothing left, in lower case; the protocol has no code for it. The first is libnetwork's own.
_EXHAUSTED = (
    *("no available", "not available", "exhaust", "no free", "no more", "no address", "no ip", "none left"),
    *("out of address", "pool is full", "is depleted"),
)


def read_address(text: str) -> Interface | None:
    """An address with its prefix length, "10.201.0.21/24"; None when that is not what it is."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


def misfit(given: Interface, config: IPAMConfig) -> str:
    """Why an address cannot be one of a pool's tasks; "" when it can. Goes on behind "gave 10.9.9.9/24, "."""
    subnet = ipaddress.ip_network(config.subnet)
    if given.version != subnet.version:
        return f"which is not of IPv{subnet.version}"
    if given.ip not in subnet:
        return f"which is not in {subnet}"
    if given.network.prefixlen != subnet.prefixlen:
        return f"whose prefix length is not that of {subnet}"
    if int(given.ip) in edge_addresses(subnet):
        return f"which is the network or broadcast address of {subnet}"
    if config.gateway and given.ip == ipaddress.ip_address(config.gateway):
        return "which is the gateway"
    for name, address in sorted(config.aux_addresses.items()):
        if given.ip == ipaddress.ip_address(address):
            return f"which is the auxiliary address {quote(name)}"
    return ""


def says_exhausted(reason: str) -> bool:
    """Whether a plugin's words mean that it has no address left."""
    lower = reason.lower()
    return any(words in lower for words in _EXHAUSTED)


__all__ = ["Interface", "misfit", "read_address", "says_exhausted"]
