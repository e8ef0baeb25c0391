"""Keeps what decisions are made on in line with the store: the placement index, the book of addresses, the tasks that wait.

Theory of operation
-------------------
`load` builds all of it from the store; from then on `apply` takes each durable change once. Both look only at what *is*, so a
change that comes twice, or coalesced with others, does no harm. A task's room and grants are held until its end was
*observed*: `Task.holds_room`. What plans in memory hold is put into the index by whoever makes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import cast

import msgspec
import structlog
import trio

from beeyard.core.grant import AddressGrant
from beeyard.core.model import HOST_NETWORK_ID, HOST_NETWORK_NAME, Node, Service, Task
from beeyard.core.network_options import link_kind
from beeyard.core.parent_links import LinkUse
from beeyard.core.placement import Decision, Demand, PlacementIndex, PoolColumn
from beeyard.core.states import ASSIGNED, NEW, RUNNING, NodeState, TaskState
from beeyard.core.volume import Volume
from beeyard.manager.batches import Batches, Lot, in_lots
from beeyard.manager.blocked import Blocked, Group
from beeyard.manager.hooks import Hook, release_grants, restore_grants
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.store import Change, View

log = structlog.get_logger(__name__)


class Planner:
    """The manager's view for placing tasks. `hooks` are needed to give back what ended tasks held."""

    def __init__(
        self, view: View, ledger: AddressLedger, strategy: str = "spread", index: PlacementIndex | None = None
    ) -> None:
        """Args: by which strategy tasks are placed that name none, or an empty index to be used as it is."""
        self.index = index or PlacementIndex(strategy=strategy)
        self.ledger = ledger
        self.hooks: Sequence[Hook] = ()
        # Tasks by where they stand on their way to a node; dicts for their order.
        self.new: dict[str, None] = {}
        self.pending: dict[Group, dict[str, None]] = {}
        self.blocked = Blocked()
        self.batches = Batches()
        # Asked before a task's room is given back: a plan in memory may hold it.
        self.has_plan: Callable[[str], bool] = lambda task_id: False
        self._view = view
        self._network_ids: list[str] = []
        # Why demands fit nowhere, "" for those that do, as found in this round; by demand and masked nodes.
        self._reasons: dict[tuple[Demand, tuple[str, ...]], str] = {}

    def load(self) -> None:
        """Build everything from the store, recorded grants first: nothing new is granted before this returns."""
        self.ledger.load(self._view)
        self._restore_grants()
        for node in self._view.nodes.values():
            self.index.set_node(node)
        for volume in self._view.volumes.values():
            self.index.volumes.set(volume)
        self._networks_changed()
        for task in self._view.tasks.values():
            self._sort_task(task)
            if task.holds_room:
                self._hold(task)

    def apply(self, changes: Iterable[Change]) -> None:
        """Take over durable changes."""
        networks = False
        for change in changes:
            if change.kind == "task":
                self._task_changed(cast("Task | None", change.old), cast("Task | None", change.new))
            elif change.kind == "node":
                self._node_changed(change.id, cast("Node | None", change.new))
            elif change.kind == "network":
                networks = True
            elif change.kind == "volume":
                self._volume_changed(change.id, cast("Volume | None", change.new))
            elif change.kind == "service" and self.ledger.set_service(change.id, cast("Service | None", change.new)):
                self.blocked.something_changed()
        if networks:
            self.ledger.set_networks(self._view.networks.values())
            self._networks_changed()

    def groups_to_look_at(self, now_s: float) -> list[Group]:
        """Groups that were not decided on since something changed."""
        groups = [group for group in self.pending if not self.blocked.rests(group, now_s)]
        # Those that can go to one node alone come first: the others find a place beside them.
        return sorted(groups, key=lambda group: not group[3])

    def waiting(self, group: Group, planned: Container[str], resting: Container[str]) -> list[Task]:
        """The tasks of a group that are to be placed now; without any, the group is not blocked any more."""
        tasks = [
            task
            for task_id in self.pending[group]
            if task_id not in planned and task_id not in resting and (task := self._view.tasks.get(task_id)) is not None
        ]
        if not tasks:
            self.blocked.forget(group)
        return tasks

    def lots(self, groups: Sequence[Group], has_masks: Callable[[Group], bool]) -> list[Lot]:
        """Groups by which are decided at once. Those with masked nodes are decided alone."""
        now_s = trio.current_time()

        def may_join(group: Group) -> bool:
            task = self._view.tasks.get(next(iter(self.pending[group])))
            if task is None or task.has_slot_addresses or has_masks(group):
                return False
            return self.index.packs_together(Demand.of(task), now_s)

        return in_lots(groups, lambda group: len(self.pending[group]), may_join)

    def place_together(self, asked: Sequence[tuple[Sequence[Task], Demand]]) -> list[Decision]:
        """Give several groups to the kernel at once, to be packed."""
        groups = [(demand, [task.id for task in tasks]) for tasks, demand in asked]
        return self.batches.place(self.index, groups, trio.current_time())

    def place(self, tasks: Sequence[Task], demand: Demand, masked: Sequence[str]) -> Decision:
        """Give the tasks of a group to the kernel; one whose slot's addresses are not free yet waits for them."""
        if not tasks[0].has_slot_addresses:
            task_ids = [task.id for task in tasks]
            decision = self.index.place(demand, task_ids, masked=masked, now_s=trio.current_time())
            words = self._with_closed_pools(demand, decision.explanation)
            return msgspec.structs.replace(decision, explanation=words)
        what, holder_id = self.ledger.slot_conflict(tasks[0])
        if what:
            return Decision([], len(tasks), [], self._waits_for(what, holder_id))
        # One only: the next one of the slot must find the addresses taken.
        decision = self.index.place(demand, [tasks[0].id], masked=masked, now_s=trio.current_time())
        return msgspec.structs.replace(decision, unplaced=len(tasks) - len(decision.placed))

    def _with_closed_pools(self, demand: Demand, explanation: str) -> str:
        """Why a demand has no place, and which of its pools gives no addresses though it has some left."""
        if not explanation:
            return ""
        pools = dict.fromkeys(pool.pool_id for id_ in demand.network_ids for pool in self.ledger.pools(id_))
        return "; ".join([explanation, *filter(None, map(self.ledger.closed, pools))])

    def _waits_for(self, what: str, holder_id: str) -> str:
        """The sentence on a slot that has to wait, for `docker service ps`."""
        holder = self._view.tasks.get(holder_id)
        if holder is None:
            return f"waits for {what}"
        node = self._view.nodes.get(holder.node_id)
        where = f"on node {node.description.hostname or node.id}" if node is not None else "which has no node yet"
        until = ""
        if node is not None and node.status.state is not NodeState.READY:
            until = (
                f", which is {node.status.state}: it is free when the node comes back or that task's lease has ended"
            )
        return f"waits for {what}: task {holder.service_name}.{holder.slot} ({holder.id}) {where} still has it{until}"

    def stays_blocked(self, group: Group, masked: Sequence[str], now_s: float) -> bool:
        """Whether a group that was blocked still has no place for any of its tasks.

        That costs the same for one waiting task and for ten thousand, and is done once for all groups that ask for the same.
        """
        demand = self.blocked.demand(group)
        if demand is None:
            return False
        key = demand, tuple(masked)
        if key not in self._reasons:
            self._reasons[key] = self._with_closed_pools(demand, self.index.explain(demand, masked=key[1]))
        return self.blocked.still(group, self._reasons[key], now_s)

    def room_changed(self) -> None:
        """Something was placed or given back: reasons found before may not hold."""
        self._reasons.clear()

    def refresh_pools(self) -> None:
        """Tell the index how many addresses each pool can give now. Before each round of placing."""
        self.room_changed()
        for pool_id, free in self.ledger.free():
            self.index.set_pool_free(pool_id, free)

    def _restore_grants(self) -> None:
        ended = [task for task in self._view.tasks.values() if task.status.state.is_terminal]
        for task in self._view.tasks.values():
            if not task.status.state.is_terminal:
                restore_grants(self.hooks, task)
        for task in ended:
            # Of those that ended just before the manager did, hooks were not told.
            release_grants(self.hooks, task.grants, used=True)
            self.ledger.rest(task)
            self.ledger.set_aside(task, stored=True)

    def _node_changed(self, node_id: str, node: Node | None) -> None:
        if node is None:
            self.index.remove_node(node_id)
            self.ledger.remove_node(node_id)
        else:
            self.index.set_node(node)
            self.ledger.set_node(node)
        self.blocked.something_changed()

    def _volume_changed(self, volume_id: str, volume: Volume | None) -> None:
        if volume is None:
            self.index.volumes.remove(volume_id)
        else:
            self.index.volumes.set(volume)
        self.blocked.something_changed()

    def _networks_changed(self) -> None:
        # The predefined network needs no pool and is not stored.
        self.index.set_network(HOST_NETWORK_ID, "host", (), name=HOST_NETWORK_NAME)
        usable = [network for network in self.ledger.networks() if not network.config_only]
        for network_id in self._network_ids:
            if self.ledger.network(network_id) is None and network_id != HOST_NETWORK_ID:
                self.index.remove_network(network_id)
        self._network_ids = [network.id for network in usable]
        for network in usable:
            columns = [
                PoolColumn(
                    pool_id=pool.pool_id,
                    name=pool.name,
                    parent=pool.parent,
                    nodes=pool.nodes,
                    free=self.ledger.free_of(pool),
                    kind=link_kind(pool.driver, pool.mode, pool.flag),
                    subnets=tuple(config.subnet for config in pool.ipam),
                )
                for pool in self.ledger.pools(network.id)
            ]
            self.index.set_network(network.id, network.driver, columns, name=network.name)
        self.blocked.something_changed()

    def _task_changed(self, old: Task | None, new: Task | None) -> None:
        if new is not None:
            has_ended = new.status.state > RUNNING
            if old is not None and old.node_id and not has_ended:
                return  # Placed before, and not over: it waits for nothing, and has what it holds.
            self._sort_task(new)
            if new.node_id and not has_ended and not self.index.has_hold(new.id):
                self._hold(new)
            if has_ended:
                if old is None or not old.status.state.is_terminal:
                    self.ledger.set_aside(new)
                    self._note_failure(new)
                self._ended(new)
        elif old is not None:
            self._unsort_task(old)
            if old.holds_room:
                log.error("task deleted before its end was observed", task=old.id, state=old.status.state.name)
            self._ended(old)

    def _hold(self, task: Task) -> None:
        """Count a task that has its node already."""
        self.index.hold(task.id, Demand.of(task), task.node_id, links=_links_of(task), volumes=task.volumes)

    def _note_failure(self, task: Task) -> None:
        """Remember that a node failed a service; not of tasks that can go nowhere else, nor for what another machine did."""
        failed = task.status.state in (TaskState.FAILED, TaskState.REJECTED)
        if failed and task.node_id and not task.bound_node_id and not task.status.conflicts:
            self.index.note_failure(task.service_id, task.spec_version, task.node_id, trio.current_time())

    def _ended(self, task: Task) -> None:
        """Give back the room and the grants of a task that is over. Idempotent."""
        if not self.has_plan(task.id):
            self.index.drop(task.id)
        release_grants(self.hooks, task.grants, used=True)
        self.blocked.something_changed()

    def _sort_task(self, task: Task) -> None:
        """Put a task where it waits; one that is there already keeps its turn."""
        if task.status.state >= ASSIGNED or task.desired_state > RUNNING:
            self._unsort_task(task)
        elif task.status.state is NEW:
            self.new.setdefault(task.id)
        else:
            self.new.pop(task.id, None)
            tasks = self.pending.setdefault(group := group_of(task), {})
            if task.id not in tasks:
                tasks[task.id] = None
                self.blocked.forget(group)

    def _unsort_task(self, task: Task) -> None:
        self.new.pop(task.id, None)
        tasks = self.pending.get(group := group_of(task))
        if tasks is not None:
            tasks.pop(task.id, None)
            if not tasks:
                del self.pending[group]
                self.blocked.forget(group)


def _links_of(task: Task) -> list[LinkUse]:
    """A placed task's links on the parents of its node."""
    grants = [grant for grant in task.grants if isinstance(grant, AddressGrant)]
    return [(grant.parent, link_kind(grant.driver, grant.mode, grant.flag)) for grant in grants]


def group_of(task: Task) -> Group:
    """The tasks that are decided on together with this one."""
    slot = task.slot if task.has_slot_addresses else 0
    return task.service_id, task.spec_version, slot, task.bound_node_id
