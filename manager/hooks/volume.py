"""The volume hook: the cluster volumes that a task got when its node was chosen, as a grant."""

from __future__ import annotations

from collections.abc import Callable

import trio

from beeyard.core.errors import HookRefused
from beeyard.core.grant import AnyGrant, VolumeGrant
from beeyard.core.model import Node, Task
from beeyard.core.volumes import VolumeTable
from beeyard.manager.hooks.hook import Hook, Stage, Window

NAME = "volume"
# The table is in memory and answers at once; the deadline is only reached on a machine that stands still.
DEADLINE_S = 30.0


def volume_hook(volumes: VolumeTable, new_id: Callable[[], str]) -> Hook:
    """Make the hook.

    Args:
        volumes: Placement's: it reserves with a task's room, and gives back with it.
        new_id: For grants.
    """

    async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        await trio.lowlevel.checkpoint()
        assert node is not None
        uses = volumes.uses_of(task.id)
        if len(uses) != len(task.spec.volumes):
            source = task.spec.volumes[len(uses)].source
            raise HookRefused(NAME, "node", f"cannot find volume to satisfy mount with source {source}")
        return (VolumeGrant(id=new_id(), hook=NAME, uses=uses),)

    def give_back(grant: AnyGrant, used: bool) -> None:
        """Nothing: what a task has goes back with its room."""

    def restore(task: Task, grant: AnyGrant) -> None:
        """Nothing: what a task has is counted with its room."""
        assert isinstance(grant, VolumeGrant), f"grant {grant.id} of task {task.id} is none of volumes"

    return Hook(
        name=NAME,
        window=Window(Stage.SCHEDULED, Stage.ASSIGNED),
        deadline_s=DEADLINE_S,
        applies=lambda task: bool(task.spec.volumes),
        reserve=reserve,
        release=give_back,
        restore=restore,
    )
