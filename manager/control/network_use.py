"""Who has addresses of a network, and what that forbids."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from beeyard.core.errors import InvalidSpec
from beeyard.core.grant import AddressGrant
from beeyard.core.labels import LABEL_ADDRESSES, LABEL_CONFIG
from beeyard.core.model import Network, Task
from beeyard.core.pools import config_networks, segment_of, users_of
from beeyard.manager.control.slots import check_slots, pinned_addresses
from beeyard.manager.store import Transaction


def granted(tx: Transaction) -> Iterator[tuple[Task, AddressGrant]]:
    """Every address grant that a task holds, in the order of the tasks."""
    for task in tx.tasks.values():
        for grant in task.grants if task.holds_room else ():
            if isinstance(grant, AddressGrant):
                yield task, grant


def check_fixed_addresses(tx: Transaction, network: Network) -> None:
    """Refuse a gateway or an auxiliary address that a task on the same LAN has, or that is pinned to a slot.

    Raises:
        InvalidSpec
    """
    fixed = {ipaddress.ip_address(config.gateway): "gateway" for config in network.ipam if config.gateway}
    for config in network.ipam:
        fixed |= {ipaddress.ip_address(text): f"aux-address {name}" for name, text in config.aux_addresses.items()}
    segment = segment_of(network)
    for task, grant in granted(tx) if fixed else ():
        for address in grant.addresses if grant.segment == segment else ():
            field = fixed.get(ipaddress.ip_interface(address).ip)
            if field:
                owner = f"task {task.service_name}.{task.slot} on network {grant.network_name}"
                raise InvalidSpec(field, f"{address.partition('/')[0]} is the address of {owner}")
    for text, use in pinned_addresses(tx, [segment]).items() if fixed else ():
        if field := fixed.get(ipaddress.ip_address(text)):
            raise InvalidSpec(field, f"{text} is {use}")


def use_of(tx: Transaction, network: Network) -> str:
    """Who still needs a network, so that it cannot be removed; "" when nobody does.

    A config-only network may go while tasks have addresses of it: they keep them to their end. But not the last one that a
    network draws from.
    """
    for service in tx.services.values():
        if network.id in service.spec.task.network_ids:
            return f"service {service.spec.name}"
    networks = list(tx.networks.values())
    users = users_of(network, networks)
    for user in users:
        if config_networks(user.config_from, networks) == [network]:
            more = f"create another with --label {LABEL_CONFIG}={user.config_from} first, or remove {user.name}"
            return f"network {user.name}, which has no other pool: {more}"
    for task, grant in granted(tx):
        if network.id == grant.network_id or (network.id == grant.pool_id and not users):
            return f"task {task.service_name}.{task.slot} ({task.id}), which still holds an address of it"
    return ""


def pins_without(tx: Transaction) -> str:
    """Which service's pinned addresses cannot be given any more, as things are in a transaction; "" when all can."""
    for service in tx.services.values():
        if LABEL_ADDRESSES not in service.spec.labels:
            continue
        try:
            check_slots(tx, service.spec, None)
        except InvalidSpec as error:
            return f"service {service.spec.name}: {error.reason}"
    return ""


__all__ = ["check_fixed_addresses", "granted", "pins_without", "use_of"]
