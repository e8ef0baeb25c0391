"""The hook of IPAM plugins: an address of each of a task's networks whose pools a plugin has, once its node is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from beeyard.core.errors import PluginRefused
from beeyard.core.grant import AddressGrant, AnyGrant
from beeyard.core.ipam import AddressLease
from beeyard.core.mac_address import mac_address_of
from beeyard.core.model import Network, Node, Task
from beeyard.core.pools import ResolvedPool
from beeyard.manager.hooks.address import make_grant
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.hooks.hook import Hook, Stage, Window
from beeyard.manager.hooks.slot_claims import slot_mac
from beeyard.manager.ipam import protocol
from beeyard.manager.ipam.ask import Ask

if TYPE_CHECKING:
    from beeyard.manager.ipam.service import IpamService

NAME = "ipam"
# Not the plugin's deadline, which counts from when it is asked: a large service waits for its turn while the plugin works.
DEADLINE_S = 600.0


PoolsFor = Callable[[str, str, str], Sequence[str]]


def ipam_hook(service: IpamService, ledger: AddressLedger, pools_for: PoolsFor, new_id: Callable[[], str]) -> Hook:
    """Make the hook; arguments as `address_hook`."""

    def release(grant: AnyGrant, used: bool) -> None:
        service.release(grant.id, used=used)

    def restore(task: Task, grant: AnyGrant) -> None:
        assert isinstance(grant, AddressGrant), f"grant {grant.id} of task {task.id} is none of an address"
        ledger.restore(task, grant)

    return Hook(
        name=NAME,
        window=Window(Stage.SCHEDULED, Stage.ASSIGNED),
        deadline_s=DEADLINE_S,
        applies=lambda task: any(_has_plugin(ledger, network_id) for network_id in task.spec.network_ids),
        reserve=_Reservation(service, ledger, pools_for, new_id).reserve,
        release=release,
        restore=restore,
    )


class _Reservation:
    """The hook's `reserve`."""

    def __init__(
        self, service: IpamService, ledger: AddressLedger, pools_for: PoolsFor, new_id: Callable[[], str]
    ) -> None:
        self._service = service
        self._ledger = ledger
        self._pools_for = pools_for
        self._new_id = new_id

    async def reserve(self, task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        """All networks or none, also when cancelled."""
        assert node is not None
        grants: list[AddressGrant] = []
        complete = False
        try:
            for network_id in task.spec.network_ids:
                if _has_plugin(self._ledger, network_id):
                    grants += [await self._reserve_one(task, node, network_id)]
            complete = True
        finally:
            for grant in () if complete else grants:
                self._service.release(grant.id, used=False)
        return tuple(grants)

    async def _reserve_one(self, task: Task, node: Node, network_id: str) -> AddressGrant:
        """The first pool in order that has an address for this node."""
        network = self._ledger.network(network_id)
        by_id = {pool.pool_id: pool for pool in self._ledger.pools(network_id)}
        served = [by_id[pool_id] for pool_id in self._pools_for(task.id, network_id, node.id) if pool_id in by_id]
        if network is None or not served:
            await trio.lowlevel.checkpoint()
            name = network.name if network is not None else network_id
            plugin = next((pool.ipam_driver for pool in by_id.values()), NAME)
            raise PluginRefused(plugin, "node", f"no pool of network {name} serves this node")
        for pool in served[:-1]:
            try:
                return await self._ask(task, node, network, pool)
            except PluginRefused as refusal:
                if refusal.scope != "node":
                    raise
        return await self._ask(task, node, network, served[-1])

    async def _ask(self, task: Task, node: Node, network: Network, pool: ResolvedPool) -> AddressGrant:
        grant_id = self._new_id()
        lease = AddressLease(
            id=grant_id,
            plugin=pool.ipam_driver,
            pool_id=pool.pool_id,
            network_id=network.id,
            node_id=node.id,
            task_id=task.id,
            options=_options(grant_id, task, node, network),
        )
        own = slot_mac(task, network.id)
        ask = Ask(lease, task, pool, own or mac_address_of(grant_id))
        addresses = await self._service.ask(ask)
        return make_grant(grant_id, network, pool, addresses, hook=NAME, mac=own or ask.mac)


def _has_plugin(ledger: AddressLedger, network_id: str) -> bool:
    # All pools of a network have the same IPAM driver.
    return any(pool.is_plugin for pool in ledger.pools(network_id)[:1])


def _options(grant_id: str, task: Task, node: Node, network: Network) -> dict[str, str]:
    """What a plugin is told of whom the address is for. All values are text: the protocol has nothing else."""
    options = {
        protocol.OPTION_LEASE: grant_id,
        protocol.OPTION_NODE_ID: node.id,
        protocol.OPTION_HOSTNAME: node.description.hostname,
        protocol.OPTION_NETWORK: network.name,
        protocol.OPTION_TASK: task.id,
        protocol.OPTION_SERVICE: task.service_name,
        protocol.OPTION_SLOT: str(task.slot),
    }
    labels = {f"{protocol.OPTION_LABELS}{name}": value for name, value in sorted(node.spec.labels.items())}
    return {**options, **labels}


__all__ = ["ipam_hook"]
