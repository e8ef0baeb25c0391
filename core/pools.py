"""Which pools of addresses a network draws from, and what a network must say to be accepted.

A *direct* macvlan network is its own and only pool, for the whole cluster. One with `--config-from NAME` draws from the
config-only network NAME and from every one labelled `beeyard.config=NAME`, also those made later, in order of their names.

A pool's label `beeyard.nodes` says which nodes it serves: constraints separated by commas, all of which must hold; none
means all nodes. Its label `beeyard.segment` names the stretch of LAN it is on, for sites that use the same subnet twice.
Pools without it are all in one segment: where their subnets overlap an address is given once, and where they do not,
sharing a segment makes no difference. (A segment name that followed from the overlaps would change whenever a network is
added, under the addresses already granted.)
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from beeyard.core import constraint
from beeyard.core.address_pool import PoolSpec, edge_addresses
from beeyard.core.errors import ClusterError, Forbidden, InvalidSpec, Unsupported
from beeyard.core.labels import LABEL_CONFIG, LABEL_NODES, LABEL_SEGMENT, check_network_labels
from beeyard.core.model import HOST_NETWORK_ID, IPAMConfig, Network
from beeyard.core.name import NAME_RULE, is_name

OPTION_PARENT = "parent"
OPTION_MODE = "macvlan_mode"
OPTION_MTU = "com.docker.network.driver.mtu"

DEFAULT_SEGMENT = "default"
# 68: the least that IPv4 may use (RFC 791); 1280: IPv6 (RFC 8200); 65535: the largest IP packet.
MTU_MIN, MTU_MIN_IPV6, MTU_MAX = 68, 1280, 65535

_INTERFACE = re.compile(r"[^\s/:]{1,15}")  # Source: Linux dev_valid_name, IFNAMSIZ 16
_OPTIONS = (OPTION_PARENT, OPTION_MODE, OPTION_MTU)

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


class ResolvedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool as one network uses it."""

    pool_id: str  # id of the network that says the subnet: the config-only one, or the direct one itself
    name: str
    network_id: str
    parent: str
    nodes: str  # constraints separated by commas; "": all nodes
    segment: str
    ipam: tuple[IPAMConfig, ...]
    mtu: int = 0  # 0: the parent's
    mode: str = "bridge"
    driver: str = "macvlan"

    def spec(self) -> PoolSpec:
        """The pool as `AddressBook.set_pool` takes it."""
        return PoolSpec(pool_id=self.pool_id, name=self.name, segment=self.segment, ipam=self.ipam)


def config_networks(name: str, networks: Iterable[Network]) -> list[Network]:
    """The config-only networks that `--config-from NAME` means, in order of their names."""
    found = [n for n in networks if n.config_only and name in (n.name, n.labels.get(LABEL_CONFIG))]
    return sorted(found, key=lambda network: (network.name, network.id))


def pools_of(network: Network, networks: Iterable[Network]) -> list[ResolvedPool]:
    """The pools that tasks on a network draw from, in the order in which pools that serve the same node are used."""
    if network.config_only or network.driver == "host":
        return []
    sources = config_networks(network.config_from, networks) if network.config_from else [network]
    return [_resolve(source, network) for source in sources if source.ipam]


def own_pool(config: Network) -> ResolvedPool | None:
    """The pool that a config-only network is by itself, whether or not another network draws from it."""
    return _resolve(config, config) if config.config_only and config.ipam else None


def _resolve(source: Network, network: Network) -> ResolvedPool:
    return ResolvedPool(
        pool_id=source.id,
        name=source.name,
        network_id=network.id,
        parent=source.options.get(OPTION_PARENT, ""),
        nodes=source.labels.get(LABEL_NODES, ""),
        segment=source.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT),
        ipam=source.ipam,
        mtu=int(source.options.get(OPTION_MTU, "0")),
        mode=source.options.get(OPTION_MODE) or "bridge",
        driver=network.driver or "macvlan",
    )


def users_of(config: Network, networks: Iterable[Network]) -> list[Network]:
    """The networks that draw from a config-only network, in order of their names: it may not be removed before them."""
    names = {config.name, config.labels.get(LABEL_CONFIG, config.name)}
    found = [n for n in networks if config.config_only and not n.config_only and n.config_from in names]
    return sorted(found, key=lambda network: (network.name, network.id))


def segments(networks: Iterable[Network]) -> dict[str, str]:
    """The segment of each network that has a subnet, by its id: addresses are unique within a segment."""
    return {n.id: n.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT) for n in networks if n.ipam}


def gateway_warning(network: Network, networks: Iterable[Network]) -> str:
    """What a user should know of gateways that lie in the range of another pool on the same LAN; "" when none does.

    It works: the address book gives nobody the gateway of any pool of a segment. More often than not it is a slip.
    """
    mine = network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT)
    others = [n for n in networks if n.ipam and n.id != network.id]
    found = []
    for other in sorted(others, key=lambda other: other.name):
        if other.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT) != mine:
            continue
        for one, two in ((network, other), (other, network)):
            ranges = [ipaddress.ip_network(config.ip_range or config.subnet) for config in two.ipam]
            known = {config.gateway for config in two.ipam}
            found += [
                f"gateway {config.gateway} of {one.name} lies in the range of {two.name}, which will not hand it out"
                for config in one.ipam
                if config.gateway not in ("", *known)
                and any(ipaddress.ip_address(config.gateway) in span for span in ranges)
            ]
    return "; ".join(found)


def validate_network(network: Network, networks: Iterable[Network]) -> None:
    """Refuse a new network that cannot work, naming the field, its value and what would be right.

    Raises:
        InvalidSpec: a value is wrong or missing.
        Unsupported: something Docker has and Beeyard does not.
        Forbidden: a second predefined network.
    """
    if network.driver == "host" and not network.config_only:
        _check_host(network)
        return
    _check_common(network)
    if network.config_only:
        _check_config_only(network)
    elif network.config_from:
        _check_config_from(network, networks)
    else:
        _check_pool(network)


def _check_host(network: Network) -> None:
    if network.id != HOST_NETWORK_ID:
        raise Forbidden('only one instance of "host" network is allowed: use the predefined network host')


def _check_common(network: Network) -> None:
    if not network.name.strip():
        raise InvalidSpec("name", "it is empty: give the network a name")
    if not is_name(network.name):
        raise InvalidSpec("name", f"{network.name!r:.80}: {NAME_RULE}")
    if network.driver != "macvlan" and not (network.config_only and network.driver == ""):
        driver = network.driver or "bridge"
        raise Unsupported(f"network driver {driver}", "give -d macvlan, or use the predefined network host")
    if network.ipam_driver not in ("", "default"):
        raise Unsupported(f"IPAM driver {network.ipam_driver}", "leave --ipam-driver out to use the built-in one")
    if network.attachable:
        raise Unsupported("an attachable network", "only tasks of services are attached: leave --attachable out")
    check_network_labels(network.labels)
    if LABEL_CONFIG in network.labels and not network.config_only:
        raise InvalidSpec(f"label {LABEL_CONFIG}", "only a network made with --config-only can carry it")


def _check_config_only(network: Network) -> None:
    if network.config_from:
        raise InvalidSpec("config-from", "a configuration network cannot depend on another configuration network")
    if network.internal:
        raise InvalidSpec(
            "internal", "a configuration network has a subnet and options only: say --internal with -d macvlan"
        )
    _check_pool(network)


def _check_config_from(network: Network, networks: Iterable[Network]) -> None:
    _check_scope(network)
    name = network.config_from
    given = (
        (network.ipam, "--subnet, --ip-range, --gateway or --aux-address"),
        (network.options, "-o"),
        (network.enable_ipv6, "--ipv6"),
        (LABEL_NODES in network.labels, f"--label {LABEL_NODES}"),
        (LABEL_SEGMENT in network.labels, f"--label {LABEL_SEGMENT}"),
    )
    for value, flag in given:
        if value:
            raise InvalidSpec(
                "config-from",
                f"{flag} cannot be given together with --config-from {name}: say it in a --config-only network",
            )
    others = list(networks)
    if config_networks(name, others):
        return
    if any(other.name == name for other in others):
        raise InvalidSpec(
            "config-from", f"network {name} is not a configuration network: it was made without --config-only"
        )
    raise InvalidSpec(
        "config-from",
        f"no --config-only network is named {name} or has the label {LABEL_CONFIG}={name}: create one first",
    )


def _check_scope(network: Network) -> None:
    if network.scope not in ("", "swarm"):
        raise Unsupported(f"network scope {network.scope}", "networks of the cluster have --scope swarm")


def _check_pool(network: Network) -> None:
    """A network that says a subnet itself, config-only or direct."""
    if not network.config_only:
        _check_scope(network)
    _check_options(network.options)
    if not network.ipam:
        raise InvalidSpec("subnet", "it is missing: give --subnet, such as --subnet 10.1.0.0/24")
    families = [_check_ipam(config) for config in network.ipam]
    for family in (4, 6):
        if families.count(family) > 1:
            raise InvalidSpec(
                "subnet", f"{families.count(family)} subnets of IPv{family} were given: one of each family is possible"
            )
    if network.enable_ipv6 and 6 not in families:
        raise InvalidSpec(
            "ipv6", "--ipv6 needs a subnet of its own: give a second --subnet, such as --subnet fd00:1::/64"
        )
    mtu = int(network.options.get(OPTION_MTU, "0"))
    if 6 in families and 0 < mtu < MTU_MIN_IPV6:
        raise InvalidSpec(f"option {OPTION_MTU}", f"{mtu} is too small for IPv6: at least {MTU_MIN_IPV6}")
    _check_labels(network)


def _check_labels(network: Network) -> None:
    nodes = network.labels.get(LABEL_NODES)
    if nodes is not None:
        if not constraint.split(nodes):
            raise InvalidSpec(f"label {LABEL_NODES}", "it is empty: leave it out to serve all nodes")
        for expression in constraint.split(nodes):
            try:
                parsed = constraint.parse(expression)
            except ClusterError as error:
                raise InvalidSpec(f"label {LABEL_NODES}", str(error)) from None
            if not parsed.is_known:
                raise InvalidSpec(
                    f"label {LABEL_NODES}",
                    f"{expression!r} matches no node: known are node.id, node.hostname, node.ip, node.role, "
                    "node.platform.os, node.platform.arch, node.labels.NAME and engine.labels.NAME",
                )
    if not network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT).strip():
        raise InvalidSpec(f"label {LABEL_SEGMENT}", "it is empty: give the segment a name or leave it out")


def _check_options(options: dict[str, str]) -> None:
    for option in sorted(options):
        if option not in _OPTIONS:
            raise Unsupported(f"network option {option}", f"known are {', '.join(_OPTIONS)}")
    parent = options.get(OPTION_PARENT, "")
    if not parent:
        raise InvalidSpec(
            "option parent",
            "it is missing: give -o parent=INTERFACE, the nodes' link to that LAN, such as -o parent=eth0",
        )
    if parent in ("lo", ".", "..") or not _INTERFACE.fullmatch(parent):
        raise InvalidSpec(
            "option parent", f"{parent!r} cannot be the name of an interface on a LAN, such as eth0 or eth0.10"
        )
    mode = options.get(OPTION_MODE, "bridge")
    if mode not in ("", "bridge"):
        raise Unsupported(f"{OPTION_MODE} {mode}", "the mode is bridge")
    mtu = options.get(OPTION_MTU, str(MTU_MIN))
    if not (mtu.isascii() and mtu.isdigit() and MTU_MIN <= int(mtu[:9]) <= MTU_MAX and len(mtu) < 9):
        raise InvalidSpec(f"option {OPTION_MTU}", f"{mtu!r} is not a number of bytes from {MTU_MIN} to {MTU_MAX}")


def _check_ipam(config: IPAMConfig) -> int:
    """Check one subnet; returns its family."""
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


__all__ = [
    "DEFAULT_SEGMENT",
    "OPTION_MODE",
    "OPTION_MTU",
    "OPTION_PARENT",
    "ResolvedPool",
    "config_networks",
    "gateway_warning",
    "own_pool",
    "pools_of",
    "segments",
    "users_of",
    "validate_network",
]
