"""From what a service should be and which tasks it has, to the tasks that must be added or stopped. Pure.

Theory of operation
-------------------
`reconcile` looks at one service as it is *now* and gives the next steps; the caller commits them and looks again whenever
something changed or `look_again_s` has come. Everything is derived from stored tasks, so a new manager goes on where the
old one stopped. The steps of one look are of one kind, in this order: replace what ended, reach the number of replicas,
start what waits, roll a changed spec out (`core.rollout`).

* A live task that has ended is told to shut down, and replaced in its slot unless its restart policy forbids it or a newer
  live task is there already.
* A replacement is created READY: it is placed and prepared at once, but starts only after the restart delay, and after
  its predecessor has stopped (one minute at most; not at all when that one's node is down, for nobody could tell).
* A replacement that ends by itself within its own delay, so before it was let run, is replaced only when that delay is
  over: it stays the slot's live task until then. So a slot gets at most one new task a restart delay, whichever phase
  fails, and at most one a second when the delay is shorter and its tasks never run.
* Attempts are counted over the stored tasks of a slot, all but the first of the present spec version.
* A task that was refused because a machine outside the cluster has its address counts for nothing of that: another takes its
  place at once and with another address, whatever the restart policy, and under the delay that it was under itself. More
  than TAKEN_MAX of them in a minute, and the slot waits its ordinary delay each time.

Source: SwarmKit `manager/orchestrator/replicated`, `manager/orchestrator/restart`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beeyard.core.model import Service, Task
from beeyard.core.pins import pins_of
from beeyard.core.rollout import roll_out
from beeyard.core.slots import Add, NodeFault, Raise, Situation, Slot, Steps, is_live, may_restart, slots_of
from beeyard.core.states import READY, TaskState

# How long a replacement waits for its predecessor to stop. Source: SwarmKit `TaskTimeout`.
STOP_TIMEOUT_S = 60.0

# Least age at which a replacement that never ran is replaced in turn, whatever the delay: a preparation that cannot
# succeed fails within milliseconds, each time at the cost of a placement, two fsyncs and an address that must rest.
NEVER_RAN_S_MIN = 1.0

# Somebody who answers for every address (a router that should not) would otherwise have the whole pool tried in seconds.
TAKEN_MAX = 16

# Steps of one look, so that a service of many thousands does not fill one transaction.
STEPS_MAX = 5000


def reconcile(service: Service, tasks: Sequence[Task], situation: Situation) -> Steps:
    """The next steps towards a service that exists: false when there are none now."""
    slots = slots_of(tasks)
    waiting = Steps()
    for decide in (replace_ended, scale, start_waiting, roll_out):
        steps = decide(service, slots, situation)
        if steps:
            return steps
        if steps.look_again_s is not None:
            waiting.look_again(steps.look_again_s)
    return waiting


def remove_all(tasks: Sequence[Task]) -> Steps:
    """The steps for the tasks of a service that is gone."""
    return Steps(raises=[Raise(t.id, TaskState.REMOVE) for t in tasks if t.desired_state < TaskState.REMOVE])


def replace_ended(service: Service, slots: Mapping[int, Slot], situation: Situation) -> Steps:
    """Shut down every live task that has ended, and replace it where the restart policy says so."""
    steps = Steps()
    for slot in slots.values():
        for task in slot.live:
            if not situation.has_ended(task):
                continue
            if len(steps.raises) >= STEPS_MAX:
                return steps
            replaced = task is slot.live[-1] and may_restart(task, slot, service, situation)
            if replaced and (due_s := _replace_due_s(task, slot, situation)) > situation.now_s:
                steps.look_again(due_s)
                continue
            steps.raises.append(Raise(task.id, TaskState.SHUTDOWN))
            if replaced:
                steps.add.append(Add(slot.number, TaskState.READY))
    return steps


def _replace_due_s(task: Task, slot: Slot, situation: Situation) -> float:
    """When a task that has ended may be replaced.

    At once if it is the slot's first, or if what ended it is its node: those do not repeat by themselves.
    Source: SwarmKit queues the restart of a task that is inside its own delay (`restart.go`, the "waiter").
    """
    older = slot.tasks[: slot.tasks.index(task)]
    drawn_anew = task.status.conflicts and situation.n_taken.get(slot.number, 0) <= TAKEN_MAX
    if not older or drawn_anew or situation.fault(task) is not None:
        return situation.now_s
    times = situation.times[task.id]
    delay_s = _restart_delay_s(task, older[-1], situation)
    return times.created_s + (max(delay_s, NEVER_RAN_S_MIN) if times.running_s is None else delay_s)


def next_try_s(service: Service, slot: Slot, situation: Situation) -> float | None:
    """When a slot is tried again after a task of it that ended: now or earlier when that is under way; None: it is not."""
    if not slot.live:
        newest = slot.newest
        return situation.now_s if newest is not None and may_restart(newest, slot, service, situation) else None
    task = slot.live[-1]
    if situation.has_ended(task):
        return _replace_due_s(task, slot, situation) if may_restart(task, slot, service, situation) else None
    return _start_due_s(task, slot, situation) if task.desired_state is READY else situation.now_s


def start_waiting(service: Service, slots: Mapping[int, Slot], situation: Situation) -> Steps:
    """Let READY tasks run whose delay is over and whose predecessors have stopped."""
    steps = Steps()
    for slot in slots.values():
        for task in slot.live:
            if task.desired_state is not READY or situation.has_ended(task):
                continue
            due_s = _start_due_s(task, slot, situation)
            if due_s <= situation.now_s:
                steps.raises.append(Raise(task.id, TaskState.RUNNING))
            else:
                steps.look_again(due_s)
    return steps


def _start_due_s(task: Task, slot: Slot, situation: Situation) -> float:
    """When a READY task may start, as far as can be said now."""
    older = slot.tasks[: slot.tasks.index(task)]
    created_s = situation.times[task.id].created_s
    before = next((t for t in reversed(older) if not t.status.conflicts), None)
    due_s = created_s + (_restart_delay_s(task, before, situation) if before is not None else 0.0)
    stopping = any(t.holds_room and not is_live(t) and not _cannot_stop(t, situation) for t in older)
    return max(due_s, created_s + STOP_TIMEOUT_S) if stopping else due_s


def _restart_delay_s(task: Task, before: Task, situation: Situation) -> float:
    """The delay is for tasks that ended by themselves: not for an update, a drained node or a slot that was given up."""
    planned = before.spec_version != task.spec_version or before.desired_state == TaskState.REMOVE
    return 0.0 if planned or situation.fault(before) is NodeFault.DRAINED else task.spec.restart.delay_s


def _cannot_stop(task: Task, situation: Situation) -> bool:
    return situation.fault(task) in (NodeFault.DOWN, NodeFault.REMOVED)


def scale(service: Service, slots: Mapping[int, Slot], situation: Situation) -> Steps:
    """Fill the lowest free slots, or give slots up, until the number of replicas is right."""
    occupied = [slot for slot in slots.values() if slot.is_occupied(service, situation)]
    missing = service.spec.replicas - len(occupied)
    steps = Steps()
    # Of a service whose slots have addresses of their own only the first ones do: the others go, whatever runs in them.
    pinned = len(pins_of(service.spec.labels)) > 0
    surplus = [slot for slot in occupied if slot.number > service.spec.replicas] if pinned else []
    if missing > 0 and not surplus:
        taken = {slot.number for slot in occupied}
        number = 0
        for _ in range(min(missing, STEPS_MAX)):
            number += 1
            while number in taken:
                number += 1
            before = slots.get(number)
            stopping = before is not None and any(task.holds_room for task in before.tasks)
            steps.add.append(Add(number, TaskState.READY if stopping else TaskState.RUNNING))
    elif missing < 0 or surplus:
        for slot in surplus or _ranked(occupied)[service.spec.replicas :]:
            steps.raises += [Raise(t.id, TaskState.REMOVE) for t in slot.tasks if t.desired_state < TaskState.REMOVE]
    return steps


def _ranked(occupied: Sequence[Slot]) -> list[Slot]:
    """Slots in the order in which they are kept: running ones first, evenly over the nodes.

    Slots are numbered per node, running and then low slots first; all first ones of their nodes come before all second
    ones, of equals that on the emptier node. A slot without a single placed task comes last.
    """
    ordered = sorted(occupied, key=lambda slot: (not _is_running(slot), slot.number))
    n_on_node: dict[str, int] = {}
    nth: dict[int, int] = {}
    for slot in ordered:
        if len(slot.live) == 1 and (node_id := slot.live[0].node_id):
            nth[slot.number] = n_on_node.get(node_id, 0)
            n_on_node[node_id] = nth[slot.number] + 1

    def rank(slot: Slot) -> tuple[bool, int, int]:
        if slot.number not in nth:
            return True, 0, 0
        return False, nth[slot.number], n_on_node[slot.live[0].node_id]

    return sorted(ordered, key=rank)


def _is_running(slot: Slot) -> bool:
    return any(task.status.state == TaskState.RUNNING for task in slot.live)
