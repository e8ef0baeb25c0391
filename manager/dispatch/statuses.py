"""What agents report of their tasks and hosts, on its way to the store.

Reports of all agents are collected for a short window and written in one commit; an agent gets its acknowledgement only
once that commit is durable. Per task only the newest status is kept, and per node the newest description, so the memory is
bounded whatever agents send and however slow the disk is.

A status is taken when it is of a task of the reporting node, in a state that an agent may report, and not lower than the
one that is stored. Everything else is dropped and acknowledged: repeating it would not make it right.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import islice

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Node, NodeDescription, Task, TaskStatus
from beeyard.core.states import ACCEPTED, REJECTED, TaskState, may_become
from beeyard.core.wire import StatusReport
from beeyard.manager.dispatch.session import Session
from beeyard.manager.store import Store, Transaction

# 10 ms: below what a user notices, and many reports fit into it when many tasks start at once.
WINDOW_S = 0.010
# Least time between the beginnings of two commits: each costs everybody who is told of it some 0.1 ms however little it says,
# and while thousands of tasks start there is always a little more. The first report after a quiet time does not wait for it.
COMMIT_GAP_S = 0.050
# A commit of this many updates holds the loop for some 10 ms.
BATCH = 2000
DISK_RETRY_S = 1.0
# Of `message` and `err`: more than any sentence needs; an agent cannot fill the store.
TEXT_CHARACTERS_MAX = 4096
MAC_CHARACTERS = 17

log = structlog.get_logger(__name__)


class StatusCollector:
    """Groups status reports of all sessions into commits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[str, TaskStatus] = {}
        self._descriptions: dict[str, NodeDescription] = {}
        self._acks: dict[Session, int] = {}
        self._committing: dict[Session, int] = {}  # acknowledgements that wait for the commit under way
        self._wake = trio.Event()

    def submit(self, session: Session, report: StatusReport) -> None:
        """Take a report of a session; the session is acknowledged later.

        An agent that only asks whether we are there hears at once, also while the disk hangs.
        """
        if not report.reports:
            waits = session in self._acks or session in self._committing
            session.acknowledge(0 if waits else report.number)
            if not waits:
                return
        tasks = self._store.tasks
        for item in report.reports:
            task = tasks.get(item.task_id)
            if task is None:
                continue
            if task.node_id != session.node_id:
                log.warning("status of another node's task dropped", node=session.node_id, task=item.task_id)
                continue
            known = self._pending.get(item.task_id, task.status)
            if ACCEPTED <= item.status.state <= REJECTED and may_become(known.state, item.status.state):
                self._pending[item.task_id] = _bounded(item.status, task)
        self._acks[session] = max(report.number, self._acks.get(session, 0))
        self._wake.set()

    def reject(self, task_id: str, status: TaskStatus) -> None:
        """Take a status that this manager itself gives to a task of which no agent can be told."""
        task = self._store.tasks.get(task_id)
        if task is not None and not task.status.state.is_terminal:
            self._pending[task_id] = status
            self._wake.set()

    def submit_description(self, session: Session, description: NodeDescription) -> None:
        """Take what a host has become."""
        self._descriptions[session.node_id] = description
        self._wake.set()

    def drop(self, session: Session) -> None:
        """The session has ended: nobody waits for its acknowledgement; what it reported is still written."""
        self._acks.pop(session, None)
        self._committing.pop(session, None)

    async def run(self) -> None:
        """Commit and acknowledge until cancelled."""
        began_s = -math.inf
        while True:
            await self._wake.wait()
            await trio.sleep_until(max(trio.current_time() + WINDOW_S, began_s + COMMIT_GAP_S))
            began_s = trio.current_time()
            self._wake = trio.Event()
            self._committing, self._acks = self._acks, {}
            stored = await self._commit_all()
            acks, self._committing = self._committing, {}
            if stored:
                for session, number in acks.items():
                    session.acknowledge(number)
            else:
                # Invariant: an entry that came meanwhile is of a later report.
                self._acks = {**acks, **self._acks}
                self._wake.set()
                await trio.sleep(DISK_RETRY_S)

    async def _commit_all(self) -> bool:
        """Write what was pending at the call; False when the disk refused: it is all still pending, or newer is."""
        return await self._commit_descriptions() and await self._commit_statuses()

    async def _commit_descriptions(self) -> bool:
        batch, self._descriptions = self._descriptions, {}
        if not batch:
            return True
        try:
            await self._store.commit(lambda tx: write_descriptions(tx, batch))
        except DiskError as error:
            log.error("descriptions of hosts not stored, trying again", error=str(error))
            self._descriptions = {**batch, **self._descriptions}
            return False
        return True

    async def _commit_statuses(self) -> bool:
        left = len(self._pending)
        while left > 0:
            batch = dict(islice(self._pending.items(), min(left, BATCH)))
            for task_id in batch:
                del self._pending[task_id]
            try:
                await self._store.commit(partial(write_statuses, statuses=batch))
            except DiskError as error:
                log.error("statuses not stored, trying again", error=str(error), statuses=len(batch))
                self._pending = {**batch, **self._pending}
                return False
            left -= len(batch)
        return True


def write_statuses(tx: Transaction, statuses: dict[str, TaskStatus]) -> None:
    """Store the statuses that still say something new."""
    for task_id, status in statuses.items():
        task = tx.tasks.get(task_id)
        if task is not None and task.status != status and may_become(task.status.state, status.state):
            tx.change(task, status=status)


def write_descriptions(tx: Transaction, descriptions: dict[str, NodeDescription]) -> None:
    """Store what hosts have become."""
    for node_id, description in descriptions.items():
        node = tx.get(Node, node_id)
        if node is not None and node.description != description:
            tx.update(msgspec.structs.replace(node, description=description))


def _bounded(status: TaskStatus, task: Task) -> TaskStatus:
    """What may be stored of a status: sentences of a sane length, and conflicts about the task's own addresses."""
    if status.conflicts:
        own = {a.partition("/")[0]: None for g in task.grants if isinstance(g, AddressGrant) for a in g.addresses}
        conflicts = {c.address: c for c in status.conflicts if c.address in own and len(c.mac) <= MAC_CHARACTERS}
        refused = status.state is TaskState.REJECTED
        status = msgspec.structs.replace(status, conflicts=tuple(conflicts.values()) if refused else ())
    if len(status.message) <= TEXT_CHARACTERS_MAX and len(status.err) <= TEXT_CHARACTERS_MAX:
        return status
    return msgspec.structs.replace(
        status, message=status.message[:TEXT_CHARACTERS_MAX], err=status.err[:TEXT_CHARACTERS_MAX]
    )
