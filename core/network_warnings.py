"""What a user should know of a network that works as it is and is more often than not a slip."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

from beeyard.core.model import IPAMConfig, Network
from beeyard.core.network_options import driver_of, is_routed, mode_of
from beeyard.core.pools import IPAM_DEFAULT, ipam_driver_of, segment_of


def network_warnings(network: Network, networks: Iterable[Network]) -> list[str]:
    """A sentence for each matter; none when there is nothing to say.

    Args:
        network: as it is stored now.
        networks: all networks, with or without it.
    """
    near = [n for n in networks if n.ipam and n.id != network.id and segment_of(n) == segment_of(network)]
    others = sorted(near, key=lambda other: other.name)
    return [
        *_without_gateway(network, others),
        *_overlapping_subnets(network, others),
        *_foreign_gateways(network, others),
    ]


def _without_gateway(network: Network, others: Sequence[Network]) -> list[str]:
    """Docker takes the first address of a subnet as its gateway when none is named; here that address is a task's."""
    driver = network.driver or driver_of(network.options)
    routed = driver != "" and is_routed(driver, mode_of(network.options, driver))
    if network.internal or routed or ipam_driver_of(network) != IPAM_DEFAULT:
        return []
    known = {a for n in (network, *others) for c in n.ipam for a in (c.gateway, *c.aux_addresses.values())}
    return [_gateway_advice(network, config, known) for config in network.ipam if not config.gateway]


def _gateway_advice(network: Network, config: IPAMConfig, never_given: Collection[str]) -> str:
    subnet = ipaddress.ip_network(config.subnet)
    first = str(subnet.network_address + (1 if subnet.num_addresses > 2 else 0))
    is_free = ipaddress.ip_address(first) in ipaddress.ip_network(config.ip_range or config.subnet)
    advice = f"no gateway is given for {config.subnet} of {network.name}: its tasks have no default route"
    if is_free and first not in never_given:
        advice += f", and {first}, as routers often have, is given to a task"
    return f"{advice}; give --gateway if there is one"


def _overlapping_subnets(network: Network, others: Sequence[Network]) -> list[str]:
    """Pools of one LAN have one subnet, or subnets that do not overlap."""
    return [
        f"subnet {mine.subnet} of {network.name} overlaps {theirs.subnet} of {other.name}: on one LAN both should be the "
        "same, on two LANs give them different labels beeyard.segment"
        for other in others
        for theirs in other.ipam
        for mine in network.ipam
        if mine.subnet != theirs.subnet and _overlap(mine.subnet, theirs.subnet)
    ]


def _overlap(one: str, other: str) -> bool:
    first, second = ipaddress.ip_network(one), ipaddress.ip_network(other)
    return first.version == second.version and first.overlaps(second)


def _foreign_gateways(network: Network, others: Sequence[Network]) -> list[str]:
    """Gateways that lie in the range of another pool on the same LAN.

    It works: the address book gives nobody the gateway of any pool of a segment. More often than not it is a slip.
    """
    found = []
    for other in others:
        for one, two in ((network, other), (other, network)):
            ranges = [ipaddress.ip_network(config.ip_range or config.subnet) for config in two.ipam]
            known = {config.gateway for config in two.ipam}
            found += [
                f"gateway {config.gateway} of {one.name} lies in the range of {two.name}, which will not hand it out"
                for config in one.ipam
                if config.gateway not in ("", *known)
                and any(ipaddress.ip_address(config.gateway) in span for span in ranges)
            ]
    return found


__all__ = ["network_warnings"]
