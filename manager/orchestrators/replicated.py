"""Keeps every service at its number of tasks: wakes, looks (`core.desire`), writes, and looks again.

A look is taken on the durable state first, because most changes ask for nothing. When steps are due it is taken again inside
the transaction, so that what is written follows from what it is written on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import cast

import msgspec
import structlog
import trio

from beeyard.core.desire import STEPS_MAX, next_try_s, reconcile, remove_all
from beeyard.core.labels import LABEL_STRATEGY, is_fenced
from beeyard.core.model import Node, Service, Task, TaskStatus, UpdateState
from beeyard.core.pins import has_slot_macs, pins_of
from beeyard.core.slots import Add, Situation, Steps, slots_of
from beeyard.core.states import RUNNING, Availability, NodeState, TaskState
from beeyard.core.volume import Volume
from beeyard.manager.orchestrators.task_clock import TaskClock, TimesOf
from beeyard.manager.store import Change, Store, Transaction, View, Wake
from beeyard.manager.transition import MESSAGE_PENDING
from beeyard.runtime.host import Host

# Least time between two looks: a look at a service of 10,000 tasks takes about as long.
LOOK_GAP_S = 0.05
MESSAGE_CREATED = "created"
MESSAGE_NEVER_PLACED = "shut down before it was assigned"


log = structlog.get_logger(__name__)


class ReplicatedOrchestrator:
    """Staffs replicated services.

    Args:
        mass_failure: why tasks of nodes that are down must not be replaced now, or "".
        begins_new: whether a hook is to begin before a node is sought for a new task. One that no such hook is for is
            made PENDING, which saves a write of four.
    """

    def __init__(
        self, host: Host, store: Store, mass_failure: Callable[[], str], begins_new: Callable[[Task], bool]
    ) -> None:
        self._host = host
        self._store = store
        self._mass_failure = mass_failure
        self._begins_new = begins_new
        self._held_back = ""
        self._unfinished: dict[str, None] = {}  # ids of services that get more tasks than one transaction takes
        self.finished: Callable[[], None] = lambda: None  # called when one of them has them all
        self._clock = TaskClock(host)
        self._dirty: dict[str, None] = {}  # ids of services to look at
        self._due_s: dict[str, float] = {}  # when to look at a service though nothing changed

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with self._store.subscribe("service", "task", "node", "volume") as changes:
            self._look_at_everything()
            task_status.started()
            while True:
                looked_s = trio.current_time()
                await self._look_at_dirty()
                with trio.move_on_at(min(self._due_s.values(), default=math.inf)):
                    await changes.wait()
                # The first change after a quiet time is looked at now, those that follow it together.
                await trio.sleep_until(looked_s + LOOK_GAP_S)
                self._note(changes.take_nowait())

    @property
    def has_more_to_write(self) -> bool:
        """Whether more tasks of some service follow at once."""
        return bool(self._unfinished)

    def held_back(self, task: Task) -> str:
        """Why a task whose node is down is not replaced, for `docker service ps`; "" for every other task.

        It is shown, not stored: the status of a task belongs to its agent, which may be alive and well behind a cut.
        """
        if not self._held_back or not task.holds_room or task.desired_state > TaskState.RUNNING:
            return ""
        node = self._store.nodes.get(task.node_id)
        down = node is not None and node.status.state is NodeState.DOWN
        return f"not replaced: {self._held_back}" if down else ""

    def next_try_at_s(self, service_id: str, number: int) -> float | None:
        """When a slot is tried again by the wall clock, see `core.desire.next_try_s`; None also where there is none."""
        service, slots = self._store.services.get(service_id), slots_of(self._store.tasks_of_service(service_id))
        if service is None or number not in slots:
            return None
        situation = self._situation(service_id, self._store)
        due_s = next_try_s(service, slots[number], situation)
        return None if due_s is None else situation.wall_s + due_s - situation.now_s

    def _look_at_everything(self) -> None:
        self._note_mass_failure()
        for task in self._store.tasks.values():
            self._clock.of(task)
            self._dirty[task.service_id] = None
        self._dirty.update(dict.fromkeys(self._store.services))

    def _note(self, wake: Wake) -> None:
        """Which services to look at after these changes and by now."""
        for change in wake.changes:
            if change.kind == "service":
                self._dirty[change.id] = None
            elif change.kind == "task":
                self._note_task(change)
            elif change.kind == "volume":
                self._note_volume(cast("Volume | None", change.old), cast("Volume | None", change.new))
            elif _matters(cast("Node | None", change.old), cast("Node | None", change.new)):
                self._note_node(change.id)
        self._note_mass_failure()
        now_s = trio.current_time()
        for service_id in [service_id for service_id, due_s in self._due_s.items() if due_s <= now_s]:
            self._dirty[service_id] = None

    def _note_mass_failure(self) -> None:
        """When one begins or ends, all tasks of nodes that are down are in another situation."""
        mass_failure = self._mass_failure()
        if mass_failure != self._held_back:
            log.warning("replacement of tasks", held_back=mass_failure or "no more")
            self._held_back = mass_failure
            for node in self._store.nodes.values():
                if node.status.state is NodeState.DOWN:
                    self._note_node(node.id)

    def _note_task(self, change: Change) -> None:
        """A task that only gets on with it asks for nothing, unless an update waits for that."""
        old, new = cast("Task | None", change.old), cast("Task | None", change.new)
        if new is None:
            self._clock.forget(change.id)
        else:
            self._clock.of(new)
        task = new or old
        assert task is not None
        service = self._store.services.get(task.service_id)
        updating = service is not None and service.update_status is not None
        if (
            updating
            or old is None
            or new is None
            or new.status.state > RUNNING
            or old.desired_state != new.desired_state
        ):
            self._dirty[task.service_id] = None
        elif new.node_id and not old.node_id and not self._is_usable(new.node_id):
            # Its node has gone down or was drained since the plan was made.
            self._dirty[task.service_id] = None

    def _note_volume(self, old: Volume | None, new: Volume | None) -> None:
        """One that is drained must be left by all that have it."""
        if new is None or (old is not None and old.spec.availability is new.spec.availability):
            return
        for task in self._store.tasks.values():
            if any(use.volume_id == new.id for use in task.volumes):
                self._dirty[task.service_id] = None

    def _is_usable(self, node_id: str) -> bool:
        node = self._store.nodes.get(node_id)
        return (
            node is not None and node.status.state is not NodeState.DOWN and node.availability is not Availability.DRAIN
        )

    def _note_node(self, node_id: str) -> None:
        self._dirty.update(dict.fromkeys(task.service_id for task in self._store.tasks_of_node(node_id)))

    async def _look_at_dirty(self) -> None:
        """Look at services until none is dirty, all at once so that their writes share a group."""
        dirty, self._dirty = self._dirty, {}
        async with trio.open_nursery() as nursery:
            for service_id in dirty:
                self._due_s.pop(service_id, None)
                steps = self._steps(service_id, self._store)
                if steps.look_again_s is not None:
                    self._due_s[service_id] = steps.look_again_s
                if steps:
                    if _is_full(steps):
                        self._unfinished[service_id] = None
                    nursery.start_soon(self._write_all, service_id)

    def _steps(self, service_id: str, view: View) -> Steps:
        tasks = view.tasks_of_service(service_id)
        service = view.services.get(service_id)
        if service is None:
            return remove_all(tasks)
        return reconcile(service, tasks, self._situation(service_id, view))

    def _situation(self, service_id: str, view: View) -> Situation:
        return Situation(
            now_s=trio.current_time(),
            wall_s=self._host.wall_now_s(),
            nodes=view.nodes,
            times=TimesOf(self._clock, view.tasks),
            trust_down=not self._mass_failure(),
            drained_volumes=frozenset(
                volume.id for volume in view.volumes.values() if volume.spec.availability is Availability.DRAIN
            ),
            n_taken=self._clock.n_taken(service_id),
        )

    async def _write_all(self, service_id: str) -> None:
        """Write what a service needs: one transaction after another while each is full, for others want to write too."""
        while await self._store.commit_patiently(partial(self._write, service_id)):
            pass
        if self._unfinished.pop(service_id, "") is None:
            self.finished()

    def _write(self, service_id: str, tx: Transaction) -> bool:
        """Write the steps of one look; whether there may be more at once."""
        steps = self._steps(service_id, tx)
        service = tx.get(Service, service_id)
        for raised in steps.raises:
            _raise(tx, raised.task_id, raised.to)
        if service is None:
            return False
        for task in self._new_tasks(service, steps.add, tx.now_s):
            tx.create(task)
        if steps.update_status is not None:
            tx.update(msgspec.structs.replace(service, update_status=steps.update_status))
            if steps.update_status.state is UpdateState.PAUSED:
                log.warning("update paused", service=service.spec.name, reason=steps.update_status.message)
        log.info("staffed", service=service.spec.name, added=len(steps.add), raised=len(steps.raises))
        return _is_full(steps)

    def _new_tasks(self, service: Service, adds: Iterable[Add], now_s: float) -> Iterator[Task]:
        """Tasks of the service's present spec. What they share is found and made once."""
        spec, new_id = service.spec, self._host.new_id
        fence, pins, mac_per_slot = is_fenced(spec.labels), pins_of(spec.labels), has_slot_macs(spec.labels)
        strategy = spec.labels.get(LABEL_STRATEGY, "")
        status: TaskStatus | None = None
        for add in adds:
            task = Task(
                id=new_id(),
                service_id=service.id,
                service_name=spec.name,
                slot=add.slot,
                spec=spec.task,
                spec_version=service.spec_version,
                fence=fence,
                pins=pins.of_slot(add.slot),
                mac_per_slot=mac_per_slot,
                strategy=strategy,
                desired_state=add.desired_state,
                status=status or TaskStatus(state=TaskState.NEW, message=MESSAGE_CREATED, at_s=now_s),
            )
            if status is None:
                status = task.status
                if not self._begins_new(task):
                    status = TaskStatus(state=TaskState.PENDING, message=MESSAGE_PENDING, at_s=now_s)
                    task = msgspec.structs.replace(task, status=status)
            yield task


def _is_full(steps: Steps) -> bool:
    """Whether more are likely to follow."""
    return max(len(steps.add), len(steps.raises)) >= STEPS_MAX


def _raise(tx: Transaction, task_id: str, to: TaskState) -> None:
    """Raise a task's desired state. One that no agent has seen is shut down by that alone."""
    task = tx.find(Task, task_id)
    status = task.status
    if to == TaskState.SHUTDOWN and status.state < TaskState.ASSIGNED:
        status = TaskStatus(state=TaskState.SHUTDOWN, message=MESSAGE_NEVER_PLACED, at_s=tx.now_s)
    tx.update(msgspec.structs.replace(task, desired_state=to, status=status))


def _matters(old: Node | None, new: Node | None) -> bool:
    """Whether a change of a node may end tasks on it, or let them be replaced."""
    if old is None or new is None:
        return True
    return (old.status.state, old.availability) != (new.status.state, new.availability)
