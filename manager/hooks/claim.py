"""The claim hook: which of its node's generic resources a task gets, once the node is known."""

from __future__ import annotations

from collections.abc import Callable

import trio

from beeyard.core.claims import ClaimBook, ResourcesTaken
from beeyard.core.errors import HookRefused
from beeyard.core.grant import AnyGrant, ResourceGrant
from beeyard.core.model import Node, Task
from beeyard.manager.hooks.hook import Hook, Stage, Window

NAME = "claim"
# The book is in memory and answers at once; the deadline is only reached on a machine that stands still.
DEADLINE_S = 30.0


def claim_hook(book: ClaimBook, new_id: Callable[[], str]) -> Hook:
    """Make the hook.

    Args:
        book: What was claimed by whom.
        new_id: For grants.
    """

    async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        """No checkpoint after the claim, so cancellation finds nothing half done."""
        await trio.lowlevel.checkpoint()
        assert node is not None
        grant_id = new_id()
        try:
            asked = task.spec.reservations.generic_amounts
            claims = book.claim(node.id, grant_id, node.description.resources.generic, asked)
        except ResourcesTaken as error:
            raise HookRefused(NAME, "node", str(error)) from error
        return (ResourceGrant(id=grant_id, hook=NAME, resources=claims),)

    def release(grant: AnyGrant, used: bool) -> None:
        book.release(grant.id)

    def restore(task: Task, grant: AnyGrant) -> None:
        assert isinstance(grant, ResourceGrant), f"grant {grant.id} of task {task.id} is none of resources"
        book.restore(task.node_id, grant.id, grant.resources)

    return Hook(
        name=NAME,
        window=Window(Stage.SCHEDULED, Stage.ASSIGNED),
        deadline_s=DEADLINE_S,
        applies=lambda task: bool(task.spec.reservations.generic),
        reserve=reserve,
        release=release,
        restore=restore,
    )
