"""The networks of a seed's cluster: which there are, and what services may ask of them.

`lan` is always there: pools for each rack, so small that addresses are soon used again. All others are drawn (swarm testing),
each with a subnet of its own and room for every task at once, so that they never keep one waiting.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import random
from collections.abc import Iterator
from typing import Any

from beeyard.core.model import Link

LAN = "lan"
PLUGIN_NETWORK = "leased"
ROUTED = "routed"
WHOLE = "whole"
# Where the racks' pools begin: each may become twice as large in place.
RACKS = {"r1": ("10.77.0.64", "fd77::40"), "r2": ("10.77.1.64", "fd77::1:40")}
SUBNETS = ("10.77.0.0/22", "fd77::/64")
GATEWAYS = ("10.77.0.1", "fd77::1")
# Further pools, and the addresses that services pin to their slots; some of the latter lie in the former.
FURTHER = ("10.77.2.0", "fd77::2:0")
PINS = ("10.77.2.16", "fd77::2:10")
ROUTED_SUBNET = "10.80.0.0/24"
WHOLE_SUBNET = "10.81.0.0/24"
SECOND_LINK = "10.10"  # of the machines' eth1
KINDS = ("macvlan", "ipvlan", "vlan", "veth")


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a seed has drawn; "" where something does not exist."""

    has_ipv6: bool  # on `lan`
    has_host_access: bool  # on `lan`
    plugin: str  # where its process runs: "local" or "remote" of the manager's machine
    vlan_mode: str  # macvlan's of a network on eth0.100
    second: str  # ipvlan's mode of a network on eth1
    has_bare: bool  # a network without addresses
    has_whole: bool = False  # a network whose tasks have eth2 for themselves, one on each machine

    def names(self) -> list[str]:
        """Every network that services may have."""
        drawn = (
            (PLUGIN_NETWORK, self.plugin),
            ("vlan", self.vlan_mode),
            (ROUTED, self.second),
            ("bare", self.has_bare),
            (WHOLE, self.has_whole),
        )
        return [LAN, *(name for name, exists in drawn if exists)]

    def families(self, addresses: tuple[str, str]) -> tuple[str, ...]:
        """Of a pair of IPv4 and IPv6, what `lan` has."""
        return addresses if self.has_ipv6 else addresses[:1]

    def creations(self) -> Iterator[dict[str, Any]]:
        """The requests that make all networks but the pools of the racks, in order."""
        yield {"Name": LAN, "Driver": "macvlan", "Scope": "swarm", "ConfigFrom": {"Network": "racks"}}
        if self.plugin:
            body = a_network(PLUGIN_NETWORK, "macvlan", "eth0", "10.78.0.0/24", "10.78.0.1")
            yield {**body, "IPAM": {**body["IPAM"], "Driver": "p1"}}
        if self.vlan_mode:
            yield a_network("vlan", "macvlan", "eth0.100", "10.79.0.0/24", macvlan_mode=self.vlan_mode)
        if self.second:
            yield a_network(ROUTED, "ipvlan", "eth1", ROUTED_SUBNET, ipvlan_mode=self.second)
        if self.has_bare:
            body = a_network("bare", "macvlan", "eth0")
            yield {**body, "IPAM": {"Driver": "null"}}
        if self.has_whole:
            yield a_network(WHOLE, "macvlan", "eth2", WHOLE_SUBNET, macvlan_mode="passthru")

    def pool(self, name: str, firsts: tuple[str, str], length: int, nodes: str = "") -> dict[str, Any]:
        """What the docker command sends for a pool of `lan`; `length`: of its IPv4 range, as a prefix."""
        return {
            "Name": name,
            "ConfigOnly": True,
            "EnableIPv6": self.has_ipv6,
            "IPAM": {"Config": self.ranges(firsts, length)},
            "Options": {"parent": "eth0"} | ({"beeyard.host_access": "true"} if self.has_host_access else {}),
            "Labels": {"beeyard.config": "racks"} | ({"beeyard.nodes": nodes} if nodes else {}),
        }

    def ranges(self, firsts: tuple[str, str], length: int) -> list[dict[str, str]]:
        """The configuration of such a pool: as many addresses of IPv6 as of IPv4."""
        lengths = (length, 128 - (32 - length))
        parts = zip(self.families(SUBNETS), firsts, lengths, GATEWAYS, strict=False)
        return [{"Subnet": s, "IPRange": f"{first}/{n}", "Gateway": g} for s, first, n, g in parts]

    def pins(self, number: int, n_slots: int) -> str:
        """Addresses for the slots of one service; those of another that is gone may come again."""
        firsts = [ipaddress.ip_address(text) + 16 * (number % 4) for text in self.families(PINS)]
        return ",".join(f"{first}-{first + n_slots - 1}" for first in firsts)

    def __str__(self) -> str:
        return (
            f"networks {', '.join(self.names())}; IPv6 {self.has_ipv6}; host access {self.has_host_access}; "
            f"plugin {self.plugin or 'none'}; "
            f"VLAN {self.vlan_mode or 'none'}; eth1 {self.second or 'unused'}"
        )


PLAIN = Layout(has_ipv6=False, has_host_access=False, plugin="", vlan_mode="", second="", has_bare=False)


def draw_layout(rng: random.Random) -> Layout:
    """That of a seed."""
    return Layout(
        has_ipv6=rng.random() < 0.3,
        has_host_access=rng.random() < 0.3,
        plugin=rng.choice(("", "local", "local", "remote")),
        vlan_mode=rng.choice(("", "", "bridge", "private", "vepa")),
        second=rng.choice(("", "", "l2", "l3", "l3s")),
        has_bare=rng.random() < 0.2,
        has_whole=rng.random() < 0.25,
    )


def a_network(
    name: str, driver: str, parent: str, subnet: str = "", gateway: str = "", **options: str
) -> dict[str, Any]:
    """What the docker command sends for a network with a subnet of its own."""
    config = {"Subnet": subnet} | ({"Gateway": gateway} if gateway else {})
    return {
        "Name": name,
        "Driver": driver,
        "Scope": "swarm",
        "IPAM": {"Config": [config] if subnet else []},
        "Options": {"parent": parent, **options},
    }


def machine_links(ip: str) -> tuple[Link, ...]:
    """The links of a machine with this address: one for each LAN, of which the last is for tasks alone."""
    number = ip.rpartition(".")[2]
    return (
        Link(name="eth0", mtu=1500, up=True, addresses=(f"{ip}/16", f"fd09::{number}/64")),
        Link(name="eth1", mtu=1500, up=True, addresses=(f"{second_address(ip)}/16",)),
        Link(name="eth2", mtu=1500, up=True),
    )


def second_address(ip: str) -> str:
    """The address of a machine's eth1."""
    return f"{SECOND_LINK}.{ip.partition('.')[2].partition('.')[2]}"


def n_addresses(config: list[dict[str, str]]) -> int:
    """How many tasks a pool of `lan` can give addresses to."""
    return min(ipaddress.ip_network(part["IPRange"]).num_addresses for part in config)


__all__ = [
    "KINDS",
    "LAN",
    "PLAIN",
    "PLUGIN_NETWORK",
    "RACKS",
    "ROUTED",
    "ROUTED_SUBNET",
    "WHOLE",
    "WHOLE_SUBNET",
    "Layout",
    "a_network",
    "draw_layout",
    "machine_links",
    "n_addresses",
    "second_address",
]
