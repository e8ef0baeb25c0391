"""When things were seen of tasks, on a clock that cannot jump."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import trio

from beeyard.core.model import Task
from beeyard.core.slots import TaskTimes
from beeyard.core.states import RUNNING, TaskState
from beeyard.runtime.host import Host

# Over how long refusals for a taken address are counted.
TAKEN_WINDOW_S = 60.0


class TaskClock:
    """Times of tasks in trio's clock. Of what happened before this manager started, the stored wall clock tells.

    A wall clock that jumped in between can make such a time wrong: it counts as at most now, and delays start anew.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._times: dict[str, TaskTimes] = {}
        # By service and slot: when a task was refused because a stranger has its address. The tasks may be gone by then.
        self._taken: dict[str, dict[int, list[float]]] = {}

    def of(self, task: Task) -> TaskTimes:
        """When the task was created, first seen RUNNING and first seen ended; notes what is new in it."""
        times = self._times.get(task.id)
        state = task.status.state
        if times is None:
            changed_s = self._then_s(task.updated_at_s)
            times = TaskTimes(
                created_s=self._then_s(task.created_at_s),
                running_s=changed_s if state == TaskState.RUNNING else None,
                ended_s=changed_s if state.is_terminal else None,
            )
        elif state is RUNNING and times.running_s is None:
            times = TaskTimes(times.created_s, trio.current_time(), None)
        elif state > RUNNING and times.ended_s is None:
            times = TaskTimes(times.created_s, times.running_s, trio.current_time())
            if task.status.conflicts:
                self._note_taken(task)
        else:
            return times
        self._times[task.id] = times
        return times

    def _note_taken(self, task: Task) -> None:
        for service_id in list(self._taken):
            self.n_taken(service_id)  # of a service that is gone nobody asks any more
        self._taken.setdefault(task.service_id, {}).setdefault(task.slot, []).append(trio.current_time())

    def n_taken(self, service_id: str) -> Mapping[int, int]:
        """By slot: how many tasks of a service were refused lately because a stranger has their address."""
        slots = self._taken.get(service_id)
        if slots is None:
            return {}
        since_s = trio.current_time() - TAKEN_WINDOW_S
        recent = {slot: [at_s for at_s in times if at_s > since_s] for slot, times in slots.items()}
        self._taken[service_id] = {slot: times for slot, times in recent.items() if times}
        if not self._taken[service_id]:
            del self._taken[service_id]
        return {slot: len(times) for slot, times in recent.items()}

    def forget(self, task_id: str) -> None:
        """The task is gone. Idempotent."""
        self._times.pop(task_id, None)

    def _then_s(self, wall_s: float) -> float:
        return trio.current_time() - max(0.0, self._host.wall_now_s() - wall_s)


class TimesOf(Mapping[str, TaskTimes]):
    """The times of tasks by their ids, found when they are asked for: few of them are, at each look at a service."""

    def __init__(self, clock: TaskClock, tasks: Mapping[str, Task]) -> None:
        self._clock = clock
        self._tasks = tasks

    def __getitem__(self, task_id: str) -> TaskTimes:
        return self._clock.of(self._tasks[task_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)
