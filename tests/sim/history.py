"""Everything that the manager ever stored of tasks, checked at the moment at which it is durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import trio

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.grant import AddressGrant
from beeyard.core.ipam import AddressLease, PoolLease
from beeyard.core.model import Node, Service, StoredObject, Task
from beeyard.core.states import DESIRED_TRANSITIONS, TaskState, may_become
from beeyard.runtime.host import Record
from beeyard.runtime.sim import SimMachine, SimWorld
from tests.sim.grants import GrantRules
from tests.sim.lan import ROUNDING_S, task_addresses, task_of

_decoder: msgspec.msgpack.Decoder[StoredObject] = msgspec.msgpack.Decoder(StoredObject)  # type: ignore[arg-type]


class History:
    """The tasks of one store. `watch` it before the manager starts."""

    def __init__(self, world: SimWorld, store_path: str, *, put_aside_s: float = 3600.0) -> None:
        self.tasks: dict[str, Task] = {}
        self.leases: dict[str, AddressLease] = {}
        self.pool_leases: dict[str, PoolLease] = {}
        self.index = 0
        self.world = world
        self.store_path = store_path
        self._holders: dict[tuple[str, str], str] = {}  # (segment, address) → task
        self._ended: dict[tuple[str, str], tuple[float, Task]] = {}  # when the address was given up last, and by whom
        self._hostnames: dict[str, str] = {}  # by node
        self._rules = GrantRules(self._machine_of, put_aside_s)

    def watch(self, machine_name: str) -> None:
        """Check each batch that becomes durable on a machine, also one whose writer did not live to see it."""
        self.world.machine(machine_name).disk.on_commit = self.stored

    def stored(self, path: str, batch: list[Record]) -> None:
        """Check a batch. One that is read again after a restart is known already."""
        if path != self.store_path:
            return
        for record in batch:
            if record.index > self.index:
                self._stored_one(record)
        self.index = max(self.index, batch[-1].index)

    def _machine_of(self, node_id: str) -> SimMachine | None:
        return self.world.machines.get(self._hostnames.get(node_id, ""))

    def _stored_one(self, record: Record) -> None:
        if record.kind == "task":
            self._task_stored(record)
        elif record.kind == "service":
            service = _decoder.decode(record.data) if record.data is not None else None
            assert service is None or isinstance(service, Service)
            self._rules.service_stored(record.id, service)
        elif record.kind == "node" and record.data is not None:
            node = _decoder.decode(record.data)
            assert isinstance(node, Node)
            self._hostnames[node.id] = node.description.hostname
        elif record.kind in ("address_lease", "pool_lease"):
            leases = cast("dict[str, Any]", self.leases if record.kind == "address_lease" else self.pool_leases)
            leases.pop(record.id, None)
            if record.data is not None:
                leases[record.id] = _decoder.decode(record.data)

    def _task_stored(self, record: Record) -> None:
        before = self.tasks.get(record.id)
        if record.data is None:
            assert before is not None, f"task {record.id} was deleted and never stored"
            self._check_is_off_the_lan(before, "deleted")
            self._give_up(before)
            self._rules.task_deleted(before)
            del self.tasks[record.id]
            return
        task = _decoder.decode(record.data)
        assert isinstance(task, Task)
        if before is not None:
            check_task_grew(before, task)
        self.tasks[record.id] = task
        self._rules.task_stored(before, task)
        if task.status.state.is_terminal:
            if before is None or not before.status.state.is_terminal:
                self._check_is_off_the_lan(task, f"stored as {task.status.state.name}")
            self._give_up(task)
        else:
            self._hold(task)

    def _hold(self, task: Task) -> None:
        for key in addresses_of(task):
            holder = self._holders.setdefault(key, task.id)
            assert holder == task.id, f"address {key[1]} of task {holder} was also granted to task {task.id}"
            ended_s, former = self._ended.pop(key, (-COOL_DOWN_S, task))
            rested_s = trio.current_time() - ended_s
            assert rested_s >= COOL_DOWN_S - ROUNDING_S or is_pinned_to_both(key[1], former, task), (
                f"address {key[1]} was granted to task {task.id} {rested_s:.3f} s after {former.id} had given it up"
            )

    def _give_up(self, task: Task) -> None:
        for key in addresses_of(task):
            if self._holders.get(key) == task.id:
                del self._holders[key]
                self._ended[key] = trio.current_time(), task

    def _check_is_off_the_lan(self, task: Task, what: str) -> None:
        if not any(addresses_of(task)):
            return
        for name, live in task_addresses(self.world):
            assert task_of(self.world.machines[name], live.netns) != task.id, (
                f"task {task.id} was {what} while {live.address} was up on {name}"
            )


def is_pinned_to_both(address: str, former: Task, task: Task) -> bool:
    """Whether an address is pinned to both tasks of one service: then it need not rest between them."""
    return former.service_id == task.service_id and address in former.pins and address in task.pins


def addresses_of(task: Task) -> Iterator[tuple[str, str]]:
    """(segment, address) of each address that a task was granted."""
    for grant in task.grants:
        if isinstance(grant, AddressGrant):
            for address in grant.addresses:
                yield grant.segment, address.partition("/")[0]


def check_task_grew(before: Task, after: Task) -> None:
    """One change of a task is one that may happen."""
    was, now = before.status.state, after.status.state
    assert may_become(was, now), f"task {after.id} went from {was.name} to {now.name}"
    asked, asks = before.desired_state, after.desired_state
    allowed = asks == asked or asks in DESIRED_TRANSITIONS[asked]
    assert allowed, f"task {after.id} was to be {asked.name}, now {asks.name}"
    assert before.node_id in ("", after.node_id), f"task {after.id} moved from {before.node_id} to {after.node_id}"
    assert before.spec == after.spec, f"the spec of task {after.id} changed"
    if after.status.state >= TaskState.ASSIGNED and before.node_id:
        assert before.grants == after.grants, f"the grants of task {after.id} changed"


async def check_store_is(history: History, machine_name: str) -> None:
    """What is on disk is what was ever answered for: call it after a last power cut, with the manager down."""
    database = await history.world.host(machine_name).open_database(history.store_path)
    index, records = await database.load()
    await database.aclose()
    assert index >= history.index, f"the store ends at {index}, and {history.index} was durable"
    found = {record.id for record in records if record.kind == "task"}
    assert found == set(history.tasks), f"tasks on disk: {sorted(found)}, stored: {sorted(history.tasks)}"


__all__ = ["History", "addresses_of", "check_store_is", "check_task_grew", "is_pinned_to_both"]
