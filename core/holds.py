"""What occupies the nodes: a task's room, its host ports, its place in the count of its service, its links and plans.

A *hold* begins when the task is placed, or when it is found in the store, and ends when its observed state is terminal. It
*counts* while its node is known. The kernel takes the room of tasks that it places itself; `add_placed` notes what it took.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping, Sequence
from copy import copy

import msgspec

from beeyard.core.demand import Demand, Placed
from beeyard.core.host_ports import PortTable
from beeyard.core.kinds import Kinds
from beeyard.core.node_table import Needs, NodeTable
from beeyard.core.parent_links import LinkUse, ParentLinks
from beeyard.core.pool_rows import PoolRows
from beeyard.core.service_tasks import ServiceTasks


class Hold(msgspec.Struct, gc=False):
    """One task on one node."""

    demand: Demand
    needs: Needs
    node_id: str
    counted: bool = False  # the node is known, so the hold is in the table
    plans: tuple[str, ...] = ()  # pools in which an address is planned
    pools: tuple[str, ...] = ()  # those that were chosen, one for each network of the demand that has pools
    links: tuple[LinkUse, ...] = ()  # its links on the node's parents


class Layer(MutableMapping[str, Hold]):
    """Holds over those of somebody else, which stay as they are: what is read from there is a copy."""

    def __init__(self, below: MutableMapping[str, Hold]) -> None:
        self._below = below
        self._own: dict[str, Hold] = {}
        self._gone: set[str] = set()

    def __getitem__(self, task_id: str) -> Hold:
        hold = self._own.get(task_id)
        if hold is None:
            if task_id in self._gone:
                raise KeyError(task_id)
            hold = self._own[task_id] = copy(self._below[task_id])
        return hold

    def __setitem__(self, task_id: str, hold: Hold) -> None:
        self._own[task_id] = hold

    def __delitem__(self, task_id: str) -> None:
        if task_id not in self:
            raise KeyError(task_id)
        self._own.pop(task_id, None)
        self._gone.add(task_id)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._own or (task_id not in self._gone and task_id in self._below)

    def __iter__(self) -> Iterator[str]:
        yield from list(self._own)
        yield from [task_id for task_id in self._below if task_id not in self._own and task_id not in self._gone]

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Holds:
    """The holds of all tasks, and everything that is counted by them. Each call changes all counts or none."""

    def __init__(self, table: NodeTable, kinds: Kinds, pools: PoolRows, links: ParentLinks) -> None:
        self._table = table
        self._kinds = kinds
        self._pools = pools
        self._links = links
        self.rows: dict[str, int] = {}  # of the known nodes in the table
        self.by_task: MutableMapping[str, Hold] = {}
        self._below: Holds | None = None  # whose copy this is: nodes that nobody touched here are as there
        self._by_node: dict[str, dict[str, None]] = {}  # ids of tasks
        self.services = ServiceTasks()
        self.ports = PortTable()

    def copy(self, table: NodeTable, kinds: Kinds, pools: PoolRows, links: ParentLinks) -> Holds:
        """Holds of their own to try things on, until these change; over copies of the rest. Cheap however many there are."""
        twin = Holds(table, kinds, pools, links)
        twin._below, twin.by_task, twin.rows = self, Layer(self.by_task), dict(self.rows)
        twin.services, twin.ports = self.services.copy(), self.ports.copy()
        return twin

    def tasks_on(self, node_id: str) -> Collection[str]:
        """Ids of the tasks that have holds on a node, known or not, in the order in which they came."""
        of_node = self._by_node.get(node_id)
        if of_node is None:
            return () if self._below is None else self._below.tasks_on(node_id)
        return of_node

    def on(self, node_id: str) -> list[Hold]:
        """The holds of a node, known or not."""
        return [self.by_task[task_id] for task_id in self.tasks_on(node_id)]

    def add(self, task_id: str, demand: Demand, node_id: str, links: tuple[LinkUse, ...]) -> None:
        """Occupy a node for a task that has no hold yet."""
        hold = Hold(demand, self._kinds.needs(demand), node_id, links=links)
        self.by_task[task_id] = hold
        self._own(node_id)[task_id] = None
        row = self.rows.get(node_id)
        if row is not None:
            self.count(hold, row)

    def drop(self, task_id: str) -> None:
        """End a task's hold, and what is left of its plan. Idempotent."""
        hold = self.by_task.pop(task_id, None)
        if hold is None:
            return
        self.settle(hold)
        of_node = self._own(hold.node_id)
        del of_node[task_id]
        if not of_node and self._below is None:
            del self._by_node[hold.node_id]
        if hold.counted:
            self.uncount(hold, self.rows[hold.node_id])

    def settle(self, hold: Hold) -> None:
        """End a hold's plan."""
        self._pools.settle(hold.plans)
        hold.plans = ()

    def _own(self, node_id: str) -> dict[str, None]:
        """The tasks of a node, to be changed."""
        of_node = self._by_node.get(node_id)
        if of_node is None:
            of_node = self._by_node[node_id] = dict.fromkeys(self.tasks_on(node_id))
        return of_node

    def count(self, hold: Hold, row: int) -> None:
        """Put a hold into the table."""
        demand = hold.demand
        hold.counted = True
        self._table.hold(row, hold.needs)
        self.services.add(demand.service_id, row)
        if demand.host_ports:
            self.ports.take(hold.node_id, demand.host_ports)
        if self._links.contested:
            self._links.add_all(hold.links, row)

    def uncount(self, hold: Hold, row: int) -> None:
        """Take a hold out of the table."""
        demand = hold.demand
        hold.counted = False
        self._table.give_back(row, hold.needs)
        self.services.remove(demand.service_id, row)
        if demand.host_ports:
            self.ports.give(hold.node_id, demand.host_ports)
        if self._links.contested:
            self._links.remove_all(hold.links, row)

    def count_kinds(self, names: Sequence[str]) -> None:
        """Count what tasks hold already of generic kinds that have got their numbers only now."""
        for hold in self.by_task.values():
            amounts = dict(hold.demand.generic)
            if not any(name in amounts for name in names):
                continue
            before, hold.needs = dict(hold.needs.pairs()), self._kinds.needs(hold.demand)
            for kind, amount in hold.needs.pairs() if hold.counted else ():
                self._table.change_free(self.rows[hold.node_id], kind, before.get(kind, 0) - amount)

    def count_links(self, parent: str) -> None:
        """Count the links that sit already on a parent that is contested only now."""
        for hold in self.by_task.values():
            for on, kind in hold.links if hold.counted else ():
                if on == parent:
                    self._links.add(on, kind, self.rows[hold.node_id])

    def add_placed(
        self,
        demand: Demand,
        task_ids: Sequence[str],
        rows: Sequence[int],
        pools: Sequence[Sequence[int]],
        node_ids: Sequence[str],
        links_in: Sequence[dict[int, LinkUse]],
    ) -> list[Placed]:
        """Make the holds of tasks whose room the kernel has taken already. Once for each task, so every step counts.

        Args:
            rows: of the tasks' nodes.
            pools: of each task, the rows of the pools that were chosen for it, one for each network that has pools.
            node_ids: by row.
            links_in: for each network that has pools, the link of a task by row of the pool that it has its address from.
        """
        if not links_in:
            placed = self._add_without_pools(demand, task_ids, rows, node_ids)
        else:
            placed = self._add_with_pools(demand, task_ids, rows, pools, node_ids, links_in)
        self.services.note(demand.service_id, rows)
        for where in placed if demand.host_ports else ():
            self.ports.take(where.node_id, demand.host_ports)
        return placed

    def _add_without_pools(
        self, demand: Demand, task_ids: Sequence[str], rows: Sequence[int], node_ids: Sequence[str]
    ) -> list[Placed]:
        by_node, by_task, needs = self._by_node, self.by_task, self._kinds.needs(demand)
        seen: dict[int, Placed] = {}
        placed = []
        for task_id, row in zip(task_ids, rows, strict=False):
            where = seen.get(row)
            if where is None:
                where = seen[row] = Placed(node_ids[row])
            node_id = where.node_id
            by_task[task_id] = Hold(demand, needs, node_id, True)
            of_node = by_node.get(node_id)
            if of_node is None:
                of_node = self._own(node_id)
            of_node[task_id] = None
            placed.append(where)
        return placed

    def _add_with_pools(
        self,
        demand: Demand,
        task_ids: Sequence[str],
        rows: Sequence[int],
        pools: Sequence[Sequence[int]],
        node_ids: Sequence[str],
        links_in: Sequence[dict[int, LinkUse]],
    ) -> list[Placed]:
        by_node, by_task, pool_ids, needs = self._by_node, self.by_task, self._pools.ids, self._kinds.needs(demand)
        seen: dict[tuple[int, ...], tuple[Placed, tuple[str, ...], tuple[LinkUse, ...]]] = {}
        placed = []
        for task_id, row, pool_rows in zip(task_ids, rows, pools, strict=False):
            known = seen.get(key := (row, *pool_rows))
            if known is None:
                where = Placed(node_ids[row], tuple(pool_ids[pool] for pool in pool_rows))
                plans = () if demand.pins else where.pool_ids
                links = tuple(of_network[pool] for of_network, pool in zip(links_in, pool_rows, strict=True))
                known = seen[key] = (where, plans, links)
            where, plans, links = known
            node_id, pooled = where.node_id, where.pool_ids
            hold = Hold(demand, needs, node_id, True, plans, pooled, links)
            if self._links.contested:
                self._links.add_all(links, row)
            by_task[task_id] = hold
            of_node = by_node.get(node_id)
            if of_node is None:
                of_node = self._own(node_id)
            of_node[task_id] = None
            placed.append(where)
        if not demand.pins:
            self._pools.note_plans(pool_id for where in placed for pool_id in where.pool_ids)
        return placed


__all__ = ["Hold", "Holds"]
