"""What must hold at any moment of a run, and what must hold at its end.

They ask the machines' own kernels, tasks and disks, never the manager: it is the manager's belief that is on trial.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import trio

from beeyard.core.model import StoredObject, Task
from beeyard.core.states import DESIRED_TRANSITIONS, TaskState, may_become
from beeyard.runtime.fake_executor import FakeTask
from beeyard.runtime.fake_kernel import LiveAddress
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts

# Addresses are checked whenever a kernel changes; the rest, and addresses once more, this often.
EVERY_S = 1.0


def parts_of(machine: SimMachine) -> FakeParts | None:
    """A machine's kernel and tasks, if it has any."""
    return machine.parts if isinstance(machine.parts, FakeParts) else None


def task_addresses(world: SimWorld) -> Iterator[tuple[str, LiveAddress]]:
    """Every address of a task that answers on the LAN now, with its machine. Link-local ones are each link's own."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        for live in parts.kernel.live_addresses() if parts is not None and machine.net.on else ():
            if live.netns and not live.address.startswith("fe80:"):
                yield name, live


def running_tasks(machine: SimMachine) -> list[FakeTask]:
    """Tasks that take room on a machine now."""
    parts = parts_of(machine)
    return (
        [] if parts is None else [task for task in parts.tasks.by_id.values() if task.phase in ("prepared", "started")]
    )


async def watch_machines(world: SimWorld) -> None:
    """Check what must always hold, until cancelled. An address can only appear twice when some kernel gets it."""
    for machine in world.machines.values():
        parts = parts_of(machine)
        if parts is not None:
            parts.on_change = lambda: check_no_address_twice(world)
    while True:
        check_no_address_twice(world)
        check_no_machine_over_its_room(world)
        await trio.sleep(EVERY_S)


def check_no_address_twice(world: SimWorld) -> None:
    """No address answers from two links, whatever the manager believes."""
    seen: dict[str, tuple[str, LiveAddress]] = {}
    for name, live in task_addresses(world):
        if live.address in seen:
            other, earlier = seen[live.address]
            raise AssertionError(
                f"address {live.address} is on the LAN twice: {other}{earlier.netns} and {name}{live.netns}"
            )
        seen[live.address] = (name, live)


def check_no_machine_over_its_room(world: SimWorld) -> None:
    """What runs on a machine fits in it."""
    for name, machine in world.machines.items():
        reserved = [task.task.spec.reservations for task in running_tasks(machine)]
        used = sum(r.cpu_nano for r in reserved), sum(r.memory_bytes for r in reserved)
        assert used[0] <= machine.resources[0] and used[1] <= machine.resources[1], (  # noqa: PT018
            f"{name} has {machine.resources} and runs {used}: {sorted(task.task.id for task in running_tasks(machine))}"
        )


def check_nothing_is_left(world: SimWorld) -> None:
    """At rest, with no service left, no machine holds a task, a namespace or an address."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        if parts is not None:
            assert parts.kernel.namespaces == (), f"{name} keeps namespaces {parts.kernel.namespaces}"
            assert parts.tasks.by_id == {}, f"{name} keeps tasks {sorted(parts.tasks.by_id)}"
    assert list(task_addresses(world)) == []


async def check_states_only_grew(world: SimWorld, machine_name: str, store_path: str) -> None:
    """Each task's observed and desired state, its node and its spec went one way only, in everything ever stored.

    Call it when the manager is down: it opens the manager's store.
    """
    database = await world.host(machine_name).open_database(store_path)
    index, records = await database.load()
    kept = await database.changes(index - 10_000) if index > 10_000 else await database.changes(0)
    await database.aclose()
    assert len(records) <= index
    decoder: msgspec.msgpack.Decoder[StoredObject] = msgspec.msgpack.Decoder(StoredObject)  # type: ignore[arg-type]
    last: dict[str, Task] = {}
    for record in kept:
        if record.kind != "task":
            continue
        if record.data is None:
            last.pop(record.id, None)
            continue
        task = decoder.decode(record.data)
        assert isinstance(task, Task)
        if record.id in last:
            check_task_grew(last[record.id], task)
        last[record.id] = task


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
