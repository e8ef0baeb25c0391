"""A plan, what waits for a commit, and how long refused tasks wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

import msgspec
import trio

from beeyard.core.demand import Findings
from beeyard.core.errors import HookRefused
from beeyard.core.grant import AddressGrant, AnyGrant, VolumeGrant
from beeyard.core.model import Network, Node, Task
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.states import PENDING, RUNNING, Availability
from beeyard.core.volume import Volume, VolumeUse
from beeyard.manager.blocked import Group
from beeyard.manager.hooks import HookRun, Stage
from beeyard.manager.store import View

T = TypeVar("T")

# How long a node that a hook refused is kept from a task's group, and how long a task that was refused everywhere rests.
MASK_S = 30.0
# Refusals of single nodes, in a row, after which a task rests too.
TRIES_MAX = 3
# Different reasons of hooks that are told at once.
REASONS_MAX = 3


class Plan(msgspec.Struct, eq=False):
    """A task for which a node is chosen and room is held. In memory only; ends in a commit or without a trace."""

    task: Task
    node: Node
    demand: Demand
    group: Group
    run: HookRun | None  # hooks that need the node, if any do
    early: HookRun | None  # hooks that began before
    started_s: float
    store_index: int  # when it was made; pools that were changed later are others than it counted with
    told: bool = False  # the task's message says that it waits for a hook
    committing: bool = False  # its fate is with the store now
    over: bool = False

    def _runs(self) -> tuple[HookRun, ...]:
        if self.run is None and self.early is None:
            return ()  # as of most tasks
        return tuple(run for run in (self.early, self.run) if run is not None)

    def waits_for(self) -> list[str]:
        """Names of the hooks that keep it from being stored."""
        return [name for run in self._runs() for name in run.waits_for(Stage.ASSIGNED)]

    def sentence(self) -> str:
        """Where the task is to go and what it waits for, for a person."""
        node_name = self.node.description.hostname or self.node.id
        hooks = ", ".join(self.waits_for())
        return f"planned on node {node_name}, waiting for {f'hook {hooks}' if hooks else 'the store'}"

    def grants(self) -> tuple[AnyGrant, ...]:
        """What is to be stored with the task."""
        return tuple(grant for run in self._runs() for grant in run.grants)

    @property
    def volumes(self) -> tuple[VolumeUse, ...]:
        """The cluster volumes that the task gets."""
        return tuple(use for grant in self.grants() if isinstance(grant, VolumeGrant) for use in grant.uses)

    def fault(self, view: View, index: PlacementIndex, findings: Findings | None = None) -> str:
        """Why it does not hold any more: "" while all that it was made on is as it was.

        Args:
            findings: of other plans, since when nothing in the index has changed.
        """
        task = view.tasks.get(self.task.id)
        if task is None or task.status.state is not PENDING or task.desired_state > RUNNING:
            return "the task is not wanted any more"
        # A task keeps the spec it was made of, so a newer version of its service does not matter: whoever wants the
        # task replaced says so in its desired state. See docs/adr/0009-a-plan-outlives-a-new-version-of-its-service.md.
        if task.service_id not in view.services:
            return "its service was removed"
        node = view.nodes.get(self.node.id)
        if node is None:
            return "the node was removed"
        # Any change counts: hooks were given the node as it was, and its labels decide which pools serve it.
        if node.version != self.node.version:
            return "the node has changed"
        for grant in self.grants():
            if isinstance(grant, AddressGrant):
                for network_id in (grant.network_id, grant.pool_id):
                    network = view.get(Network, network_id)
                    if network is None:
                        return f"network {grant.network_name} was removed"
                    if network.version > self.store_index:
                        return f"network {network.name} has changed"
        for use in self.volumes:
            volume = view.get(Volume, use.volume_id)
            # What else may have changed the index knows by now; a volume that others get too changes with each of them.
            if volume is None or volume.spec.availability is not Availability.ACTIVE:
                return f"cannot find volume to satisfy mount with source {use.source}"
        return index.feasible(self.demand, node.id, task_id=task.id, findings=findings)


class Queue(Generic[T]):
    """What waits to be committed, taken in batches."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._some = trio.Event()

    def put(self, item: T) -> None:
        """Add one at the end."""
        self._items.append(item)
        self._some.set()

    async def take(self, n_max: int) -> list[T]:
        """Wait for at least one, and for others that come in the same turn of the loop."""
        await self._some.wait()
        await trio.lowlevel.checkpoint()
        items = [self._items.popleft() for _ in range(min(n_max, len(self._items)))]
        if not self._items:
            self._some = trio.Event()
        return items


class _Wait(NamedTuple):
    due_s: float
    until: str  # what may end it before; "": nothing does
    reason: str = ""


class Patience:
    """Which nodes are masked for which groups, and which tasks rest, until when. Times are of trio's clock."""

    def __init__(self) -> None:
        self._masks: dict[Group, dict[str, _Wait]] = {}
        self._rests: dict[str, _Wait] = {}
        self._tries: dict[str, int] = {}
        self._said: dict[str, str] = {}  # by task: why it was refused last

    def refused_by_node(self, task_id: str, group: Group, node_id: str, refusal: HookRefused, now_s: float) -> bool:
        """Mask a node for a group; True when this was one refusal too many, and the task rests."""
        self._said[task_id] = str(refusal)
        self._masks.setdefault(group, {})[node_id] = _Wait(now_s + MASK_S, refusal.until, str(refusal))
        self._tries[task_id] = self._tries.get(task_id, 0) + 1
        if self._tries[task_id] < TRIES_MAX:
            return False
        self.refused_everywhere(task_id, str(refusal), now_s, refusal.until)
        return True

    def refused_everywhere(self, task_id: str, reason: str, now_s: float, until: str = "") -> None:
        """Let a task rest."""
        self._said[task_id] = reason
        self._tries.pop(task_id, None)
        self._rests[task_id] = _Wait(now_s + MASK_S, until)

    def forget(self, task_id: str) -> None:
        """The task was placed or is gone."""
        self._tries.pop(task_id, None)
        self._rests.pop(task_id, None)
        self._said.pop(task_id, None)

    def said(self, task_id: str) -> str:
        """Why a task that was not placed since was refused last; "" when it was not."""
        return self._said.get(task_id, "")

    def masked(self, group: Group) -> list[str]:
        """Nodes that a group must not be given now."""
        return list(self._masks.get(group, ()))

    def has_masks(self, group: Group) -> bool:
        """Whether there are nodes that a group must not be given now."""
        return group in self._masks

    def words(self, group: Group) -> str:
        """What hooks have said of the nodes that are masked for a group, each once."""
        reasons = dict.fromkeys(wait.reason for wait in self._masks.get(group, {}).values())
        return "; ".join(list(reasons)[:REASONS_MAX])

    def rests(self, task_id: str) -> bool:
        """Whether a task is not to be tried now."""
        return task_id in self._rests

    @property
    def resting(self) -> Collection[str]:
        """All tasks that are not to be tried now."""
        return self._rests.keys()

    def expire(self, now_s: float) -> bool:
        """End what is due; True when something was, so that trying again makes sense."""
        return self._keep(lambda wait: wait.due_s > now_s)

    def end(self, until: str) -> bool:
        """End what waits for this; True when something did."""
        self._tries.clear()  # what was refused before is no reason to rest now
        return self._keep(lambda wait: wait.until != until)

    def next_due_s(self) -> float | None:
        """When the next mask or rest ends."""
        masks = (wait.due_s for nodes in self._masks.values() for wait in nodes.values())
        return min((*(wait.due_s for wait in self._rests.values()), *masks), default=None)

    def _keep(self, holds: Callable[[_Wait], bool]) -> bool:
        n_before = len(self._rests) + sum(map(len, self._masks.values()))
        self._rests = {task_id: wait for task_id, wait in self._rests.items() if holds(wait)}
        masks = {
            group: {node_id: wait for node_id, wait in nodes.items() if holds(wait)}
            for group, nodes in self._masks.items()
        }
        self._masks = {group: nodes for group, nodes in masks.items() if nodes}
        return len(self._rests) + sum(map(len, self._masks.values())) < n_before
