"""Defects on purpose. The simulation is worth its time only if it finds them.

`python -m tests.sim SEED --seeds N --mutant NAME` runs seeds with one of them; `tests/sim/test_mutants.py` keeps a few.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec
import trio

from beeyard.agent.admission import Admission
from beeyard.agent.contact import Lease
from beeyard.agent.lifecycle import TaskLife
from beeyard.agent.reporter import Reporter
from beeyard.core.address_pool import COOL_DOWN_S, AddressBook
from beeyard.core.model import Node, Task
from beeyard.core.placement import Demand
from beeyard.core.states import NodeState
from beeyard.manager.hooks import HookRun, release_grants
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.orchestrators import isolation
from beeyard.manager.orchestrators.reaper import Reaper
from beeyard.manager.planner import Planner
from beeyard.manager.store import Store
from beeyard.manager.store.store import _record_of
from tests.sim.mutants_allocation import ALLOCATION_MUTANTS, together

Mutant = Callable[[], AbstractContextManager[Any]]


def addresses_do_not_rest() -> AbstractContextManager[Any]:
    """A released address is handed out again at once."""
    right = AddressBook.release

    def release(self: AddressBook, grant_id: str, now_s: float) -> None:
        right(self, grant_id, now_s - COOL_DOWN_S)

    return patch.object(AddressBook, "release", release)


def a_node_that_is_down_gives_up_its_addresses() -> AbstractContextManager[Any]:
    """As if nothing of it could still be on the LAN."""
    right = Planner._node_changed

    def node_changed(self: Planner, node_id: str, node: Node | None) -> None:
        right(self, node_id, node)
        if node is not None and node.status.state is NodeState.DOWN:
            for task in self._view.tasks_of_node(node_id):
                release_grants(self.hooks, task.grants, used=True)

    return patch.object(Planner, "_node_changed", node_changed)


def a_new_manager_does_not_restore_grants() -> AbstractContextManager[Any]:
    """It begins with empty books."""
    return patch.object(AddressLedger, "restore", lambda self, task, grant: None)


def the_record_of_an_end_goes_at_once() -> AbstractContextManager[Any]:
    """Before the addresses have rested, so that a new manager cannot know of it."""
    return patch.object(Reaper, "_rested_s", lambda self, task: float("-inf"))


def the_end_is_reported_before_the_links_are_down() -> AbstractContextManager[Any]:
    """By the agent, which takes them down right after."""
    right = TaskLife._bury

    async def bury(self: TaskLife, end: Any) -> None:
        self._publish(end)
        await right(self, end)

    return patch.object(TaskLife, "_bury", bury)


def a_commit_is_answered_before_it_is_stored() -> AbstractContextManager[Any]:
    """Everybody sees it, and the disk hears of it a moment later."""

    async def commit_group(self: Store) -> None:
        jobs = [self._queue.popleft() for _ in range(len(self._queue))]
        self._queued = trio.Event()
        results, changes, _ = self._build(jobs)
        if changes:
            self._publish(changes)
        for job, result in zip(jobs, results, strict=True):
            job.result = result
            job.done.set()
        if changes:
            await self._database.commit([_record_of(change) for change in changes])

    return patch.object(Store, "_commit_group", commit_group)


def the_manager_ignores_room() -> AbstractContextManager[Any]:
    """It places tasks as if they asked for nothing."""
    right = Demand.of

    def of(task: Task) -> Demand:
        return msgspec.structs.replace(right(task), cpu_nano=0, memory_bytes=0)

    return patch.object(Demand, "of", staticmethod(of))


def nobody_looks_at_room() -> AbstractContextManager[Any]:
    """Neither the manager nor the agent."""
    return together(the_manager_ignores_room(), patch.object(Admission, "_why_no_room", lambda self, task: ""))


def a_dropped_plan_keeps_its_addresses() -> AbstractContextManager[Any]:
    """They leak until the manager is started anew."""
    right = HookRun.abandon

    def abandon(self: HookRun) -> None:
        self.hand_over()
        right(self)

    return patch.object(HookRun, "abandon", abandon)


def leases_are_given_up_too_early() -> AbstractContextManager[Any]:
    """Before the shim of a task that cannot be reached has taken its links down."""
    return patch.object(isolation, "release_after_s", lambda task: 40.0)


def the_agent_renews_leases_by_itself() -> AbstractContextManager[Any]:
    """Whether or not a manager has been heard of."""

    async def extend(self: Lease, controller: Any) -> None:
        await controller.renew_lease(1000.0)
        self._until_s = trio.current_time() + 1000.0

    return patch.object(Lease, "extend", extend)


def the_agent_forgets_reports_without_an_answer() -> AbstractContextManager[Any]:
    """What was under way when a session broke is not sent again."""

    def restart(self: Reporter) -> None:
        self._in_flight.clear()
        self._asked = False
        self._wake.set()

    return patch.object(Reporter, "restart", restart)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        addresses_do_not_rest,
        a_node_that_is_down_gives_up_its_addresses,
        a_new_manager_does_not_restore_grants,
        the_record_of_an_end_goes_at_once,
        the_end_is_reported_before_the_links_are_down,
        a_commit_is_answered_before_it_is_stored,
        the_manager_ignores_room,
        nobody_looks_at_room,
        a_dropped_plan_keeps_its_addresses,
        leases_are_given_up_too_early,
        the_agent_renews_leases_by_itself,
        the_agent_forgets_reports_without_an_answer,
        *ALLOCATION_MUTANTS,
    )
}
