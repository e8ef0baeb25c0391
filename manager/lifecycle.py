"""★ The way of a task from its creation to a node: read top to bottom.

    stage      what happens                                          methods                       the task is then
    ---------  ----------------------------------------------------  ----------------------------  --------------------
    NEW        hooks that must finish before scheduling run          _enter_new, _admit            PENDING, their
                                                                                                   grants stored
    PENDING    hooks that need no node go on beside scheduling;      _schedule                     PENDING, with a
               the kernel picks a node and holds its room there                                    plan in memory
    SCHEDULED  hooks that need the node run                          _enter_scheduled, _reserve    PENDING, its grants
                                                                                                   in the plan
    ASSIGNED   node, service and feasibility are checked again,      _assign                       ASSIGNED, seen by
               node and grants are stored in one transaction                                       its agent

Theory of operation
-------------------
Each stage looks at what waits in front of it; changes of the store only wake it. A *plan* is a task with a chosen node,
held room and hooks under way. It lives in memory: when it ends for whatever reason before the commit, its room and grants
go back and the task is PENDING as before, so a manager that crashes loses nothing and leaks nothing. It ends as soon as
what it was made on changes: its task is not wanted any more, its node is another than it was, its pool is gone.

One loop looks (`_look_loop`): it takes over what changed, lets new tasks in and gives the waiting ones to the kernel,
without ever waiting in between. Two loops store what came out of that, in batches: new tasks as PENDING (`_admit_loop`),
plans as ASSIGNED (`_assign_loop`); what they write is in `manager/transition.py`. Hooks run beside all of them.

Tasks of one service and spec version are decided as one group. A group that could not be placed whole is *blocked* until
something changes that may help: a node, a network, an end of a task, a rested address. Until then it costs nothing and
holds up nobody; then one look at the nodes tells whether it did help. A hook that refuses a node has it masked for the
task's group for a while; after three refusals in a row the task waits for that while too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog
import trio

from beeyard.core.errors import HookRefused
from beeyard.core.model import Node, Task
from beeyard.core.placement import Decision, Demand
from beeyard.core.states import RUNNING
from beeyard.manager.batches import Lot
from beeyard.manager.blocked import Group
from beeyard.manager.config import ManagerConfig
from beeyard.manager.hooks import EarlyHooks, Hook, HookRun, Stage
from beeyard.manager.news import News
from beeyard.manager.plan import Patience, Plan, Queue
from beeyard.manager.planner import Planner, group_of
from beeyard.manager.store import Change, Store, Wakeups
from beeyard.manager.transition import MESSAGE_PENDING, admit, assign
from beeyard.runtime.host import Host

REASON_INTERNAL = "internal error while scheduling"
# A plan that waits longer than this for a hook says so in its task's message. Most hooks take microseconds.
SLOW_HOOK_S = 1.0

log = structlog.get_logger(__name__)


class Lifecycle:
    """Moves tasks through the stages; `run` once. It loads the planner and keeps it up to date."""

    def __init__(
        self, host: Host, store: Store, planner: Planner, hooks: Sequence[Hook], config: ManagerConfig
    ) -> None:
        self._host = host
        self._store = store
        self._planner = planner
        self._hooks = hooks
        self._node_hooks = [hook for hook in hooks if hook.window.has_node]
        self._config = config
        self._nursery: trio.Nursery
        self._changes: Wakeups
        self._early: EarlyHooks
        self._admitting: dict[str, None] = {}  # from the first look at a NEW task until it is stored as PENDING
        self._admitted = Queue[Task]()
        self._plans: dict[str, Plan] = {}  # by task
        self._ready = Queue[Plan]()
        self._patience = Patience()
        self._news = News(store, config.commit_tasks_max)
        self._some_plan = trio.Event()
        self._placed_s = -math.inf  # when something was last decided
        self._cool_s = math.inf  # when an address is free again that a blocked group may be waiting for
        # Whether a service is just being given more tasks than one transaction takes; at its end `look` is called.
        self.are_more_to_come: Callable[[], bool] = lambda: False
        planner.hooks = hooks
        planner.has_plan = self._plans.__contains__

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; started once everything recorded is restored."""
        async with self._store.subscribe("task", "node", "network", "service", "volume") as self._changes:
            self._planner.load()
            async with trio.open_nursery() as self._nursery:
                self._early = EarlyHooks(self._hooks, self._nursery)
                self._nursery.start_soon(self._admit_loop)
                self._nursery.start_soon(self._assign_loop)
                self._nursery.start_soon(self._news.run)
                self._nursery.start_soon(self._slow_hook_loop)
                task_status.started()
                await self._look_loop()

    def waiting_for(self, task_id: str) -> str:
        """What keeps a planned task from being stored, such as "planned on node yard2, waiting for hook address"."""
        plan = self._plans.get(task_id)
        return "" if plan is None else plan.sentence()

    def refusing(self, task: Task) -> list[str]:
        """Nodes that are left out for the tasks of this one's group, because hooks refused them."""
        return self._patience.masked(group_of(task))

    def look(self) -> None:
        """Look again though nothing was stored: such as when no more tasks are to come."""
        self._changes.poke()

    def retry(self, until: str) -> None:
        """Try at once what hooks refused until this: see `HookRefused.until`."""
        if self._patience.end(until):
            self._planner.blocked.forget_all()
            self._changes.poke()

    # --- when to look ------------------------------------------------------------------------------------------------

    async def _look_loop(self) -> None:
        while True:
            self._absorb()
            self._schedule()
            due_s = min(self._cool_s, self._planner.blocked.next_due_s(), self._patience.next_due_s() or math.inf)
            with trio.move_on_at(due_s):
                await self._changes.wait()
            await self._debounce()

    def _absorb(self) -> None:
        """Take over what changed, and let new tasks in: this is cheap and never waits."""
        changes = self._changes.take_nowait().changes
        self._planner.apply(changes)
        self._end_unwanted(changes)
        self._end_outdated(changes)
        if self._patience.expire(trio.current_time()):
            self._planner.blocked.forget_all()
        self._enter_new()

    async def _debounce(self) -> None:
        """Wait for what is likely to come, so as to decide on it at once: each node then hears of its share in one message.

        That is a short silence right after a decision, and always the tasks that are about to become PENDING or to be made.
        """
        soon = trio.current_time() - self._placed_s < self._config.debounce_gap_s
        with trio.move_on_after(self._config.debounce_max_s):
            while True:
                self._absorb()
                if not soon and not self._lets_in() and not self.are_more_to_come():
                    return
                with trio.move_on_after(self._config.debounce_gap_s if soon else math.inf) as silence:
                    await self._changes.wait()
                soon = soon and not silence.cancelled_caught

    # --- NEW: hooks that must finish before scheduling ---------------------------------------------------------------

    def _lets_in(self) -> bool:
        """Whether there are tasks that only the store keeps from being PENDING."""
        return any(not self._early.holds_in_new(t) and not self._patience.rests(t) for t in self._planner.new)

    def _enter_new(self) -> None:
        for task_id in self._planner.new:
            task = self._store.tasks.get(task_id)
            if task is None or task_id in self._admitting or self._patience.rests(task_id):
                continue
            self._admitting[task_id] = None
            early = self._early.of(task)
            if early is not None and early.waits_for(Stage.PENDING):
                self._nursery.start_soon(self._finish_new, task, early)
            else:
                self._admitted.put(task)

    async def _finish_new(self, task: Task, early: HookRun) -> None:
        try:
            await early.finish(Stage.PENDING)
        except HookRefused as refusal:
            del self._admitting[task.id]
            self._rest(task, str(refusal), refusal.until)
        else:
            self._admitted.put(task)

    async def _admit_loop(self) -> None:
        while True:
            # A change of the status alone is cheap, and everything behind it gains from large lots.
            tasks = await self._admitted.take(5 * self._config.commit_tasks_max)
            stored = await self._store.commit_patiently(partial(admit, tasks, self._early.grants))
            for task, grants in zip(tasks, stored, strict=True):
                del self._admitting[task.id]
                if isinstance(grants, Exception):
                    self._rest(task, REASON_INTERNAL)
                    continue
                if grants is not None:
                    self._early.stored_pending(task.id, grants)
                if grants is None or not self._is_wanted(task.id):
                    self._early.end(task.id)

    # --- PENDING: the kernel picks a node ----------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Give every group that may be placed to the kernel. Synchronous: nothing changes meanwhile."""
        now_s = trio.current_time()
        if now_s >= self._cool_s:
            self._planner.blocked.something_changed()
        self._planner.refresh_pools()
        lots = deque(self._planner.lots(self._planner.groups_to_look_at(now_s), self._patience.has_masks))
        while lots:
            lot = lots.popleft()
            try:
                self._schedule_lot(lot, now_s)
            except Exception:
                for group in lot.groups:
                    self._could_not_schedule(group)
                # A defect met in a batch is met again in one of its groups, and the others go on.
                lots.extendleft(Lot([group], packed=False) for group in reversed(lot.groups) if lot.packed)
        ready_s = self._planner.ledger.next_ready_s() if self._planner.blocked else None
        self._cool_s = math.inf if ready_s is None else ready_s

    def _schedule_lot(self, lot: Lot, now_s: float) -> None:
        patience, planner = self._patience, self._planner
        groups = [group for group in lot.groups if not planner.stays_blocked(group, patience.masked(group), now_s)]
        waiting = ((group, planner.waiting(group, self._plans, patience.resting)) for group in groups)
        asked = [(group, tasks, Demand.of(tasks[0])) for group, tasks in waiting if tasks]
        if lot.packed:
            decisions = planner.place_together([(tasks, demand) for _, tasks, demand in asked])
        else:
            decisions = [planner.place(tasks, demand, patience.masked(group)) for group, tasks, demand in asked]
        for (group, tasks, demand), decision in zip(asked, decisions, strict=True):
            self._decided(group, tasks, demand, decision)
        if groups:
            planner.room_changed()

    def _decided(self, group: Group, tasks: Sequence[Task], demand: Demand, decision: Decision) -> None:
        self._placed_s = trio.current_time()
        # Node by node: then tasks of one node are stored in few commits, and its agent hears of them in few messages.
        hooks = [hook for hook in self._node_hooks if hook.applies(tasks[0])]
        for task, placed in sorted(zip(tasks, decision.placed, strict=False), key=lambda pair: pair[1].node_id):
            self._enter_scheduled(task, self._store.nodes[placed.node_id], demand, group, hooks)
        waiting = tasks[len(decision.placed) :]
        if waiting:
            tell_all = self._planner.blocked.block(group, demand, decision.explanation, self._placed_s)
            words = self._patience.words(group)
            reason = f"{decision.explanation}: {words}" if words else decision.explanation
            for task in waiting if tell_all else [task for task in waiting if not task.status.err]:
                self._news.tell(task, MESSAGE_PENDING, reason)
        else:
            self._planner.blocked.forget(group)
        log.info("scheduled", stage="PENDING", service=group[0], placed=len(decision.placed), waiting=len(waiting))

    def _could_not_schedule(self, group: Group) -> None:
        """A defect of ours, met in one group: its tasks wait and say so, the others go on."""
        log.exception("scheduling failed", stage="PENDING", service=group[0], spec_version=group[1])
        for task in [self._store.tasks[id_] for id_ in self._planner.pending[group] if id_ in self._store.tasks]:
            if task.id not in self._plans:
                self._planner.index.drop(task.id)
                self._news.tell(task, MESSAGE_PENDING, REASON_INTERNAL)
            self._planner.blocked.fail(group, Demand.of(task), REASON_INTERNAL, trio.current_time())

    # --- SCHEDULED: hooks that need the node -------------------------------------------------------------------------

    def _enter_scheduled(self, task: Task, node: Node, demand: Demand, group: Group, hooks: Sequence[Hook]) -> None:
        """Make a plan; `hooks`: those that need the node and are for tasks of this group."""
        early = self._early.of(task)
        run = HookRun(hooks, task, self._nursery) if hooks else None
        plan = Plan(task, node, demand, group, run, early, self._placed_s, self._store.index)
        self._plans[task.id] = plan
        self._some_plan.set()
        if run is not None:
            run.enter(Stage.SCHEDULED, node)
        if (run is not None or early is not None) and plan.waits_for():
            self._nursery.start_soon(self._reserve, plan)
        else:
            self._ready.put(plan)

    async def _reserve(self, plan: Plan) -> None:
        """Wait for the hooks whose windows end at ASSIGNED, those beside scheduling too."""
        try:
            for run in (plan.run, plan.early):
                if run is not None:
                    await run.finish(Stage.ASSIGNED)
        except HookRefused as refusal:
            if not plan.over:
                self._refused(plan, refusal)
        else:
            if not plan.over:
                self._planner.index.settle(plan.task.id)  # The book counts its addresses now.
                self._ready.put(plan)

    def _refused(self, plan: Plan, refusal: HookRefused) -> None:
        now_s = trio.current_time()
        log.info("hook refused", stage="SCHEDULED", task=plan.task.id, node=plan.node.id, reason=str(refusal))
        self._plan_anew(plan)
        if refusal.scope != "node":
            self._rest(plan.task, str(refusal), refusal.until)
        elif self._patience.refused_by_node(plan.task.id, plan.group, plan.node.id, refusal, now_s):
            self._news.tell(plan.task, MESSAGE_PENDING, str(refusal))

    def _rest(self, task: Task, reason: str, until: str = "") -> None:
        """The task cannot go anywhere, such as when a hook refused it: it rests, then all of its hooks are asked anew."""
        self._early.end(task.id)
        self._patience.refused_everywhere(task.id, reason, trio.current_time(), until)
        log.info("task rests", stage=task.status.state.name, task=task.id, reason=reason)
        self._news.tell(task, MESSAGE_PENDING, reason)
        self._changes.poke()

    # --- ASSIGNED: stored with its node and grants -------------------------------------------------------------------

    async def _assign_loop(self) -> None:
        while True:
            taken = await self._ready.take(self._config.commit_tasks_max)
            plans = [plan for plan in taken if not plan.over]
            for plan in plans:
                plan.committing = True
            faults = await self._store.commit_patiently(partial(assign, plans, self._planner.index))
            for plan, fault in zip(plans, faults, strict=True):
                if isinstance(fault, Exception):
                    self._plan_anew(plan)
                    self._rest(plan.task, REASON_INTERNAL)
                elif fault:
                    self._plan_anew(plan, fault)
                else:
                    self._keep_plan(plan)

    def _keep_plan(self, plan: Plan) -> None:
        """The plan is stored: its room and grants are the task's now."""
        plan.over = True
        del self._plans[plan.task.id]
        if plan.run is not None:
            plan.run.hand_over()
        self._early.stored_assigned(plan.task.id)
        self._planner.index.settle(plan.task.id)
        self._patience.forget(plan.task.id)

    # --- plans that end without a commit -----------------------------------------------------------------------------

    def _end_unwanted(self, changes: Iterable[Change]) -> None:
        """End plans and hooks of tasks that nobody wants any more; what is being committed is left to the commit."""
        for change in changes:
            if change.kind != "task" or self._is_wanted(change.id):
                continue
            self._patience.forget(change.id)
            plan = self._plans.get(change.id)
            # Once NEW lets it go, the commit that stores the task's grants as PENDING may be under way.
            is_being_admitted = change.id in self._admitting and not self._early.holds_in_new(change.id)
            if plan is not None and not plan.committing:
                self._end_plan(plan)
            elif plan is None and not is_being_admitted:
                self._early.end(change.id)

    def _end_outdated(self, changes: Iterable[Change]) -> None:
        """End plans whose node or network is not what it was, so that slow hooks do not work for nothing."""
        nodes = {change.id for change in changes if change.kind == "node"}
        networks = any(change.kind == "network" for change in changes)
        for plan in list(self._plans.values()) if nodes or networks else ():
            concerned = networks or plan.node.id in nodes
            if concerned and not plan.committing and (fault := plan.fault(self._store, self._planner.index)):
                self._plan_anew(plan, fault)

    def _plan_anew(self, plan: Plan, fault: str = "") -> None:
        """End a plan, and look for another node for its task."""
        if fault:
            log.info("plan dropped", stage="SCHEDULED", task=plan.task.id, node=plan.node.id, reason=fault)
        self._end_plan(plan)
        self._planner.blocked.forget(plan.group)
        self._changes.poke()

    def _end_plan(self, plan: Plan) -> None:
        """Give back what a plan holds. Hooks that need no node go on: their grants are good for the next plan."""
        plan.over = True
        del self._plans[plan.task.id]
        if plan.run is not None:
            plan.run.abandon()
        self._planner.index.drop(plan.task.id)
        if not self._is_wanted(plan.task.id):
            self._early.end(plan.task.id)
        elif plan.told:
            self._news.tell(plan.task, MESSAGE_PENDING)

    def _is_wanted(self, task_id: str) -> bool:
        task = self._store.tasks.get(task_id)
        return task is not None and task.desired_state <= RUNNING

    # --- plans that take long ----------------------------------------------------------------------------------------

    async def _slow_hook_loop(self) -> None:
        """Have tasks say which hook they wait for when it takes long."""
        while True:
            await self._some_plan.wait()
            await trio.sleep(SLOW_HOOK_S)
            slow_s = trio.current_time() - SLOW_HOOK_S
            for plan in self._plans.values():
                if plan.started_s <= slow_s and not plan.told and plan.waits_for():
                    plan.told = True
                    self._news.tell(plan.task, plan.sentence(), self._patience.said(plan.task.id))
            if not self._plans:
                self._some_plan = trio.Event()
