"""The book of addresses as the store implies it: pools of all networks, grants of all tasks, addresses of all nodes.

Theory of operation
-------------------
The book itself is in memory. A new manager builds it before anything is granted: pools, the nodes' own addresses, then
every recorded grant of a task that has not ended, then the grants of tasks that ended so recently that their addresses still
rest. After that the store's changes keep it up to date. Times are of the manager's monotonic clock; an ended task's rest is
counted from when the manager stored its end, so a clock that jumps can only make it longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog
import trio

from beeyard.core.address_pool import COOL_DOWN_S, AddressBook, PoolUsage
from beeyard.core.errors import NotFound
from beeyard.core.labels import LABEL_SEGMENT
from beeyard.core.model import AddressGrant, Network, Node, Task
from beeyard.core.pools import DEFAULT_SEGMENT, ResolvedPool, pools_of
from beeyard.manager.store import View

log = structlog.get_logger(__name__)


class AddressLedger:
    """`AddressBook` with the networks it is about, on trio's clock."""

    def __init__(self, cool_down_s: float = COOL_DOWN_S) -> None:
        self._book = AddressBook(cool_down_s)
        self._cool_down_s = cool_down_s
        self._networks: dict[str, Network] = {}
        self._pools: dict[str, list[ResolvedPool]] = {}
        self._known: dict[str, ResolvedPool] = {}  # by pool id

    def load(self, view: View, wall_now_s: float) -> None:
        """Rebuild from what is stored. Call once, before anything is reserved."""
        self.set_networks(view.networks.values())
        for node in view.nodes.values():
            self.set_node(node)
        ended: list[Task] = []
        for task in view.tasks.values():
            if not task.grants:
                continue
            if task.status.state.is_terminal:
                ended.append(task)
            else:
                self._restore(task)
        for task in ended:
            age_s = max(0.0, wall_now_s - task.updated_at_s)
            if age_s < self._cool_down_s:
                self._rest(task, trio.current_time() - age_s)

    def _rest(self, task: Task, ended_s: float) -> None:
        """Let an ended task's addresses rest, unless they have rested already and are somebody else's.

        Its record may be younger than its end: it was written again when the task's service was removed, for example.
        """
        for grant in task.grants:
            if not isinstance(grant, AddressGrant):
                continue
            try:
                self._book.restore(grant.id, grant.pool_id, grant.segment, grant.addresses)
            except ValueError as reason:
                log.debug("address is in use again", task=task.id, reason=str(reason))
            else:
                self._book.release(grant.id, ended_s)

    def set_networks(self, networks: Iterable[Network]) -> None:
        """Take over all networks as they are now. What is granted stays granted."""
        self._networks = {network.id: network for network in networks}
        all_networks = list(self._networks.values())
        self._pools = {network.id: pools_of(network, all_networks) for network in all_networks}
        # Config-only networks are pools too, also those that no network draws from yet: their usage can be asked for.
        sources = (pool for pools in self._pools.values() for pool in pools)
        known = {pool.pool_id: pool for pool in (*self._own_pools(all_networks), *sources)}
        for pool_id, pool in known.items():
            before = self._known.get(pool_id)
            if before is None or before.spec() != pool.spec():
                self._book.set_pool(pool.spec())
        for pool_id in self._known:
            if pool_id not in known:
                self._book.remove_pool(pool_id)
        self._known = known

    @staticmethod
    def _own_pools(networks: list[Network]) -> Iterator[ResolvedPool]:
        for network in networks:
            if network.config_only and network.ipam:
                yield ResolvedPool(
                    pool_id=network.id,
                    name=network.name,
                    network_id="",
                    parent="",
                    nodes="",
                    segment=network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT),
                    ipam=network.ipam,
                )

    def set_node(self, node: Node) -> None:
        """A node's own addresses are never handed out."""
        self._book.set_foreign(node.id, [a for link in node.description.links for a in link.addresses])

    def remove_node(self, node_id: str) -> None:
        """The node is gone from the cluster, and its addresses with it."""
        self._book.set_foreign(node_id, ())

    def network(self, network_id: str) -> Network | None:
        """A network as the ledger knows it."""
        return self._networks.get(network_id)

    def networks(self) -> Iterable[Network]:
        """All networks."""
        return self._networks.values()

    def pools(self, network_id: str) -> list[ResolvedPool]:
        """The pools of a network in order of their names; empty for `host`, config-only and unknown ones."""
        return self._pools.get(network_id, [])

    def free(self) -> Iterator[tuple[str, int]]:
        """(pool id, addresses that may be handed out now) of every pool that a network draws from."""
        now_s = trio.current_time()
        seen = {pool.pool_id: None for pools in self._pools.values() for pool in pools}
        for pool_id in seen:
            yield pool_id, self._book.usage(pool_id, now_s).free

    def usage(self, pool_id: str) -> PoolUsage | None:
        """Counts of a pool now; None when there is no such pool."""
        try:
            return self._book.usage(pool_id, trio.current_time())
        except NotFound:
            return None

    def next_ready_s(self) -> float | None:
        """When the next resting address becomes free."""
        return self._book.next_ready_s(trio.current_time())

    def reserve(self, pool_id: str, grant_id: str) -> tuple[str, ...]:
        """Take an address of each family. Raises PoolExhausted."""
        return self._book.reserve(pool_id, grant_id, trio.current_time())

    def release(self, grant_id: str, *, used: bool) -> None:
        """Give a grant back; its addresses rest if an agent may have used them. Idempotent."""
        now_s = trio.current_time()
        self._book.release(grant_id, now_s if used else now_s - self._cool_down_s)

    def holds(self, grant_id: str) -> bool:
        """Whether a grant's addresses are taken."""
        return bool(self._book.addresses_of(grant_id))

    def grants(self) -> list[str]:
        """Ids of all grants that hold addresses."""
        return list(self._book.grants())

    def _restore(self, task: Task) -> None:
        for grant in task.grants:
            if not isinstance(grant, AddressGrant):
                continue
            try:
                self._book.restore(grant.id, grant.pool_id, grant.segment, grant.addresses)
            except ValueError as error:
                # Two live tasks with one address were stored: no manager does that. Keep the first, say so.
                log.error("address held twice", task=task.id, reason=str(error))
