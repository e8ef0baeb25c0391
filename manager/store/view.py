"""Every stored object in memory, with the indexes that readers need, and the reading methods themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from beeyard.core.errors import NotFound
from beeyard.core.ipam import AddressLease, PoolLease
from beeyard.core.model import Cluster, Network, Node, Service, StoredObject, Task
from beeyard.core.volume import Volume

if TYPE_CHECKING:
    from beeyard.manager.store.change import Change

T = TypeVar("T", bound=StoredObject)

KIND_NAMES: dict[type, str] = {
    Cluster: "cluster",
    Node: "node",
    Network: "network",
    Service: "service",
    Task: "task",
    Volume: "volume",
    PoolLease: "pool_lease",
    AddressLease: "address_lease",
}


def kind_of(obj: StoredObject) -> str:
    """The kind's name of an object: "node", "network", "service", "task", … as in `KIND_NAMES`."""
    return KIND_NAMES[type(obj)]


class Tables:
    """One dictionary for each kind, and the indexes over them.

    Invariant: `slots_by_service[s][n]` holds the ids of exactly the tasks with service_id s and slot n, sorted;
    `_ids_by_node[n]` the ids of those with node_id n; `id_by_name[kind][name]` the one object of that name.
    """

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[str, StoredObject]] = {name: {} for name in KIND_NAMES.values()}
        self.id_by_name: dict[str, dict[str, str]] = {"service": {}, "network": {}, "volume": {}}
        self.slots_by_service: dict[str, dict[int, tuple[str, ...]]] = {}
        self._ids_by_node: dict[str, dict[str, None]] = {}

    def put(self, obj: StoredObject) -> None:
        """Insert or replace."""
        self.replace(self.by_kind[KIND_NAMES[type(obj)]].get(obj.id), obj)

    def replace(self, old: StoredObject | None, obj: StoredObject) -> None:
        """The same, for who knows what is there: `old`, None for nothing."""
        if isinstance(obj, Task):
            before: Any = old
            # Most writes of a task move none of these, and nearly all others give it its node.
            if before is None or before.slot != obj.slot or before.service_id != obj.service_id:
                self._index_task(before, obj)
            elif before.node_id != obj.node_id:
                self._index_node(obj.id, before.node_id, obj.node_id)
        elif isinstance(obj, Service | Network | Volume):
            self._index_name(cast("Service | Network | Volume | None", old), obj)
        self.by_kind[KIND_NAMES[type(obj)]][obj.id] = obj

    def apply(self, changes: Iterable[Change]) -> None:
        """Make what was changed elsewhere true here too. Each change begins with what is here once those before it are."""
        tasks = self.by_kind["task"]
        for change in changes:
            old: Any = change.old
            new: Any = change.new
            if new is None:
                self.remove(change.kind, change.id)
            elif old is None or change.kind != "task" or old.slot != new.slot or old.service_id != new.service_id:
                self.replace(old, new)
            else:
                # As nearly all are when there are many.
                if old.node_id != new.node_id:
                    self._index_node(change.id, old.node_id, new.node_id)
                tasks[change.id] = new

    def remove(self, kind: str, object_id: str) -> StoredObject:
        """Take an object out; KeyError when it is not there."""
        old = self.by_kind[kind].pop(object_id)
        if isinstance(old, Task):
            self._index_task(old, None)
        elif isinstance(old, Service | Network | Volume):
            self._index_name(old, None)
        return old

    def ids_of_node(self, node_id: str) -> Iterable[str]:
        """Ids of the tasks with this node, in the order in which they got it."""
        return self._ids_by_node.get(node_id, ())

    def _index_task(self, old: Task | None, new: Task | None) -> None:
        if old is None or new is None or old.slot != new.slot or old.service_id != new.service_id:
            if old:
                self._leave_slot(old)
            if new:
                slots = self.slots_by_service.setdefault(new.service_id, {})
                others = slots.get(new.slot)
                slots[new.slot] = (new.id,) if others is None else tuple(sorted((*others, new.id)))
        some = old or new
        assert some is not None
        self._index_node(some.id, old.node_id if old else "", new.node_id if new else "")

    def _index_node(self, task_id: str, old_node: str, new_node: str) -> None:
        if old_node == new_node:
            return
        if old_node:
            ids = self._ids_by_node[old_node]
            del ids[task_id]
            if not ids:
                del self._ids_by_node[old_node]
        if new_node:
            of_node = self._ids_by_node.get(new_node)
            if of_node is None:
                of_node = self._ids_by_node[new_node] = {}
            of_node[task_id] = None

    def _leave_slot(self, task: Task) -> None:
        slots = self.slots_by_service[task.service_id]
        others = tuple(task_id for task_id in slots[task.slot] if task_id != task.id)
        if others:
            slots[task.slot] = others
            return
        del slots[task.slot]
        if not slots:
            del self.slots_by_service[task.service_id]

    def _index_name(self, old: Service | Network | Volume | None, new: Service | Network | Volume | None) -> None:
        old_name = _name(old) if old else None
        new_name = _name(new) if new else None
        names = self.id_by_name[KIND_NAMES[type(old or new)]]
        if old_name != new_name and old_name is not None:
            del names[old_name]
        if new and new_name is not None:
            names[new_name] = new.id


class TablesAhead(Tables):
    """Tables that are ahead of others by a few writes, until `caught_up`.

    Which tasks a node has is asked there as a rule, and nearly every write of a scheduler changes that index: so it is kept
    there alone, and here is only what the writes in between may have changed of it.
    """

    def __init__(self, behind: Tables) -> None:
        super().__init__()
        self._behind = behind
        self._moved: list[str] = []  # tasks that got or left a node meanwhile

    def caught_up(self) -> None:
        """The other tables are equal to these now."""
        self._moved = []

    def ids_of_node(self, node_id: str) -> Iterable[str]:
        """See `Tables`."""
        tasks = cast("dict[str, Task]", self.by_kind["task"])
        candidates = dict.fromkeys((*self._behind.ids_of_node(node_id), *self._moved))
        return [task_id for task_id in candidates if task_id in tasks and tasks[task_id].node_id == node_id]

    def _index_node(self, task_id: str, old_node: str, new_node: str) -> None:
        if old_node != new_node:
            self._moved.append(task_id)


def _name(obj: Service | Network | Volume) -> str:
    return obj.name if isinstance(obj, Network) else obj.spec.name


class View:
    """Reading methods over one set of tables, and every object by its id.

    What they give is immutable; the mappings are live and not to be changed.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        # Attributes and no properties: they are asked for several times with every write of a task.
        self.nodes = cast("Mapping[str, Node]", tables.by_kind["node"])
        # Networks, config-only ones too.
        self.networks = cast("Mapping[str, Network]", tables.by_kind["network"])
        self.services = cast("Mapping[str, Service]", tables.by_kind["service"])
        self.tasks = cast("Mapping[str, Task]", tables.by_kind["task"])
        self.volumes = cast("Mapping[str, Volume]", tables.by_kind["volume"])
        # What networks have at IPAM plugins, by network id, and what grants have there, by grant id.
        self.pool_leases = cast("Mapping[str, PoolLease]", tables.by_kind["pool_lease"])
        self.address_leases = cast("Mapping[str, AddressLease]", tables.by_kind["address_lease"])

    @property
    def cluster(self) -> Cluster | None:
        """The one record of the cluster; None before it was made."""
        return cast("Cluster | None", next(iter(self._tables.by_kind["cluster"].values()), None))

    def tasks_of_service(self, service_id: str) -> list[Task]:
        """Tasks of a service in order of (slot, id); of a service that is gone, too."""
        slots, tasks = self._tables.slots_by_service.get(service_id, {}), self.tasks
        return [tasks[task_id] for slot in sorted(slots) for task_id in slots[slot]]

    def tasks_of_slot(self, service_id: str, slot: int) -> list[Task]:
        """Tasks of one slot of a service, in order of id."""
        slots, tasks = self._tables.slots_by_service.get(service_id), self.tasks
        return [] if slots is None else [tasks[task_id] for task_id in slots.get(slot, ())]

    def tasks_of_node(self, node_id: str) -> list[Task]:
        """Every task that was ever committed to a node and is still stored, ended ones too."""
        tasks = self.tasks
        return [tasks[task_id] for task_id in self._tables.ids_of_node(node_id)]

    def get(self, kind: type[T], object_id: str) -> T | None:
        """One object by its id, None when there is none."""
        return cast("T | None", self._tables.by_kind[KIND_NAMES[kind]].get(object_id))

    def find(self, kind: type[T], object_id: str) -> T:
        """One object by its id.

        Raises:
            NotFound
        """
        name = KIND_NAMES[kind]
        obj: Any = self._tables.by_kind[name].get(object_id)
        if obj is None:
            raise NotFound(name, object_id)
        return obj  # type: ignore[no-any-return]

    def by_name(self, kind: type[T], name: str) -> T | None:
        """The service, network or volume with this name."""
        object_id = self._tables.id_by_name[KIND_NAMES[kind]].get(name)
        return None if object_id is None else self.get(kind, object_id)
