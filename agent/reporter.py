"""Statuses on their way to the manager.

Theory of operation
-------------------
A task's state is a Lamport clock, so only its newest status matters: a status that is overtaken before it was sent is
never sent. What was sent is kept until the manager says that it is durable. A new session starts from nothing: the newest
status of every task is sent again, whether the manager had confirmed it or not, because it may be another manager or one
that was restored. A task that is forgotten stays here until its last status is confirmed.
"""

from __future__ import annotations

import math
from collections import deque

import trio

from beeyard.core.model import TaskStatus
from beeyard.core.wire import StatusReport, TaskReport

# 1,000 statuses are about 100 kB: a small frame, and few of them for any node.
REPORTS_PER_MESSAGE = 1000
# Messages on the way at once. More would only queue up in the manager, where they can no longer be coalesced.
IN_FLIGHT_MAX = 4
# 0.1 s: what a task passes sooner no person sees, and an idle node prepares and starts one in a tenth of it.
PASSING_S = 0.1


class Reporter:
    """Collects the statuses of one node's tasks and hands them to the session, in order per task."""

    def __init__(self, coalesce_s: float) -> None:
        self._coalesce_s = coalesce_s
        self._newest: dict[str, TaskStatus] = {}
        self._unsent: dict[str, TaskStatus] = {}
        self._in_flight: deque[StatusReport] = deque()
        self._forgotten: dict[str, None] = {}
        self._asked = False
        self._number = 0
        self._due_s = math.inf  # when what there is to say should be sent
        self._nap = trio.CancelScope()  # of who waits in `next`

    def report(self, task_id: str, status: TaskStatus, *, passing: bool = False) -> None:
        """Take note of a task's newest status; it is sent soon, in passing a little later. Never lowers what was reported."""
        before = self._newest.get(task_id)
        assert before is None or status.state >= before.state, (task_id, before, status)
        self._newest[task_id] = status
        self._unsent[task_id] = status
        self._forgotten.pop(task_id, None)
        self._send_in(PASSING_S if passing else self._coalesce_s)

    def forget(self, task_id: str) -> None:
        """The task is gone from this node: drop it once its last status is confirmed."""
        if task_id in self._newest:
            self._forgotten[task_id] = None
            self._drop_confirmed()

    def status(self, task_id: str) -> TaskStatus | None:
        """The newest status of a task, for as long as it is kept."""
        return self._newest.get(task_id)

    @property
    def all_confirmed(self) -> bool:
        """Whether a manager has stored all that was reported."""
        return not self._unsent and not self._in_flight

    def ask(self) -> None:
        """Send a message even if there is nothing to say: its confirmation shows that the manager is there."""
        self._asked = True
        self._send_in(self._coalesce_s)

    def restart(self) -> None:
        """A new session has begun: everything is to be sent again."""
        self._in_flight.clear()
        self._asked = False
        self._unsent = dict(self._newest)
        self._due_s = math.inf
        if self._unsent:
            self._send_in(self._coalesce_s)

    def acknowledge(self, number: int) -> None:
        """Every message up to this number is durable."""
        while self._in_flight and self._in_flight[0].number <= number:
            self._in_flight.popleft()
        self._drop_confirmed()
        self._nap.deadline = self._free_s

    async def next(self) -> StatusReport:
        """The next message to send, coalesced; waits while there is nothing to say or too much is unconfirmed."""
        while True:
            with trio.CancelScope(deadline=self._free_s) as self._nap:
                await trio.sleep_forever()
            if self._free_s <= trio.current_time():
                return self._message()

    def _message(self) -> StatusReport:
        self._asked = False
        self._number += 1
        chosen = list(self._unsent)[:REPORTS_PER_MESSAGE]
        reports = tuple(TaskReport(task_id=task_id, status=self._unsent.pop(task_id)) for task_id in chosen)
        message = StatusReport(number=self._number, reports=reports)
        self._in_flight.append(message)
        self._due_s = trio.current_time() if self._unsent else math.inf
        return message

    @property
    def _free_s(self) -> float:
        """When the next message may go."""
        return self._due_s if len(self._in_flight) < IN_FLIGHT_MAX else math.inf

    def _send_in(self, seconds: float) -> None:
        """There is something to say, which may wait for so long."""
        due_s = trio.current_time() + seconds
        if due_s < self._due_s:
            self._due_s = due_s
            self._nap.deadline = self._free_s

    def _drop_confirmed(self) -> None:
        if not self._forgotten:
            return
        open_ids = {report.task_id for message in self._in_flight for report in message.reports} | set(self._unsent)
        for task_id in [task_id for task_id in self._forgotten if task_id not in open_ids]:
            del self._forgotten[task_id]
            del self._newest[task_id]


__all__ = ["Reporter"]
