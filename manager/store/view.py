"""Every stored object in memory, with the indexes that readers need, and the reading methods themselves."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import TypeVar, cast

from beeyard.core.errors import NotFound
from beeyard.core.ipam import AddressLease, PoolLease
from beeyard.core.model import Cluster, Network, Node, Service, StoredObject, Task
from beeyard.core.volume import Volume

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

    Invariant: `slots_by_service[s]` holds (slot, task id) of exactly the tasks with service_id s, sorted; `ids_by_node[n]`
    the ids of those with node_id n; `id_by_name[kind][name]` the one object of that name.
    """

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[str, StoredObject]] = {name: {} for name in KIND_NAMES.values()}
        self.id_by_name: dict[str, dict[str, str]] = {"service": {}, "network": {}, "volume": {}}
        self.slots_by_service: dict[str, list[tuple[int, str]]] = {}
        self.ids_by_node: dict[str, dict[str, None]] = {}

    def put(self, obj: StoredObject) -> StoredObject | None:
        """Insert or replace; gives what was there before."""
        objects = self.by_kind[kind_of(obj)]
        old = objects.get(obj.id)
        if isinstance(obj, Task):
            self._index_task(cast("Task | None", old), obj)
        elif isinstance(obj, Service | Network | Volume):
            self._index_name(cast("Service | Network | Volume | None", old), obj)
        objects[obj.id] = obj
        return old

    def remove(self, kind: str, object_id: str) -> StoredObject:
        """Take an object out; KeyError when it is not there."""
        old = self.by_kind[kind].pop(object_id)
        if isinstance(old, Task):
            self._index_task(old, None)
        elif isinstance(old, Service | Network | Volume):
            self._index_name(old, None)
        return old

    def _index_task(self, old: Task | None, new: Task | None) -> None:
        old_slot = (old.service_id, old.slot) if old else None
        new_slot = (new.service_id, new.slot) if new else None
        if old_slot != new_slot:
            if old:
                slots = self.slots_by_service[old.service_id]
                del slots[bisect.bisect_left(slots, (old.slot, old.id))]
                if not slots:
                    del self.slots_by_service[old.service_id]
            if new:
                bisect.insort(self.slots_by_service.setdefault(new.service_id, []), (new.slot, new.id))
        old_node = old.node_id if old else ""
        new_node = new.node_id if new else ""
        if old_node != new_node:
            if old and old_node:
                ids = self.ids_by_node[old_node]
                del ids[old.id]
                if not ids:
                    del self.ids_by_node[old_node]
            if new and new_node:
                self.ids_by_node.setdefault(new_node, {})[new.id] = None

    def _index_name(self, old: Service | Network | Volume | None, new: Service | Network | Volume | None) -> None:
        old_name = _name(old) if old else None
        new_name = _name(new) if new else None
        names = self.id_by_name[KIND_NAMES[type(old or new)]]
        if old_name != new_name and old_name is not None:
            del names[old_name]
        if new and new_name is not None:
            names[new_name] = new.id


def _name(obj: Service | Network | Volume) -> str:
    return obj.name if isinstance(obj, Network) else obj.spec.name


class View:
    """Reading methods over one set of tables. What they give is immutable; the mappings are live and not to be changed."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def cluster(self) -> Cluster | None:
        """The one record of the cluster; None before it was made."""
        return cast("Cluster | None", next(iter(self._tables.by_kind["cluster"].values()), None))

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Every node by id."""
        return cast("Mapping[str, Node]", self._tables.by_kind["node"])

    @property
    def networks(self) -> Mapping[str, Network]:
        """Every network, config-only ones too, by id."""
        return cast("Mapping[str, Network]", self._tables.by_kind["network"])

    @property
    def services(self) -> Mapping[str, Service]:
        """Every service by id."""
        return cast("Mapping[str, Service]", self._tables.by_kind["service"])

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Every task by id."""
        return cast("Mapping[str, Task]", self._tables.by_kind["task"])

    @property
    def volumes(self) -> Mapping[str, Volume]:
        """Every cluster volume by id."""
        return cast("Mapping[str, Volume]", self._tables.by_kind["volume"])

    @property
    def pool_leases(self) -> Mapping[str, PoolLease]:
        """What networks have at IPAM plugins, by network id."""
        return cast("Mapping[str, PoolLease]", self._tables.by_kind["pool_lease"])

    @property
    def address_leases(self) -> Mapping[str, AddressLease]:
        """What grants have at IPAM plugins, by grant id."""
        return cast("Mapping[str, AddressLease]", self._tables.by_kind["address_lease"])

    def tasks_of_service(self, service_id: str) -> list[Task]:
        """Tasks of a service in order of (slot, id); of a service that is gone, too."""
        tasks = self.tasks
        return [tasks[task_id] for _, task_id in self._tables.slots_by_service.get(service_id, ())]

    def tasks_of_slot(self, service_id: str, slot: int) -> list[Task]:
        """Tasks of one slot of a service, in order of id."""
        slots = self._tables.slots_by_service.get(service_id, [])
        tasks = self.tasks
        begin, end = bisect.bisect_left(slots, (slot, "")), bisect.bisect_left(slots, (slot + 1, ""))
        return [tasks[task_id] for _, task_id in slots[begin:end]]

    def tasks_of_node(self, node_id: str) -> list[Task]:
        """Every task that was ever committed to a node and is still stored, ended ones too."""
        tasks = self.tasks
        return [tasks[task_id] for task_id in self._tables.ids_by_node.get(node_id, ())]

    def get(self, kind: type[T], object_id: str) -> T | None:
        """One object by its id, None when there is none."""
        return cast("T | None", self._tables.by_kind[KIND_NAMES[kind]].get(object_id))

    def find(self, kind: type[T], object_id: str) -> T:
        """One object by its id.

        Raises:
            NotFound
        """
        obj = self.get(kind, object_id)
        if obj is None:
            raise NotFound(KIND_NAMES[kind], object_id)
        return obj

    def by_name(self, kind: type[T], name: str) -> T | None:
        """The service, network or volume with this name."""
        object_id = self._tables.id_by_name[KIND_NAMES[kind]].get(name)
        return None if object_id is None else self.get(kind, object_id)
