"""One assigned task, top to bottom.

Theory of operation
-------------------
Each task of this node has one `TaskLife`, and `TaskLife.run` is its state machine, readable from top to bottom:

    ACCEPTED    this node has room (`agent.admission`); waits here while a predecessor is still stopping
    PREPARING   what this node does besides (`agent.steps`); namespaces, cgroup and shim are made, then a link for each
                grant of an address: eth0, eth1, … in their order
    READY       stays here while no more than READY is desired
    STARTING    on disk before the command may run, so that no restart runs it twice
    RUNNING     until the process ends by itself
    COMPLETE / FAILED / REJECTED / SHUTDOWN

* Only this file moves a task's observed state, and only upwards. `_next` keeps that promise: where a step is done again
  (preparing after a restart of the agent), the state stays and only the message changes.
* The manager's wishes arrive through `want` and `drop`, which never block. A wish to stop cancels the way up, whatever it
  is doing; every step on it is all or nothing under cancellation, so `_stop` then finds a whole state.
* **A terminal state is reported only once the links are down**, and that is insisted on for ever: somebody else gets the
  task's addresses on that word. Order of an end: links down, steps undone, written, reported, room given up,
  remains removed.
* A failure before STARTING is REJECTED (the command never ran), from STARTING on it is FAILED. Where nothing stands between
  namespaces and command they are asked for in one, after STARTING; if the former fail it is REJECTED all the same.
* *Links first*: the links go down before the stop signal when somebody else may already run in this task's place: the
  manager dropped the task, or told us to stop it on the first contact after a silence.
* A *lease* bounds how long the links stay up without word from a manager; the shim keeps it even when this agent is dead.
  It is set before the first link is made, extended only by what a manager confirmed (`agent.contact`), and a task whose
  lease has passed is over: its links are down and do not come back.
* After a restart of the agent a task whose command has run is watched again or, when nothing of it is left, FAILED. One
  that was only prepared is undone and prepared again once a manager still wants it. It is never started twice.
* The agent's own end (cancellation) touches nothing: tasks run on under their shims.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
import structlog
import trio

from beeyard.agent.contact import Lease, LeasePassed
from beeyard.agent.image import executor_for
from beeyard.agent.insist import insist
from beeyard.agent.local_state import TaskRecord
from beeyard.agent.silencing import take_links_down
from beeyard.agent.surroundings import Surroundings
from beeyard.core.errors import AddressTaken, DiskError, ExecutorError, HostError
from beeyard.core.grant import AddressGrant
from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import driver
from beeyard.runtime.host import Controller, ExitStatus

log = structlog.get_logger(__name__)


class TaskLife:
    """One task on this node, from its assignment until the manager has dropped it."""

    def __init__(
        self,
        around: Surroundings,
        assigned: AssignedTask,
        *,
        status: TaskStatus | None = None,
        controller: Controller | None = None,
        named: bool = True,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            around: what it shares with its neighbours.
            assigned: the assignment, from a manager or from disk.
            status: what an earlier life of the agent last knew of the task.
            controller: what the executor found of it.
            named: whether a manager has named the task in this life of the agent.
        """
        self._around = around
        self._assigned = assigned
        self._status = status or TaskStatus(state=TaskState.ASSIGNED)
        self._controller = controller
        self._named = named
        self._has_record = status is not None
        self._dropped = False
        self._links_first = False
        self._lapsed = False
        self._parents: dict[str, int] = {}  # index of each of its links' parents, as first seen
        self._lease = Lease(around.contact, assigned.lease_s, binds=assigned.fence or bool(assigned.grants))
        self._way_up = trio.CancelScope()
        self._changed = trio.Event()
        self._log = log.bind(task=assigned.id, service=assigned.service_name, slot=assigned.slot)
        if controller is not None:
            around.admission.hold(assigned)
            around.steps.found(assigned)

    @property
    def assigned(self) -> AssignedTask:
        """The assignment, with the highest desired state seen."""
        return self._assigned

    @property
    def status(self) -> TaskStatus:
        """The newest status."""
        return self._status

    @property
    def controller(self) -> Controller | None:
        """What of the task exists on this host, once it is being prepared."""
        return self._controller

    # --- what it is told; none of these blocks -----------------------------------------------------------------------

    def want(self, assigned: AssignedTask, *, links_first: bool = False) -> None:
        """Take over what a manager says now. A lower desired state than before is refused: wishes only rise."""
        desired_state = max(assigned.desired_state, self._assigned.desired_state)
        state = max(assigned.state, self._assigned.state)
        self._assigned = msgspec.structs.replace(assigned, desired_state=desired_state, state=state)
        self._named = True
        self._dropped = False
        if self._must_stop:
            self._stop_soon(links_first=links_first or assigned.state.is_terminal)
        self._wake()

    def drop(self) -> None:
        """No manager wants the task any more: stop it, links first, and forget it."""
        self._dropped = True
        self._stop_soon(links_first=True)
        self._wake()

    @property
    def lease_is_due(self) -> bool:
        """Whether `renew_lease` has something to do."""
        return self._named and self._controller is not None and self._lease.is_due(self._controller)

    async def renew_lease(self) -> None:
        """Extend the lease to what the newest confirmed contact allows; ends the task when it had passed.

        Never raises: a shim that cannot be reached keeps the lease it has.
        """
        controller = self._controller
        if controller is None or not self.lease_is_due:
            return
        try:
            if not controller.lapsed:
                await self._lease.extend(controller)
        except HostError as error:
            self._log.warning("the lease was not extended", reason=str(error))
        # The shim is asked, and not only our clock: the lease may have passed in an earlier life of the agent, or while
        # this machine was suspended, which trio's clock does not see.
        if self._lease.has_passed or controller.lapsed:
            self._lapse()

    def note_host_links(self, indices: Mapping[str, int]) -> None:
        """Take note of this host's links: where a parent is gone, not only renamed, the task's link is gone. It says so."""
        running = self._status.state is TaskState.RUNNING
        parents = [grant.parent for grant in self._address_grants if running and grant.parent]
        known = self._parents
        gone = [p for p in parents if known.setdefault(p, indices.get(p, 0)) not in indices.values()]
        if gone and not self._must_stop:
            err = f"its link is gone: parent {gone[0]} was removed"
            if err != self._status.err:
                self._publish(self._next(TaskState.RUNNING, self._status.message, err=err, pid=self._status.pid))

    # --- the way of the task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live. Returns when the task is over, the manager has dropped it, and nothing of it is left here."""
        try:
            end = await self._until_end()
        except Exception as error:
            # The firebreak: a defect in the handling of one task ends that task and no other.
            self._log.exception("the agent failed at this task")
            end = self._next(TaskState.FAILED, err=f"agent: {type(error).__name__}: {error}")
        await self._bury(end)
        while not self._dropped:
            await self._changed.wait()
        await self._insist("forget", lambda: self._around.state.remove(self._assigned.id))
        self._around.reporter.forget(self._assigned.id)

    async def _until_end(self) -> TaskStatus:
        if self._status.state.is_terminal:
            return self._status  # An earlier life of the agent saw the end; it only has to be buried.
        with self._way_up:
            return await self._go_up()
        end = await self._stop()
        if self._lapsed:
            return self._next(TaskState.FAILED, err=str(LeasePassed(self._assigned.lease_s)), exit_code=end.exit_code)
        return end

    async def _go_up(self) -> TaskStatus:
        await self._pause()
        if self._controller is not None and self._may_have_run(self._controller):
            return await self._watch(self._controller)
        await self._undo_what_was_prepared()
        while not self._named:
            await self._changed.wait()
        if max(self._status.state, self._assigned.state) >= TaskState.STARTING:
            return self._next(
                TaskState.FAILED, err="task: its process is gone; the host restarted or its shim was killed"
            )
        starting = False
        try:
            await self._accept()
            controller = await self._create()
            at_once = self._is_plain and not self._around.steps.stands_between(self._assigned)
            if not at_once:
                await self._prepare(controller)
            starting = True
            await self._start(controller, at_once=at_once)
        except HostError as error:
            return self._refused(error, may_have_run=starting and controller.phase != "new")
        return await self._watch(controller)

    def _may_have_run(self, controller: Controller) -> bool:
        """Whether what the executor found is a task whose command has run: no record says that it was not started."""
        never_started = self._has_record and self._status.state < TaskState.STARTING
        return controller.phase == "started" or (controller.phase == "exited" and not never_started)

    async def _undo_what_was_prepared(self) -> None:
        """A task that was prepared before the agent's restart: nobody knows how far, so it begins again."""
        if self._controller is not None:
            await self._take_links_down()
            await self._undo_steps()
            await self._insist("undo", self._controller.remove)
            self._controller = None
        self._around.admission.release(self._assigned.id)

    @property
    def _is_plain(self) -> bool:
        """Whether it may be prepared and started in one, with one record instead of two."""
        wanted = self._assigned.desired_state >= TaskState.RUNNING
        return wanted and not self._address_grants and not self._assigned.fence

    async def _accept(self) -> None:
        if not self._is_plain:
            await self._write(self._status)
        self._pass(TaskState.ACCEPTED, "accepted")
        say = partial(self._next, TaskState.ACCEPTED)
        await self._around.admission.admit(self._assigned, lambda why: self._publish(say(why)))

    async def _create(self) -> Controller:
        self._pass(TaskState.PREPARING, "preparing")
        executor = executor_for(self._assigned.spec.image, self._around.host.executors)
        additions = await self._around.steps.before(self._assigned)
        self._controller = await executor.create(self._assigned, additions)
        return self._controller

    async def _prepare(self, controller: Controller) -> None:
        host = self._around.host
        if self._is_plain:
            await self._write(self._status)
        await controller.prepare()
        await self._lease.extend(controller)
        for position, grant in enumerate(self._address_grants):
            await self._lease.guard(partial(driver.attach, host.netlink, controller.netns, grant, f"eth{position}"))
        await self._around.steps.attached(self._assigned, controller)
        self._pass(TaskState.READY, "ready")
        while self._assigned.desired_state < TaskState.RUNNING:
            await self._changed.wait()
        await self._around.steps.starting(self._assigned, controller)

    async def _start(self, controller: Controller, *, at_once: bool) -> None:
        starting = self._next(TaskState.STARTING, "starting")
        await self._write(starting)
        self._publish(starting, passing=True)
        await self._pause()
        await (controller.run() if at_once else controller.start())

    def _refused(self, error: HostError, *, may_have_run: bool) -> TaskStatus:
        state = TaskState.FAILED if may_have_run else TaskState.REJECTED
        code = error.exit_code if may_have_run and isinstance(error, ExecutorError) else None
        end = self._next(state, message=self._status.message, err=str(error), exit_code=code)
        return msgspec.structs.replace(end, conflicts=error.conflicts) if isinstance(error, AddressTaken) else end

    async def _watch(self, controller: Controller) -> TaskStatus:
        """The command has been started, perhaps by an earlier life of this agent: see how it ends."""
        if controller.phase == "started":
            self._publish(self._next(TaskState.RUNNING, "started", pid=controller.pid))
        try:
            exit_status = await controller.wait()
        except HostError as error:
            return self._next(TaskState.FAILED, err=str(error))
        if exit_status.code == 0:
            return self._next(TaskState.COMPLETE, message="finished", exit_code=0)
        err = f"task: non-zero exit ({exit_status.code})" + (f": {exit_status.reason}" if exit_status.reason else "")
        return self._next(TaskState.FAILED, message="started", err=err, exit_code=exit_status.code)

    async def _stop(self) -> TaskStatus:
        controller = self._controller
        if controller is None or controller.phase == "new":
            return self._next(TaskState.SHUTDOWN, message="shutdown before it was started")
        exit_status: ExitStatus | None = None

        async def stop() -> None:
            nonlocal exit_status
            exit_status = await controller.stop(links_first=self._links_first)

        async with trio.open_nursery() as nursery:
            if not self._links_first:
                nursery.start_soon(self._hurry_links)
            await self._insist("stop", stop)
            nursery.cancel_scope.cancel()
        code = exit_status.code if exit_status is not None else None
        return self._next(TaskState.SHUTDOWN, message="shutdown", exit_code=code)

    async def _hurry_links(self) -> None:
        """A stop is under way with its grace; when the links turn out to be urgent, do not wait for its end."""
        while not self._links_first:
            await self._changed.wait()
        await self._take_links_down()

    async def _bury(self, end: TaskStatus) -> None:
        """The task is over: make it so on this host, then say so. In this order, see above."""
        controller = self._controller
        self._around.admission.stopping(self._assigned.id)
        await self._take_links_down()
        if controller is not None and controller.phase in ("prepared", "started"):
            # It never came to its start, or we lost sight of it without having stopped it: a defect of ours.
            await self._insist("stop", lambda: controller.stop(links_first=True))
        await self._undo_steps()
        try:
            await self._write(end)
        except DiskError as error:
            # The word must get out: room and addresses hang on it. After a restart the executor will tell us the same.
            self._log.warning("the end of the task was not written", reason=str(error))
        self._publish(end)
        self._around.admission.release(self._assigned.id)
        if controller is not None:
            await self._insist("remove", controller.remove)

    # --- its tools ---------------------------------------------------------------------------------------------------

    @property
    def _must_stop(self) -> bool:
        return self._dropped or self._assigned.desired_state >= TaskState.SHUTDOWN or self._assigned.state.is_terminal

    @property
    def _address_grants(self) -> list[AddressGrant]:
        return [grant for grant in self._assigned.grants if isinstance(grant, AddressGrant)]

    def _stop_soon(self, *, links_first: bool) -> None:
        self._links_first = self._links_first or links_first
        self._around.admission.stopping(self._assigned.id)
        self._way_up.cancel()

    def _lapse(self) -> None:
        """The lease has passed: the shim has taken the links down (and stopped a fenced task)."""
        if (self._assigned.fence or self._address_grants) and not self._must_stop:
            self._lapsed = True
            self._stop_soon(links_first=True)

    async def _pause(self) -> None:
        """Before a step that cannot be taken back: not while the machine is paused, nor once a stop is wanted."""
        await self._around.host.running()
        await trio.lowlevel.checkpoint_if_cancelled()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _take_links_down(self) -> None:
        """Return when no address of the task answers any more."""
        if self._controller is not None:
            netlink, has = self._around.host.netlink, bool(self._address_grants)
            down = partial(take_links_down, self._controller, netlink, self._log, has_addresses=has)
            await self._insist("take the links down", down)

    async def _undo_steps(self) -> None:
        await self._insist("undo what this node did for the task", lambda: self._around.steps.ended(self._assigned.id))

    async def _insist(self, what: str, step: Callable[[], Awaitable[object]]) -> None:
        await insist(what, step, self._log)

    async def _write(self, status: TaskStatus) -> None:
        await self._around.state.save(TaskRecord(assigned=self._assigned, status=status))

    def _next(
        self, state: TaskState, message: str = "failed", *, err: str = "", exit_code: int | None = None, pid: int = 0
    ) -> TaskStatus:
        """The status that follows: never a lower state, always a later time."""
        at_s = max(self._around.host.wall_now_s(), self._status.at_s + 1e-6)
        known = self._assigned.state
        state = max(state, self._status.state, TaskState.NEW if known.is_terminal else known)
        return TaskStatus(state=state, message=message, err=err, at_s=at_s, exit_code=exit_code, pid=pid)

    def _pass(self, state: TaskState, message: str) -> None:
        """Report a state that the task leaves at once by itself, unless no more is desired yet."""
        self._publish(self._next(state, message), passing=self._assigned.desired_state > state)

    def _publish(self, status: TaskStatus, *, passing: bool = False) -> None:
        self._status = status
        self._around.reporter.report(self._assigned.id, status, passing=passing)
        say = self._log.debug if passing else self._log.info
        say("task status", state=status.state.name, message=status.message, err=status.err)


__all__ = ["TaskLife"]
