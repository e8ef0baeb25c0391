"""What an orchestrator, a scheduler and agents would make of a store, at once and without any of them.

For tests of the API with the real docker command: each service gets its tasks, RUNNING on the nodes in turn, with an address
when its network has pools; surplus and outdated tasks end.
"""

from __future__ import annotations

import ipaddress

import msgspec

from beeyard.core.grant import AddressGrant
from beeyard.core.model import HOST_NETWORK_ID, Network, Service, Task, TaskStatus, UpdateState
from beeyard.core.pools import pools_of
from beeyard.core.rollout import is_dirty
from beeyard.core.states import TaskState
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Host


class InstantCluster:
    """Keeps every service at its number of running tasks."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host = host
        self._store = store
        self._n_addresses = 0

    async def run(self) -> None:
        async with self._store.subscribe("service") as wakeups:
            async for _ in wakeups:
                await self._store.commit(self._settle)

    def _settle(self, tx: Transaction) -> None:
        for task in list(tx.tasks.values()):
            service = tx.services.get(task.service_id)
            if service is None or task.slot > service.spec.replicas or is_dirty(task, service, tx.nodes):
                self._end(tx, task, TaskState.REMOVE if service is None else TaskState.SHUTDOWN)
        for service in list(tx.services.values()):
            live = {task.slot for task in tx.tasks_of_service(service.id) if task.holds_room}
            for slot in range(1, service.spec.replicas + 1):
                if slot not in live:
                    tx.create(self._running(tx, service, slot))
            status = service.update_status
            if status is not None and status.state is UpdateState.UPDATING:
                done = msgspec.structs.replace(
                    status, state=UpdateState.COMPLETED, completed_at_s=tx.now_s, message="update completed"
                )
                tx.update(msgspec.structs.replace(service, update_status=done))

    def _end(self, tx: Transaction, task: Task, desired: TaskState) -> None:
        if task.holds_room:
            status = msgspec.structs.replace(task.status, state=TaskState.SHUTDOWN, message="shutdown", at_s=tx.now_s)
            tx.update(msgspec.structs.replace(task, status=status, desired_state=max(desired, task.desired_state)))

    def _running(self, tx: Transaction, service: Service, slot: int) -> Task:
        nodes = list(tx.nodes.values())
        task_id = self._host.new_id()
        return Task(
            id=task_id,
            service_id=service.id,
            service_name=service.spec.name,
            slot=slot,
            spec=service.spec.task,
            spec_version=service.spec_version,
            node_id=nodes[slot % len(nodes)].id,
            status=TaskStatus(state=TaskState.RUNNING, message="started", at_s=tx.now_s, pid=1000 + slot),
            grants=tuple(
                self._grant(tx, task_id, network_id)
                for network_id in service.spec.task.network_ids
                if network_id != HOST_NETWORK_ID
            ),
        )

    def _grant(self, tx: Transaction, task_id: str, network_id: str) -> AddressGrant:
        network = tx.find(Network, network_id)
        pool = pools_of(network, tx.networks.values())[0]
        self._n_addresses += 1
        subnet = ipaddress.ip_network(pool.ipam[0].ip_range or pool.ipam[0].subnet)
        prefix = pool.ipam[0].subnet.partition("/")[2]
        return AddressGrant(
            id=f"g{task_id}",
            hook="address",
            network_id=network.id,
            network_name=network.name,
            pool_id=pool.pool_id,
            pool_name=pool.name,
            segment=pool.segment,
            driver="macvlan",
            parent=pool.parent,
            addresses=(f"{subnet[self._n_addresses]}/{prefix}",),
        )
