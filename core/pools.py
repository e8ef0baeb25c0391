"""Which pools of addresses a network draws from. What it must say to be accepted is in `core.network_spec`.

A *direct* network (`-d macvlan` or `-d ipvlan`) is its own and only pool, for the whole cluster. One with
`--config-from NAME` draws from the config-only network NAME and from every one labelled `beeyard.config=NAME`, also those
made later, in order of their names. All pools of a network have the same IPAM driver.

A pool's label `beeyard.nodes` says which nodes it serves: constraints separated by commas, all of which must hold; none
means all nodes. Its label `beeyard.segment` names the stretch of LAN it is on, for sites that use the same subnet twice.
Pools without it are all in one segment: where their subnets overlap an address is given once, and where they do not,
sharing a segment makes no difference. (A segment name that followed from the overlaps would change whenever a network is
added, under the addresses already granted.)
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from beeyard.core.address_pool import PoolSpec
from beeyard.core.labels import LABEL_CONFIG, LABEL_NODES, LABEL_SEGMENT
from beeyard.core.model import IPAMConfig, Network
from beeyard.core.network_options import OPTION_PARENT, driver_of, flag_of, has_host_access, mode_of, mtu_of

DEFAULT_SEGMENT = "default"

# IPAM drivers that are built in; any other name is a Docker remote IPAM plugin's.
IPAM_DEFAULT = "default"  # the cluster's own address book
IPAM_NULL = "null"  # links without addresses


class ResolvedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool as one network uses it."""

    pool_id: str  # id of the network that says the subnet: the config-only one, or the direct one itself
    name: str
    network_id: str
    parent: str
    nodes: str  # constraints separated by commas; "": all nodes
    segment: str
    ipam: tuple[IPAMConfig, ...]  # at most one of each family; none with IPAM driver null, and perhaps with a plugin
    mtu: int = 0  # bytes; 0: the parent's
    driver: str = "macvlan"  # or "ipvlan"
    mode: str = "bridge"  # macvlan: bridge, private, vepa, passthru; ipvlan: l2, l3, l3s
    flag: str = ""  # ipvlan: bridge, private, vepa; "" for macvlan
    host_access: bool = False  # macvlan in mode bridge: hosts reach their own tasks
    ipam_driver: str = IPAM_DEFAULT  # "default", "null" or the name of a Docker remote IPAM plugin
    ipam_options: dict[str, str] = {}  # for the plugin

    @property
    def has_book(self) -> bool:
        """Whether the cluster's own address book gives its addresses."""
        return self.ipam_driver == IPAM_DEFAULT

    @property
    def is_plugin(self) -> bool:
        """Whether a Docker remote IPAM plugin gives its addresses."""
        return self.ipam_driver not in (IPAM_DEFAULT, IPAM_NULL)

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
    return [_resolve(source, network) for source in sources]


def own_pool(config: Network) -> ResolvedPool | None:
    """The pool that a config-only network is by itself, whether or not another network draws from it."""
    return _resolve(config, config) if config.config_only else None


def ipam_driver_of(network: Network) -> str:
    """The IPAM driver that a network names, the built-in one when it names none."""
    return network.ipam_driver or IPAM_DEFAULT


def _resolve(source: Network, network: Network) -> ResolvedPool:
    options = source.options
    driver = network.driver or driver_of(options) or "macvlan"
    return ResolvedPool(
        pool_id=source.id,
        name=source.name,
        network_id=network.id,
        parent=options.get(OPTION_PARENT, ""),
        nodes=source.labels.get(LABEL_NODES, ""),
        segment=segment_of(source),
        ipam=source.ipam,
        mtu=mtu_of(options),
        driver=driver,
        mode=mode_of(options, driver),
        flag=flag_of(options, driver),
        host_access=has_host_access(options),
        ipam_driver=ipam_driver_of(source),
        ipam_options=source.ipam_options,
    )


def users_of(config: Network, networks: Iterable[Network]) -> list[Network]:
    """The networks that draw from a config-only network, in order of their names: it may not be removed before them."""
    names = {config.name, config.labels.get(LABEL_CONFIG, config.name)}
    found = [n for n in networks if config.config_only and not n.config_only and n.config_from in names]
    return sorted(found, key=lambda network: (network.name, network.id))


def segment_of(network: Network) -> str:
    """The stretch of LAN that a network with a subnet is on."""
    return network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT)


def segments(networks: Iterable[Network]) -> dict[str, str]:
    """The segment of each network that has a subnet, by its id: addresses are unique within a segment."""
    return {n.id: segment_of(n) for n in networks if n.ipam}


__all__ = [
    "DEFAULT_SEGMENT",
    "IPAM_DEFAULT",
    "IPAM_NULL",
    "ResolvedPool",
    "config_networks",
    "ipam_driver_of",
    "own_pool",
    "pools_of",
    "segment_of",
    "segments",
    "users_of",
]
