"""The step that makes the VLAN sub-interfaces which tasks name as their parents, and takes them away again."""

from __future__ import annotations

from beeyard.agent.steps import Step
from beeyard.agent.use_count import UseCount
from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import Vlan, vlan_of
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import vlan
from beeyard.runtime.host import NO_ADDITIONS, Additions, Netlink


class VlanStep(Step):
    """Parents of the form NAME.ID exist while a task on this node needs them; those of others are left alone."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._uses = UseCount(self._remove)

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`."""
        self._note(task)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        for needed in self._note(task):
            async with self._uses.lock:
                await vlan.ensure(self._netlink, needed)
        return NO_ADDITIONS

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`."""
        await self._uses.leave(task_id)

    async def settle(self) -> None:
        """See `Step.settle`."""
        await self._uses.settle(await vlan.ours(self._netlink))

    def _note(self, task: AssignedTask) -> list[Vlan]:
        parents = dict.fromkeys(grant.parent for grant in task.grants if isinstance(grant, AddressGrant))
        needed = [parsed for parent in parents if (parsed := vlan_of(parent)) is not None]
        if needed:
            self._uses.need(task.id, [parsed.name for parsed in needed])
        return needed

    async def _remove(self, name: str) -> None:
        await vlan.remove(self._netlink, name)


__all__ = ["VlanStep"]
