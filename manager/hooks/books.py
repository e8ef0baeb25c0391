"""The book of addresses as the store implies it: pools of all networks, grants of all tasks, addresses of all nodes.

Theory of operation
-------------------
The book itself is in memory. A new manager builds it before anything is granted: pools and the nodes' own addresses (`load`),
then every recorded grant of a task that has not ended (`restore`, which the address hook passes on), then what is known of
tasks that have ended (`rest`). After that the store's changes keep it up to date.

Times are of the manager's monotonic clock. How long ago a task of an earlier life ended only a wall clock could tell, and one
that jumped forward would cut the rest short; so the addresses of all ended tasks that are still stored rest anew, in full.
No task is deleted before that rest is over, also of a service that was removed (`manager/orchestrators/reaper.py`).

An address that an agent found in use by a stranger is put aside for much longer (`set_aside`). That is said again of what is
stored when a new manager starts, and there the wall clock must do: should it have jumped, an agent finds the stranger again.
What an operator took back is said by the pool's stored network (`Network.taken_back`): so a new manager knows that too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import structlog
import trio

from beeyard.core.address_pool import COOL_DOWN_S, AddressBook, PoolUsage
from beeyard.core.errors import NotFound
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Network, Node, Service, Task
from beeyard.core.pools import ResolvedPool, own_pool, pools_of
from beeyard.manager.hooks.aside import ASIDE_S, AddressesAside, Aside, closed_by, in_pool
from beeyard.manager.hooks.slot_claims import SlotClaims, owner_of_pins
from beeyard.manager.store import View

# More than any number of tasks, for pools whose addresses others count, or that have none.
FREE_UNLIMITED = 1 << 62

log = structlog.get_logger(__name__)


class AddressLedger:
    """`AddressBook` with the networks it is about, on trio's clock."""

    def __init__(
        self,
        cool_down_s: float = COOL_DOWN_S,
        *,
        aside_s: float = ASIDE_S,
        wall_now_s: Callable[[], float] | None = None,
    ) -> None:
        """`wall_now_s`: the clock of the times in the store; None: whatever is found there has just happened."""
        self._book = AddressBook(cool_down_s)
        self._aside = AddressesAside(aside_s, self._book.set_aside)
        self.aside_s = aside_s
        self._wall_now_s = wall_now_s
        self._cool_down_s = cool_down_s
        self._networks: dict[str, Network] = {}
        self._pools: dict[str, list[ResolvedPool]] = {}
        self._known: dict[str, ResolvedPool] = {}  # by pool id
        self._slots = SlotClaims(self._book, self.pools)
        self._taken_back: dict[str, dict[str, float]] = {}  # by pool id: `Network.taken_back`
        self._clashes: dict[str, list[str]] = {}  # by node id: its own addresses that tasks hold, as last told

    def load(self, view: View) -> None:
        """Take over networks and nodes from what is stored. Call once, before anything is restored or reserved."""
        self.set_networks(view.networks.values())
        for node in view.nodes.values():
            self.set_node(node)
        for service in view.services.values():
            self.set_service(service.id, service)

    def restore(self, task: Task, grant: AddressGrant) -> None:
        """Hold again what a task that has not ended was granted in an earlier life of the manager."""
        self._slots.own(task, grant.id, grant.network_id)
        try:
            self._book.restore(grant.id, grant.pool_id, grant.segment, grant.addresses, owner=owner_of_pins(task))
        except ValueError as error:
            # Two live tasks with one address were stored: no manager does that. Keep the first, say so.
            log.error("address held twice", task=task.id, reason=str(error))

    def rest(self, task: Task) -> None:
        """Let the addresses of a task that ended in an earlier life rest. Call when all that live tasks hold is restored."""
        for grant in task.grants:
            if not isinstance(grant, AddressGrant):
                continue
            try:
                self._book.restore(grant.id, grant.pool_id, grant.segment, grant.addresses, owner=owner_of_pins(task))
            except ValueError as reason:
                # It has rested already, and is somebody else's now.
                log.debug("address is in use again", task=task.id, reason=str(reason))
            else:
                self._book.release(grant.id, trio.current_time())

    def set_aside(self, task: Task, *, stored: bool = False) -> None:
        """Nobody is given for a while what a task's agent found taken. `stored`: in an earlier life of this manager."""
        if task.status.conflicts:
            ago_s = self._wall_now_s() - task.updated_at_s if stored and self._wall_now_s is not None else 0.0
            self._aside.add(task, trio.current_time(), ago_s=max(0.0, ago_s))
            if stored:
                self._take_back(self._taken_back)

    def aside(self, pool_id: str = "") -> list[Aside]:
        """What is put aside now: in a pool's ranges, or everywhere."""
        found = list(self._aside.now(trio.current_time()))
        if not pool_id:
            return found
        pool = self._known.get(pool_id)
        return [] if pool is None else in_pool(found, pool)

    def closed(self, pool_id: str) -> str:
        """Why no more addresses of a pool are tried; "" when they are. See `manager/hooks/aside.py`."""
        pool = self._known.get(pool_id)
        crowds = self._aside.of_crowds(trio.current_time())
        return closed_by(crowds, pool) if crowds and pool is not None else ""

    def all_closed(self) -> list[str]:
        """The same of all pools, in order of their names."""
        crowds = self._aside.of_crowds(trio.current_time())
        pools = sorted(self._known.values(), key=lambda pool: pool.name) if crowds else ()
        return [words for pool in pools if (words := closed_by(crowds, pool))]

    def wall_s(self, at_s: float) -> float:
        """A time of the manager's monotonic clock, by the clock of the times in the store."""
        return at_s if self._wall_now_s is None else self._wall_now_s() + at_s - trio.current_time()

    def _take_back(self, pools: Iterable[str]) -> None:
        """Put nothing aside any more that was found before an operator took it back."""
        for pool_id in pools:
            times = self._taken_back[pool_id]
            for aside in self.aside(pool_id):
                if aside.found_at_s <= times.get(aside.address, -math.inf):
                    self._aside.drop(aside)
                    self._book.take_back(aside.segment, aside.address)

    def set_networks(self, networks: Iterable[Network]) -> None:
        """Take over all networks as they are now. What is granted stays granted."""
        self._networks = {network.id: network for network in networks}
        all_networks = list(self._networks.values())
        self._pools = {network.id: pools_of(network, all_networks) for network in all_networks}
        # Config-only networks are pools too, also those that no network draws from yet: their usage can be asked for.
        sources = (pool for pools in self._pools.values() for pool in pools)
        known = {pool.pool_id: pool for pool in (*filter(None, map(own_pool, all_networks)), *sources)}
        for pool_id, pool in known.items():
            if not pool.ipam:
                continue
            # Of a plugin's pool too: nobody on its LAN may get its gateway.
            before = self._known.get(pool_id)
            if before is None or before.spec() != pool.spec():
                self._book.set_pool(pool.spec())
        for pool_id in self._known:
            if pool_id not in known:
                self._book.remove_pool(pool_id)
        self._known = known
        self._slots.networks_changed()
        known_times, self._taken_back = self._taken_back, {n.id: n.taken_back for n in all_networks if n.taken_back}
        self._take_back([pool_id for pool_id, times in self._taken_back.items() if times != known_times.get(pool_id)])

    def set_service(self, service_id: str, service: Service | None) -> bool:
        """A service came, changed or went (None): what its labels pin is kept for its slots. Whether that is, or was, any."""
        return self._slots.set_service(service_id, service)

    def slot_conflict(self, task: Task) -> tuple[str, str]:
        """What a waiting task's slot cannot have yet, and the id of the task that has it: see `SlotClaims.conflict`."""
        what, task_id = self._slots.conflict(task)
        if not task_id and task.pins:  # a better word for it than that it rests
            for aside in self.aside():
                if aside.address in task.pins and any(
                    pool.segment == aside.segment for id_ in task.spec.network_ids for pool in self.pools(id_)
                ):
                    return (
                        f"address {aside.address}, which {aside.mac} outside the cluster has and which is put aside",
                        "",
                    )
        return what, task_id

    def set_node(self, node: Node) -> None:
        """A node's own addresses are never handed out. One that a task has already is on the LAN twice: said once."""
        addresses = [a for link in node.description.links for a in link.addresses]
        self._book.set_foreign(node.id, addresses)
        clashes = self._book.held_among(addresses)
        if clashes and clashes != self._clashes.get(node.id):
            log.warning("a node has addresses of its own that tasks hold", node=node.id, addresses=clashes)
        self._clashes[node.id] = clashes

    def remove_node(self, node_id: str) -> None:
        """The node is gone from the cluster, and its addresses with it."""
        self._book.set_foreign(node_id, ())
        self._clashes.pop(node_id, None)

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
        """(pool id, addresses that may be handed out now) of every pool that a network draws from and that has addresses."""
        now_s = trio.current_time()
        crowds = self._aside.of_crowds(now_s)
        seen = {pool.pool_id: pool for pools in self._pools.values() for pool in pools if pool.ipam}
        for pool_id, pool in seen.items():
            if crowds and closed_by(crowds, pool):
                yield pool_id, 0
            else:
                yield pool_id, self._book.usage(pool_id, now_s).free if pool.has_book else FREE_UNLIMITED

    def free_of(self, pool: ResolvedPool) -> int:
        """How many addresses a pool may hand out now; of one that the book does not know, as many as anybody asks for."""
        usage = self.usage(pool.pool_id) if pool.has_book else None
        return FREE_UNLIMITED if usage is None else usage.free

    def usage(self, pool_id: str) -> PoolUsage | None:
        """Counts of a pool now; None when the book has no such pool."""
        try:
            return self._book.usage(pool_id, trio.current_time())
        except NotFound:
            return None

    def rests_until_s(self, pool_id: str, address: str) -> float:
        """When an address of a pool may be handed out again; in the past when nothing keeps it."""
        pool = self._known.get(pool_id)
        ready_s = self._book.ready_s(pool.segment, address) if pool is not None else None
        return -math.inf if ready_s is None else ready_s

    def next_ready_s(self) -> float | None:
        """When the next resting address becomes free."""
        return self._book.next_ready_s(trio.current_time())

    def reserve(self, pool: ResolvedPool, grant_id: str, task: Task) -> tuple[str, ...]:
        """Take an address of each family, those of the task's slot if it has some; none in a pool that has no book.

        Raises:
            PoolExhausted, AddressUnavailable
        """
        addresses: tuple[str, ...] = ()
        if pool.has_book and task.pins:
            addresses = self._book.reserve_pinned(
                pool.pool_id, grant_id, task.pins, trio.current_time(), owner=owner_of_pins(task)
            )
        elif pool.has_book:
            addresses = self._book.reserve(pool.pool_id, grant_id, trio.current_time())
        else:
            # A grant all the same, which is given back as others are.
            self._book.restore(grant_id, pool.pool_id, pool.segment, ())
        self._slots.own(task, grant_id, pool.network_id)
        return addresses

    def claim(self, pool: ResolvedPool, grant_id: str, task: Task, addresses: tuple[str, ...]) -> str:
        """Take addresses that somebody else chose, all or none; "" or why one of them cannot be had.

        The reason goes on behind the address: "which another task holds".
        """
        now_s = trio.current_time()
        for address in addresses:
            if use := self._book.use_of(pool.segment, address, now_s):
                return f"{address.partition('/')[0]}, which {use}"
        self._book.restore(grant_id, pool.pool_id, pool.segment, addresses)
        self._slots.own(task, grant_id, pool.network_id)
        return ""

    def release(self, grant_id: str, *, used: bool) -> None:
        """Give a grant back; its addresses rest if an agent may have used them. Idempotent."""
        now_s = trio.current_time()
        self._slots.give_up(grant_id)
        self._book.release(grant_id, now_s if used else now_s - self._cool_down_s)

    def holds(self, grant_id: str) -> bool:
        """Whether a grant's addresses are taken."""
        return bool(self._book.addresses_of(grant_id))

    def grants(self) -> list[str]:
        """Ids of all grants that hold addresses."""
        return list(self._book.grants())
