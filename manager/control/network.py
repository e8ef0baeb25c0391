"""Creating and removing networks; changing one is in `network_update`."""

from __future__ import annotations

from beeyard.core.errors import FailedPrecondition, Forbidden
from beeyard.core.model import HOST_NETWORK_NAME, Network
from beeyard.core.network_spec import validate_network
from beeyard.manager.control.network_use import check_fixed_addresses, pins_without, use_of
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
        InvalidSpec: its gateway or an auxiliary address is the address of a task, or pinned to a slot.
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
    check_fixed_addresses(tx, network)


async def remove_network(store: Store, network_id: str) -> None:
    """Remove a network that nobody uses, or one of several pools of a network: tasks keep its addresses to their end.

    Raises:
        NotFound, DiskError
        FailedPrecondition: in use; names the service, task or network that does.
    """

    def build(tx: Transaction) -> None:
        network = tx.find(Network, network_id)
        if reason := use_of(tx, network):
            raise FailedPrecondition(f"network {network.name} is in use by {reason}")
        before = pins_without(tx)
        tx.delete(Network, network_id)
        if (reason := pins_without(tx)) != before:
            raise FailedPrecondition(f"network {network.name} is in use by {reason}")

    await store.commit(build)


__all__ = ["add_network", "check_network", "create_network", "remove_network"]
