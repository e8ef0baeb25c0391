"""A `ManagerStatus` for tests of the API alone: tokens from the store, usage of pools from the grants in it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from beeyard.core.address_pool import AddressBook, PoolUsage
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Network, Task
from beeyard.core.placement import Demand, PlacementIndex, PoolColumn
from beeyard.core.pools import pools_of
from beeyard.core.resources import Room
from beeyard.core.states import Role
from beeyard.manager.api.status import Packing, PutAside, TokenSource
from beeyard.manager.control.network import create_network
from beeyard.manager.control.network_release import release_addresses
from beeyard.manager.published import PublishedLists
from beeyard.manager.store import Store, Transaction


class PlainStatus:
    """Answers as a running manager would, without one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.address = "10.99.0.1:2377"
        self.warnings: list[str] = []
        self.waits: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.refusals: dict[str, list[str]] = {}  # by task: nodes
        self.tries: dict[str, float] = {}  # by task that ended: when its slot is tried again
        self.packing = Packing(0, 0, 0, ())
        self.n_rotations = 0
        self.published: PublishedLists | None = None
        self.tokens: TokenSource | None = None
        self.gossip_metrics = ""

    @property
    def ipam_plugins(self) -> list[str]:
        return []

    async def create_network(self, network: Network) -> Network:
        return await create_network(self._store, network)

    def join_token(self, role: Role) -> str:
        cluster = self._store.cluster
        assert cluster is not None
        secret = cluster.manager_secret if role is Role.MANAGER else cluster.worker_secret
        return f"SWMTKN-1-{'0' * 50}-{secret}"

    async def rotate_join_token(self, role: Role) -> str:
        self.n_rotations += 1
        secret = f"{self.n_rotations:025}"

        def build(tx: Transaction) -> None:
            assert tx.cluster is not None
            field = "manager_secret" if role is Role.MANAGER else "worker_secret"
            tx.update(msgspec.structs.replace(tx.cluster, **{field: secret}))

        await self._store.commit(build)
        return self.join_token(role)

    def put_aside(self, pool_id: str) -> Sequence[PutAside]:
        return ()

    def closed_pool(self, pool_id: str) -> str:
        return ""

    async def take_back(self, found: Mapping[str, Sequence[str]]) -> None:
        await release_addresses(self._store, found, 3600.0)

    def room(self, node_id: str) -> Room | None:
        return self.placement().room(node_id)

    def placement(self) -> PlacementIndex:
        index = PlacementIndex()
        for node in self._store.nodes.values():
            index.set_node(node)
        networks = list(self._store.networks.values())
        for network in networks:
            if not network.config_only:
                index.set_network(network.id, network.driver, self._columns(network, networks), name=network.name)
        for task in self._store.tasks.values():
            if task.holds_room:
                index.hold(task.id, Demand.of(task), task.node_id)
        return index

    def _columns(self, network: Network, networks: list[Network]) -> list[PoolColumn]:
        columns = []
        for pool in pools_of(network, networks):
            usage = self.pool_usage(pool.pool_id)
            free = usage.free if usage is not None else 0
            columns.append(PoolColumn(pool.pool_id, pool.name, pool.parent, pool.nodes, free))
        return columns

    def refusing(self, task: Task) -> Sequence[str]:
        return self.refusals.get(task.id, ())

    def pool_usage(self, pool_id: str) -> PoolUsage | None:
        networks = list(self._store.networks.values())
        pool = next((p for network in networks for p in pools_of(network, networks) if p.pool_id == pool_id), None)
        if pool is None or not pool.has_book:
            return None
        book = AddressBook()
        book.set_pool(pool.spec())
        for task in self._store.tasks.values():
            for grant in task.grants:
                if isinstance(grant, AddressGrant) and grant.pool_id == pool_id and task.holds_room:
                    plain = [str(ipaddress.ip_interface(address)) for address in grant.addresses]
                    book.restore(grant.id, pool_id, grant.segment, plain)
        return book.usage(pool_id, 0.0)

    def waiting_for(self, task_id: str) -> str:
        return self.waits.get(task_id, "")

    def next_try_at_s(self, task: Task) -> float | None:
        return self.tries.get(task.id)

    def held_back(self, task: Task) -> str:
        return self.held.get(task.id, "")
