"""The address hook: a place on each of a task's networks, once its node is known.

That is a link with an address of each family that the node's pool has; with IPAM driver `null` a link without addresses. The
networks whose addresses a plugin gives are left to the hook of plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from beeyard.core.errors import AddressUnavailable, HookRefused, PoolExhausted
from beeyard.core.grant import AddressGrant, AnyGrant
from beeyard.core.mac_address import mac_address
from beeyard.core.model import HOST_NETWORK_ID, Network, Node, Task
from beeyard.core.pools import ResolvedPool
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.hooks.hook import Hook, Stage, Window
from beeyard.manager.hooks.slot_claims import has_own_mac, slot_mac

NAME = "address"
# The book is in memory and answers at once; the deadline is only reached on a machine that stands still.
DEADLINE_S = 30.0


def address_hook(
    ledger: AddressLedger, pools_for: Callable[[str, str, str], Sequence[str]], new_id: Callable[[], str]
) -> Hook:
    """Make the hook.

    Args:
        ledger: Who has which address.
        pools_for: (task id, network id, node id) → ids of the pools that may give the address, in order of use.
        new_id: For grants.
    """

    def applies(task: Task) -> bool:
        return any(not pool.is_plugin for network_id in task.spec.network_ids for pool in ledger.pools(network_id)[:1])

    async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        """All networks or none. No checkpoint after the first reservation, so cancellation finds nothing half done."""
        await trio.lowlevel.checkpoint()
        assert node is not None
        grants: list[AddressGrant] = []
        try:
            for network_id in task.spec.network_ids:
                network = ledger.network(network_id)
                if network_id == HOST_NETWORK_ID:
                    continue
                if network is None:
                    raise HookRefused(NAME, "everywhere", f"network {network_id} is gone")
                if not any(pool.is_plugin for pool in ledger.pools(network_id)[:1]):
                    grants.append(_reserve_one(task, network, node))
        except HookRefused:
            for grant in grants:
                release(grant, False)
            raise
        return tuple(grants)

    def _reserve_one(task: Task, network: Network, node: Node) -> AddressGrant:
        served = pools_for(task.id, network.id, node.id)
        by_id = {pool.pool_id: pool for pool in ledger.pools(network.id)}
        reasons: list[str] = []
        for pool in (by_id[pool_id] for pool_id in served if pool_id in by_id):
            grant_id = new_id()
            try:
                addresses = ledger.reserve(pool, grant_id, task)
            except (AddressUnavailable, PoolExhausted) as error:
                reasons.append(str(error))
                continue
            return make_grant(grant_id, network, pool, addresses, mac=slot_mac(task, network.id))
        raise HookRefused(NAME, "node", "; ".join(reasons) or f"no pool of network {network.name} serves this node")

    def release(grant: AnyGrant, used: bool) -> None:
        ledger.release(grant.id, used=used)

    return Hook(
        name=NAME,
        window=Window(Stage.SCHEDULED, Stage.ASSIGNED),
        deadline_s=DEADLINE_S,
        applies=applies,
        reserve=reserve,
        release=release,
        restore=partial(_restore, ledger),
    )


def _restore(ledger: AddressLedger, task: Task, grant: AnyGrant) -> None:
    assert isinstance(grant, AddressGrant), f"grant {grant.id} of task {task.id} is none of an address"
    ledger.restore(task, grant)


def make_grant(
    grant_id: str,
    network: Network,
    pool: ResolvedPool,
    addresses: tuple[str, ...],
    *,
    hook: str = NAME,
    mac: str = "",
) -> AddressGrant:
    """What a task gets of a pool of a network. `mac`: one that was settled before; "": it follows from the address."""
    follows = mac_address(pool.segment, addresses[0]) if addresses else ""
    return AddressGrant(
        id=grant_id,
        hook=hook,
        network_id=network.id,
        network_name=network.name,
        pool_id=pool.pool_id,
        pool_name=pool.name,
        segment=pool.segment,
        driver=pool.driver,
        mode=pool.mode,
        flag=pool.flag,
        parent=pool.parent,
        addresses=addresses,
        gateways=tuple(config.gateway for config in pool.ipam if config.gateway),
        mac=(mac or follows) if has_own_mac(pool) else "",
        mtu=pool.mtu,
        internal=network.internal,
        host_access=pool.host_access,
    )
