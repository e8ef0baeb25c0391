"""Changing a network in place: its subnets, ranges and labels, while tasks have addresses of it."""

from __future__ import annotations

import ipaddress

import msgspec

from beeyard.core.errors import FailedPrecondition, InvalidSpec, Unsupported
from beeyard.core.labels import LABEL_CONFIG
from beeyard.core.model import HOST_NETWORK_ID, IPAMConfig, Network
from beeyard.core.network_spec import validate_network
from beeyard.core.pools import IPAM_DEFAULT, config_networks, ipam_driver_of, segment_of, users_of
from beeyard.manager.control.network_use import check_fixed_addresses, granted, pins_without
from beeyard.manager.store import Store, Transaction


class NetworkChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different; None: as it is."""

    ipam: tuple[IPAMConfig, ...] | None = None
    labels: dict[str, str] | None = None


async def update_network(store: Store, network_id: str, version: int, change: NetworkChange) -> tuple[Network, str]:
    """Change a network, and say what the user should know.

    Tasks keep the addresses they have, with the prefix lengths and gateways of when they got them. Those outside of a range
    that became smaller are given to nobody again.

    Args:
        version: of the network as the caller saw it.

    Returns:
        The network, and a warning or "".

    Raises:
        NotFound, OutOfSequence, DiskError
        InvalidSpec, Unsupported: see `core.network_spec.validate_network`; the new gateway is the address of a task; a
            task has an address outside of the new subnet; …
        FailedPrecondition: a network would be left without a pool, or a service without its pinned addresses.
    """

    if network_id == HOST_NETWORK_ID:
        raise Unsupported("changing the predefined network host")

    def build(tx: Transaction) -> tuple[Network, str]:
        network = tx.find(Network, network_id)
        changed = msgspec.structs.replace(
            network,
            ipam=network.ipam if change.ipam is None else change.ipam,
            labels=network.labels if change.labels is None else change.labels,
        )
        others = [other for other in tx.networks.values() if other.id != network.id]
        validate_network(changed, others)
        if changed.ipam != network.ipam and not network.ipam:
            raise Unsupported("giving a subnet to a network without one", "create another network")
        if changed.ipam != network.ipam and ipam_driver_of(network) != IPAM_DEFAULT:
            # The plugin was told the pool when it was obtained, and its protocol has no way to change one.
            what = f"changing the subnet of a network with the IPAM driver {network.ipam_driver}"
            raise Unsupported(what, "create another one")
        _check_granted(tx, network, changed)
        check_fixed_addresses(tx, changed)
        _check_users(network, changed, others)
        before = pins_without(tx)
        stored = tx.update(changed, expected_version=version)
        if (reason := pins_without(tx)) != before:
            raise FailedPrecondition(f"network {network.name} cannot be changed so: {reason}")
        return stored, _warning(tx, network, changed)

    return await store.commit(build)


def _check_granted(tx: Transaction, network: Network, changed: Network) -> None:
    """Refuse a change that would leave addresses of tasks outside of their own subnet, or on another LAN."""
    if changed.ipam == network.ipam and segment_of(changed) == segment_of(network):
        return
    subnets = [ipaddress.ip_network(config.subnet) for config in changed.ipam]
    for task, grant in granted(tx):
        if network.id not in (grant.pool_id, grant.network_id):
            continue
        owner = f"task {task.service_name}.{task.slot}"
        if segment_of(changed) != segment_of(network):
            raise InvalidSpec("label beeyard.segment", f"{owner} has an address of it: only an unused pool can move")
        for address in grant.addresses:
            if not any(ipaddress.ip_interface(address).ip in subnet for subnet in subnets):
                text = " and ".join(map(str, subnets)) or "no subnet"
                raise InvalidSpec("subnet", f"{owner} has {address.partition('/')[0]}, which is not in {text}")


def _check_users(network: Network, changed: Network, others: list[Network]) -> None:
    """Refuse to take a network's last pool away by another label."""
    for user in users_of(network, others):
        if not config_networks(user.config_from, [*others, changed]):
            reason = f"network {user.name} draws from it and has no other pool"
            raise FailedPrecondition(f"label {LABEL_CONFIG} of network {network.name} cannot be changed: {reason}")


def _warning(tx: Transaction, network: Network, changed: Network) -> str:
    """How many tasks go on with what was true before."""
    if changed.ipam == network.ipam:
        return ""
    lengths = {ipaddress.ip_network(config.subnet).prefixlen for config in changed.ipam}
    gateways = {config.gateway for config in changed.ipam if config.gateway}
    ranges = [ipaddress.ip_network(config.ip_range or config.subnet) for config in changed.ipam]
    old = outside = 0
    for task, grant in granted(tx):
        if grant.pool_id != network.id:
            continue
        addresses = [ipaddress.ip_interface(address) for address in grant.addresses]
        old += {a.network.prefixlen for a in addresses} - lengths != set() or set(grant.gateways) != gateways
        # A pinned address need not be in the range, and stays its slot's.
        outside += not task.pins and any(not any(a.ip in span for span in ranges) for a in addresses)
    parts = []
    if outside:
        parts.append(f"{_tasks_keep(outside)} addresses outside of the new range to the end")
    if old:
        parts.append(f"{_tasks_keep(old)} the former prefix length or gateway to the end")
    return "; ".join(parts)


def _tasks_keep(n_tasks: int) -> str:
    return "1 task keeps" if n_tasks == 1 else f"{n_tasks} tasks keep"


__all__ = ["NetworkChange", "update_network"]
