"""What a subnet of a network must say to be accepted."""

from __future__ import annotations

import ipaddress
import re

from beeyard.core.address_space import edge_addresses
from beeyard.core.errors import InvalidSpec
from beeyard.core.model import IPAMConfig

Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network

# Source: IANA's registries of special-purpose addresses; hosts refuse to have most of these.
_NOT_FOR_HOSTS: dict[Subnet, str] = {
    ipaddress.ip_network("0.0.0.0/8"): "this network",
    ipaddress.ip_network("127.0.0.0/8"): "loopback",
    ipaddress.ip_network("169.254.0.0/16"): "link-local",
    ipaddress.ip_network("224.0.0.0/4"): "multicast",
    ipaddress.ip_network("240.0.0.0/4"): "reserved",
    # ::/8 has "any address", loopback, and IPv4 in several disguises.
    ipaddress.ip_network("::/8"): "reserved",
    ipaddress.ip_network("fe80::/10"): "link-local",
    ipaddress.ip_network("ff00::/8"): "multicast",
}


def check_ipam(config: IPAMConfig) -> int:
    """Check one subnet; returns its family, 4 or 6.

    Raises:
        InvalidSpec: the subnet, its range, its gateway or an auxiliary address cannot be.
    """
    subnet = _subnet("subnet", config.subnet)
    for taken, use in _NOT_FOR_HOSTS.items():
        if subnet.version == taken.version and subnet.overlaps(taken):
            reason = f"{config.subnet} is not for hosts of a LAN ({taken} is {use}): such as 10.1.0.0/24 or fd00:1::/64"
            raise InvalidSpec("subnet", reason)
    span = _subnet("ip-range", config.ip_range) if config.ip_range else subnet
    first, last = int(span.network_address), int(span.broadcast_address)
    if span.version != subnet.version or not (span.network_address in subnet and span.broadcast_address in subnet):
        raise InvalidSpec("ip-range", f"{config.ip_range} is not within the subnet {config.subnet}")
    edges = edge_addresses(subnet)
    fixed = set(edges)
    named = [("gateway", config.gateway)] if config.gateway else []
    named += [(f"aux-address {name}", text) for name, text in sorted(config.aux_addresses.items())]
    for field, text in named:
        number = _host(field, text, subnet)
        if number in edges:
            raise InvalidSpec(field, f"{text} is the network or broadcast address of {config.subnet}")
        if number in fixed:
            raise InvalidSpec(field, f"{text} is given twice")
        fixed.add(number)
    if last - first + 1 <= sum(first <= number <= last for number in fixed):
        raise InvalidSpec("ip-range", f"{span} has no address left to hand out: give a larger one")
    return subnet.version


def _subnet(field: str, text: str) -> Subnet:
    try:
        subnet = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidSpec(field, f"{text!r} is not an address and a prefix length, such as 10.1.0.0/24") from None
    # "10.1.0.0" alone would mean a subnet of one address, which nobody who leaves the length out wants.
    if not re.fullmatch(r"[^/]+/\d{1,3}", text):
        raise InvalidSpec(field, f"{text!r} has no prefix length: such as {subnet.network_address}/24")
    if str(subnet.network_address) != str(ipaddress.ip_interface(text).ip):
        raise InvalidSpec(field, f"{text!r} has bits set behind its prefix: it should be {subnet}")
    return subnet


def _host(field: str, text: str, subnet: Subnet) -> int:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidSpec(field, f"{text!r} is not an address, such as {subnet.network_address + 1}") from None
    if address.version != subnet.version or address not in subnet:
        raise InvalidSpec(field, f"{text} is not within the subnet {subnet}")
    return int(address)


__all__ = ["Subnet", "check_ipam"]
