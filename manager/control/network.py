"""Creating and removing networks."""

from __future__ import annotations

import ipaddress

from beeyard.core.errors import FailedPrecondition, Forbidden, InvalidSpec
from beeyard.core.grant import AddressGrant
from beeyard.core.labels import LABEL_SEGMENT
from beeyard.core.model import HOST_NETWORK_NAME, Network
from beeyard.core.network_spec import validate_network
from beeyard.core.pools import DEFAULT_SEGMENT, config_networks, users_of
from beeyard.manager.store import Store, Transaction

# Names that Docker keeps for itself; a network called so could never be told from Docker's own.
PREDEFINED_NAMES = (HOST_NETWORK_NAME, "none", "bridge", "default", "ingress", "docker_gwbridge")


async def create_network(store: Store, network: Network) -> Network:
    """Store a new network.

    Raises:
        See `add_network`; DiskError.
    """
    return await store.commit(lambda tx: add_network(tx, network))


def add_network(tx: Transaction, network: Network) -> Network:
    """Create a network in a transaction.

    Raises:
        InvalidSpec, Unsupported: see `core.network_spec.validate_network`.
        InvalidSpec: its gateway is the address of a task.
        Forbidden: a predefined name.
        NameConflict
    """
    check_network(tx, network)
    return tx.create(network)


def check_network(tx: Transaction, network: Network) -> None:
    """Raise what `add_network` would, except for a name that another network has."""
    if network.name in PREDEFINED_NAMES:
        raise Forbidden(f"operation is not permitted on predefined {network.name} network")
    validate_network(network, tx.networks.values())
    _check_gateways(tx, network)


def _check_gateways(tx: Transaction, network: Network) -> None:
    """Refuse a gateway that another pool of the same LAN has given to a task already."""
    gateways = {ipaddress.ip_address(config.gateway) for config in network.ipam if config.gateway}
    segment = network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT)
    for task in tx.tasks.values() if gateways else ():
        for grant in task.grants if task.holds_room else ():
            if not isinstance(grant, AddressGrant) or grant.segment != segment:
                continue
            for address in grant.addresses:
                if ipaddress.ip_interface(address).ip in gateways:
                    owner = f"task {task.service_name}.{task.slot} on network {grant.network_name}"
                    raise InvalidSpec("gateway", f"{address.partition('/')[0]} is the address of {owner}")


async def remove_network(store: Store, network_id: str) -> None:
    """Remove a network that nobody uses.

    Raises:
        NotFound, DiskError
        FailedPrecondition: in use; names the service, task or network that does.
    """

    def build(tx: Transaction) -> None:
        network = tx.find(Network, network_id)
        if reason := _use_of(tx, network):
            raise FailedPrecondition(f"network {network.name} is in use by {reason}")
        tx.delete(Network, network_id)

    await store.commit(build)


def _use_of(tx: Transaction, network: Network) -> str:
    """Who still needs a network; "" when nobody does."""
    for service in tx.services.values():
        if network.id in service.spec.task.network_ids:
            return f"service {service.spec.name}"
    for task in tx.tasks.values():
        if task.holds_room and any(
            isinstance(grant, AddressGrant) and network.id in (grant.network_id, grant.pool_id) for grant in task.grants
        ):
            return f"task {task.service_name}.{task.slot} ({task.id}), which still holds an address of it"
    for user in users_of(network, tx.networks.values()):
        # One of several pools may go; the last one may not.
        if config_networks(user.config_from, tx.networks.values()) == [network]:
            return f"network {user.name}, which has no other pool"
    return ""


__all__ = ["add_network", "check_network", "create_network", "remove_network"]
