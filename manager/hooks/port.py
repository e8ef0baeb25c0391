"""The port hook: the node's ports of a task that publishes some, once its node is known."""

from __future__ import annotations

from collections.abc import Callable

import trio

from beeyard.core.errors import HookRefused, PortsExhausted
from beeyard.core.grant import AnyGrant, PortGrant
from beeyard.core.host_ports import PortBook
from beeyard.core.model import Node, Task
from beeyard.manager.hooks.hook import Hook, Stage, Window

NAME = "port"
# The book is in memory and answers at once; the deadline is only reached on a machine that stands still.
DEADLINE_S = 30.0


def port_hook(book: PortBook, new_id: Callable[[], str]) -> Hook:
    """Make the hook.

    Args:
        book: What was chosen for whom; it shares its table of ports with placement.
        new_id: For grants.
    """

    async def reserve(task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        """No checkpoint after the reservation, so cancellation finds nothing half done."""
        await trio.lowlevel.checkpoint()
        assert node is not None
        grant_id = new_id()
        try:
            ports = book.reserve(node.id, grant_id, task.spec.ports, trio.current_time())
        except PortsExhausted as error:
            raise HookRefused(NAME, "node", str(error)) from error
        return (PortGrant(id=grant_id, hook=NAME, ports=ports),)

    def release(grant: AnyGrant, used: bool) -> None:
        book.release(grant.id, trio.current_time(), used=used)

    def restore(task: Task, grant: AnyGrant) -> None:
        assert isinstance(grant, PortGrant), f"grant {grant.id} of task {task.id} is none of ports"
        book.restore(task.node_id, grant.id, task.spec.ports, grant.ports)

    return Hook(
        name=NAME,
        window=Window(Stage.SCHEDULED, Stage.ASSIGNED),
        deadline_s=DEADLINE_S,
        applies=lambda task: bool(task.spec.ports),
        reserve=reserve,
        release=release,
        restore=restore,
    )
