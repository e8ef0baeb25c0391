"""All tasks of this node: who exists, who is wanted, and how the two are brought together.

Theory of operation
-------------------
*Sets.* A complete set names every task of the node; whoever is not in it is dropped, links first. An incremental set
changes the set before it, which it names by number; when that is not the one we have, a set was lost, nothing is applied
and the session asks for a complete one. Within one set, ends come before beginnings, so that a new task finds its
predecessor already stopping and waits for it.

*Restart.* What the executors find on this host (`recover`) is matched with the records on disk. A task with a record lives
on at once: its end is noticed although no manager can be reached. One without a record is *unknown* until the first
complete set: named there it is adopted, else it is stopped, links first, and removed.

*Absence.* When the first complete set of a session comes after a silence of more than `ABSENCE_S`, what it wants stopped
may already run elsewhere: it is stopped links first.

*Firebreak.* Each task has a nursery of its own kind: what goes wrong in one is logged and stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog
import trio

from beeyard.agent.insist import insist
from beeyard.agent.lifecycle import TaskLife
from beeyard.agent.local_state import TaskRecord
from beeyard.agent.surroundings import Surroundings
from beeyard.core.wire import AssignedTask, Assignments
from beeyard.runtime.host import Controller

# Two heartbeats of 5 s: no manager declares a node down sooner, so within it nobody else runs in our tasks' place.
ABSENCE_S = 10.0

log = structlog.get_logger(__name__)


class Workload:
    """The tasks of one node."""

    def __init__(self, around: Surroundings, nursery: trio.Nursery) -> None:
        """Args: what tasks share, and the nursery in which they live."""
        self._around = around
        self._nursery = nursery
        # By task id, those included that are over and that the manager still names.
        self._lives: dict[str, TaskLife] = {}
        self._unknown: dict[str, Controller] = {}
        self._expelling: dict[str, Controller] = {}
        self._applied: int | None = None  # number of the set we have, None before a session's first
        self._absent = True
        self._steps_settled = False
        self._emptied = trio.Event()

    @property
    def last_seen(self) -> int:
        """Number of the newest set that was applied in this session, 0 before the first."""
        return self._applied or 0

    @property
    def n_unfinished(self) -> int:
        """Tasks that may still run on this host."""
        n_running = sum(not life.status.state.is_terminal for life in self._lives.values())
        return n_running + len(self._unknown) + len(self._expelling)

    def adopt(self, records: Mapping[str, TaskRecord], controllers: Iterable[Controller]) -> None:
        """Take up what earlier lives of the agent left on disk and on the host. Called once, before any session."""
        found = {controller.task_id: controller for controller in controllers}
        for task_id, record in records.items():
            controller = found.pop(task_id, None)
            self._add(TaskLife(self._around, record.assigned, status=record.status, controller=controller, named=False))
        for task_id, controller in found.items():
            log.warning("a task without a record is on this host", task=task_id, phase=controller.phase)
            self._unknown[task_id] = controller
            self._around.admission.unknown_found()
        if records or found:
            log.info("tasks were found on this host", known=len(records), unknown=len(found))

    def begin_session(self) -> None:
        """A manager has welcomed us; its first complete set is yet to come."""
        now_s = trio.current_time()
        self._absent = now_s - self._around.contact.heard_at_s > ABSENCE_S
        self._applied = None

    def apply(self, assignments: Assignments) -> bool:
        """Bring the node in line with a set. False, and nothing done, when a set before it is missing."""
        if not assignments.complete and assignments.applies_to != self._applied:
            return False
        first = self._applied is None
        self._applied = assignments.results_in
        removed = list(assignments.removed)
        if assignments.complete:
            named = {task.id for task in assignments.tasks}
            removed = [task_id for task_id in self._lives if task_id not in named]
            self._settle_unknown(assignments)
            self._nursery.start_soon(self._settle_steps)
        for task_id in removed:
            if task_id in self._lives:
                self._lives[task_id].drop()
        links_first = first and self._absent
        for task in assignments.tasks:
            if task.id in self._lives:
                self._lives[task.id].want(task, links_first=links_first)
        for task in assignments.tasks:
            if task.id not in self._lives:
                self._begin(task, links_first=links_first)
        return True

    def renew_leases(self) -> None:
        """A manager has confirmed contact: extend every task's lease that this makes longer, each on its own."""
        for life in self._lives.values():
            if life.lease_is_due:
                self._nursery.start_soon(life.renew_lease)

    def note_host_links(self, indices: Mapping[str, int]) -> None:
        """Which links this host has now, and their indices: tasks whose parent is gone say so."""
        if not indices:
            return  # They could not be read; an agent on a host without any link would have no session.
        for life in self._lives.values():
            life.note_host_links(indices)

    async def abandon(self) -> None:
        """This node is no member any more: stop and forget everything, links first; returns when it is done."""
        self.apply(Assignments(complete=True, applies_to=0, results_in=0))
        while self._lives or self._expelling:
            await self._emptied.wait()

    def _begin(self, task: AssignedTask, *, links_first: bool, controller: Controller | None = None) -> None:
        # A status that is still kept belongs to a life that ended here: the task is over, whatever is asked now.
        status = self._around.reporter.status(task.id)
        if task.state.is_terminal and status is None and controller is None:
            return  # The manager knows how it ended, and nothing of it is here.
        life = TaskLife(self._around, task, status=status, controller=controller)
        life.want(task, links_first=links_first)
        self._add(life)

    def _add(self, life: TaskLife) -> None:
        self._lives[life.assigned.id] = life
        self._nursery.start_soon(self._live, life)

    async def _live(self, life: TaskLife) -> None:
        try:
            await life.run()
        except Exception:
            # The firebreak of last resort: its links could not be confirmed to be down, so no end is ever reported
            # and its addresses stay reserved until the agent is started anew.
            log.exception("the agent lost a task", task=life.assigned.id)
            return
        del self._lives[life.assigned.id]
        self._one_gone()

    def _one_gone(self) -> None:
        self._emptied.set()
        self._emptied = trio.Event()

    def _settle_unknown(self, assignments: Assignments) -> None:
        unknown, self._unknown = self._unknown, {}
        for task in assignments.tasks:
            controller = unknown.pop(task.id, None)
            if controller is not None:
                self._begin(task, links_first=self._absent, controller=controller)
                self._around.admission.unknown_gone()
        for task_id, controller in unknown.items():
            self._expelling[task_id] = controller
            self._nursery.start_soon(self._expel, task_id, controller)

    async def _settle_steps(self) -> None:
        """Once in the agent's life, when nobody unknown is left: take away what was made for tasks that are gone."""
        if self._steps_settled:
            return
        self._steps_settled = True
        while self._expelling:
            await self._emptied.wait()
        await insist("take away what was left of former tasks", self._around.steps.settle, log)

    async def _expel(self, task_id: str, controller: Controller) -> None:
        """Stop and remove a task that nobody knows."""
        log.warning("a task that no manager knows is stopped and removed", task=task_id)

        async def expel() -> None:
            await controller.stop(links_first=True)
            await controller.links_down()
            await controller.remove()

        await insist("remove an unknown task", expel, log.bind(task=task_id))
        del self._expelling[task_id]
        self._around.admission.unknown_gone()
        self._one_gone()


__all__ = ["Workload"]
