"""One caller's changes, made on top of everything that is queued before them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from beeyard.core.errors import NameConflict, NotFound, OutOfSequence
from beeyard.core.model import Network, Node, Service, StoredObject, Task
from beeyard.core.states import DESIRED_TRANSITIONS, may_become, node_may_become
from beeyard.core.volume import Volume
from beeyard.manager.store.change import Change
from beeyard.manager.store.view import KIND_NAMES, Tables, View, kind_of

T = TypeVar("T", bound=StoredObject)


class Transaction(View):
    """What a builder gets: all reading methods, on a view that holds its own writes and those before it in the group.

    Valid during the builder's call only. Iterate over a copy of a mapping when creating or deleting meanwhile.
    """

    def __init__(self, tables: Tables, index: int, now_s: float) -> None:
        super().__init__(tables)
        self._index = index
        self.now_s = now_s  # wall clock of this transaction
        self.changes: list[Change] = []

    def create(self, obj: T) -> T:
        """Store a new object; gives it as stored, with version and times.

        Raises:
            NameConflict: a service, network or volume of that name exists.
        """
        kind = kind_of(obj)
        assert obj.id, f"a {kind} without an id"
        assert obj.id not in self._tables.by_kind[kind], f"{kind} {obj.id} exists"
        self._check_name(obj)
        created_at_s = self.now_s
        if isinstance(obj, Task):
            # Tasks of one slot are told apart by age, so that must rise also when the clock does not. 1 µs is what a
            # float of this size can still hold.
            for task in self.tasks_of_slot(obj.service_id, obj.slot):
                created_at_s = max(created_at_s, task.created_at_s + 1e-6)
        return self._write(obj, None, created_at_s=created_at_s)

    def update(self, obj: T, *, expected_version: int | None = None) -> T:
        """Replace an object; gives it as stored. When nothing differs nothing is written and the version stays.

        Raises:
            NotFound
            OutOfSequence: `expected_version` is given and another is stored.
            NameConflict
        """
        kind = KIND_NAMES[type(obj)]
        old: Any = self._tables.by_kind[kind].get(obj.id)
        if old is None:
            raise NotFound(kind, obj.id)
        if expected_version is not None and expected_version != old.version:
            raise OutOfSequence(kind, obj.id, expected_version, old.version)
        if _same_content(obj, old):
            return old  # type: ignore[no-any-return]
        if isinstance(obj, Task):
            _check_task(old, obj)
        elif isinstance(obj, Node):
            _check_node(old, obj)
        else:
            self._check_name(obj)
        return self._write(obj, old, created_at_s=old.created_at_s)

    def change(self, task: Task, **fields: Any) -> Task:
        """`update` of some fields of a task that was just read from here, with one copy less: what is written most often."""
        assert self.tasks.get(task.id) is task, f"task {task.id} is not what it was when it was read"
        for name, value in fields.items():
            if getattr(task, name) != value:
                break
        else:
            return task
        self._index += 1
        stored = msgspec.structs.replace(task, **fields, version=self._index, updated_at_s=self.now_s)
        _check_task(task, stored)
        self._tables.replace(task, stored)
        self.changes.append(Change("task", stored.id, task, stored, self._index))
        return stored

    def delete(self, kind: type[StoredObject], object_id: str) -> None:
        """Remove an object.

        Raises:
            NotFound
        """
        name = KIND_NAMES[kind]
        if object_id not in self._tables.by_kind[name]:
            raise NotFound(name, object_id)
        old = self._tables.remove(name, object_id)
        self._index += 1
        self.changes.append(Change(name, object_id, old, None, self._index))

    def undo(self) -> None:
        """Take all of this transaction's writes back. Only the last transaction of a group can be undone."""
        undo(self._tables, self.changes)
        self.changes = []

    def _write(self, obj: T, old: StoredObject | None, *, created_at_s: float) -> T:
        self._index += 1
        stored = msgspec.structs.replace(obj, version=self._index, created_at_s=created_at_s, updated_at_s=self.now_s)
        self._tables.replace(old, stored)
        self.changes.append(Change(KIND_NAMES[type(obj)], obj.id, old, stored, self._index))
        return stored

    def _check_name(self, obj: StoredObject) -> None:
        if isinstance(obj, Service):
            name = obj.spec.name
        elif isinstance(obj, Network | Volume):
            name = obj.name
        else:
            return
        kind = kind_of(obj)
        if self._tables.id_by_name[kind].get(name, obj.id) != obj.id:
            raise NameConflict(kind, name)


def undo(tables: Tables, changes: list[Change]) -> None:
    """Bring tables back to what they were before these changes."""
    for change in reversed(changes):
        if change.old is None:
            tables.remove(change.kind, change.id)
        else:
            tables.put(change.old)


def _same_content(new: StoredObject, old: StoredObject) -> bool:
    if isinstance(new, Task) and isinstance(old, Task) and new.status != old.status:
        return False  # as nearly always; the rest need not be looked at
    return (
        msgspec.structs.replace(new, version=old.version, created_at_s=old.created_at_s, updated_at_s=old.updated_at_s)
        == old
    )


def _check_task(old: Task, new: Task) -> None:
    """States only grow, by the tables of `core.states`; anything else is a bug of the caller."""
    now, then = old.status.state, new.status.state
    assert now is then or may_become(now, then), f"task {old.id}: {now.name} may not become {then.name}"
    now, then = old.desired_state, new.desired_state
    assert now is then or then in DESIRED_TRANSITIONS[now], f"task {old.id}: desired {now.name} → {then.name}"
    assert old.node_id in ("", new.node_id), f"task {old.id} is on {old.node_id} and never moves"


def _check_node(old: Node, new: Node) -> None:
    """A node's state moves by the table of `core.states`; anything else is a bug of the caller."""
    now, then = old.status.state, new.status.state
    assert node_may_become(now, then), f"node {old.id}: {now.name} may not become {then.name}"
