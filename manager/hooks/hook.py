"""A hook: what reserves something for a task, and in which window of the task's life.

Theory of operation
-------------------
A window (starts_at, finished_by) says that the hook is started when the task enters the first stage and that the task may
not enter the second before the hook has finished. Order and concurrency follow from the windows alone:

* (NEW, PENDING) comes before scheduling: a published port, a cluster volume;
* (NEW, ASSIGNED) and (PENDING, ASSIGNED) run beside scheduling: something slow that needs no node;
* (SCHEDULED, ASSIGNED) gets the node: an address on its LAN, a host port, a volume's publication.

`reserve` is all or nothing, also when it is cancelled. `release` is synchronous, idempotent and may not fail; a hook that
must talk to somebody to release writes down that it has to, and something else does the talking. A hook that raises
`HookRefused` says whether it refuses this node or the task anywhere. Any other `ClusterError` refuses the node if there is
one, else the task; an unexpected error is logged and refuses the task anywhere.

What a hook keeps in memory is gone with the manager. The next one tells each hook what is stored as granted (`restore`)
before it asks for anything new, and releases once more what ended tasks had.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Awaitable, Callable

from beeyard.core.grant import AnyGrant
from beeyard.core.model import Node, Task


class Stage(enum.IntEnum):
    """Where a task is on its way to a node. SCHEDULED is a stage of the plan in memory, never a stored state."""

    NEW = 0
    PENDING = 64
    SCHEDULED = 128
    ASSIGNED = 192


class Subject(enum.StrEnum):
    """What a hook reserves for. SERVICE is named so that a hook which needs it is refused instead of never run."""

    TASK = "task"
    SERVICE = "service"


@dataclasses.dataclass(frozen=True)
class Window:
    """When a hook starts and by when it must have finished."""

    starts_at: Stage
    finished_by: Stage

    def __post_init__(self) -> None:
        # Grants are stored when a task becomes PENDING or ASSIGNED, so that is where a window may end.
        assert self.starts_at < self.finished_by, f"window {self} is empty"
        assert self.finished_by in (Stage.PENDING, Stage.ASSIGNED), f"nothing is stored at {self.finished_by.name}"

    @property
    def has_node(self) -> bool:
        """Whether the node is known when the hook starts."""
        return self.starts_at >= Stage.SCHEDULED


@dataclasses.dataclass(frozen=True, eq=False)
class Hook:
    """One hook, as data."""

    name: str
    window: Window
    # Seconds that one reservation may take. Past it the room held for the task goes back, as if the hook had refused.
    deadline_s: float
    # Whether a task needs this hook at all.
    applies: Callable[[Task], bool]
    # The node is None when the window begins before SCHEDULED. Raises HookRefused.
    reserve: Callable[[Task, Node | None], Awaitable[tuple[AnyGrant, ...]]]
    # `used`: the grant was committed, so that an agent may have acted on it.
    release: Callable[[AnyGrant, bool], None]
    # Takes over a grant of its own that is stored with a task, after the manager was started anew. Called for every task that
    # has not ended, before anything is reserved. Synchronous, and may not fail.
    restore: Callable[[Task, AnyGrant], None]
    subject: Subject = Subject.TASK

    def __post_init__(self) -> None:
        assert self.subject is Subject.TASK, (
            f"hook {self.name} reserves for a {self.subject}: only hooks that reserve for a task are run"
        )
