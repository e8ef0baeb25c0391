"""The step that lets this host and those of its tasks reach each other whose networks ask for it."""

from __future__ import annotations

from collections.abc import Iterator

from beeyard.agent.steps import Step
from beeyard.agent.use_count import UseCount
from beeyard.core.grant import AddressGrant
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import host_access
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller, Netlink


class HostAccessStep(Step):
    """A host-side link for each parent on which a task needs one, and the ways over it."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._uses = UseCount(self._remove)
        self._grants: dict[str, tuple[AddressGrant, ...]] = {}  # by task id

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`."""
        self._note(task)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        for _, grant in _asking(task):
            host_access.check(grant)
        return NO_ADDITIONS

    async def attached(self, task: AssignedTask, controller: Controller) -> None:
        """See `Step.attached`."""
        self._note(task)
        for interface, grant in _asking(task):
            async with self._uses.lock:
                await host_access.connect(self._netlink, controller.netns, grant, interface)

    def stands_between(self, task: AssignedTask) -> bool:
        """See `Step.stands_between`."""
        return any(_asking(task))

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`."""
        for grant in self._grants.get(task_id, ()):
            async with self._uses.lock:
                await host_access.disconnect(self._netlink, grant)
        await self._uses.leave(task_id)
        self._grants.pop(task_id, None)

    async def settle(self) -> None:
        """See `Step.settle`."""
        links = await host_access.ours(self._netlink)
        for link in links:
            async with self._uses.lock:
                # Not before: a task that is attached meanwhile keeps its way.
                wanted = {a.partition("/")[0] for grants in self._grants.values() for g in grants for a in g.addresses}
                await host_access.prune(self._netlink, link, wanted)
        await self._uses.settle(link.name for link in links)

    def _note(self, task: AssignedTask) -> None:
        grants = tuple(grant for _, grant in _asking(task))
        if grants:
            self._grants[task.id] = grants
            self._uses.need(task.id, [host_access.link_name(grant.parent) for grant in grants])

    async def _remove(self, name: str) -> None:
        await host_access.remove(self._netlink, name)


def _asking(task: AssignedTask) -> Iterator[tuple[str, AddressGrant]]:
    """The task's links that ask for host access, with their names in the task (see `agent.lifecycle`)."""
    addressed = (grant for grant in task.grants if isinstance(grant, AddressGrant))
    for position, grant in enumerate(addressed):
        if grant.host_access:
            yield f"eth{position}", grant


__all__ = ["HostAccessStep"]
