"""Groups that one pass of the kernel cannot place: with volumes that run out as tasks get them.

Each takes `spread`, which places as many of some tasks as fit at once, and gives what placing one task after another would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from beeyard.core.demand import Demand, Placed
from beeyard.core.volume import VolumeUse
from beeyard.core.volumes import VolumeTable

# (tasks, masked nodes) → where the first of the tasks go.
Spread = Callable[[Sequence[str], Collection[str]], list[Placed]]


def with_volumes(
    volumes: VolumeTable, demand: Demand, task_ids: Sequence[str], masked: Collection[str], spread: Spread
) -> list[Placed]:
    """Place tasks that mount cluster volumes, and reserve the volumes for them.

    Until a task more changes nothing for the next, each is placed alone: the volumes it gets may be gone or tied to its node.
    """
    placed: list[Placed] = []
    while len(placed) < len(task_ids):
        settled = volumes.are_settled(demand.volumes)
        left = task_ids[len(placed) :]
        some = spread(left if settled else left[:1], masked)
        chosen: dict[str, tuple[VolumeUse, ...]] = {}
        for task_id, where in zip(left, some, strict=False):
            uses = chosen.get(where.node_id) or volumes.choose(demand.volumes, where.node_id)
            assert uses is not None, f"task {task_id} was placed on {where.node_id} without its volumes"
            chosen[where.node_id] = uses
            volumes.reserve(task_id, where.node_id, uses)
            placed.append(msgspec.structs.replace(where, volumes=uses))
        if settled or not some:
            break
    return placed


__all__ = ["with_volumes"]
