"""The step that asks the LAN, before anything of a task exists, whether its addresses are really free."""

from __future__ import annotations

from beeyard.agent.steps import Step
from beeyard.core.errors import AddressTaken
from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import is_routed
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import probe
from beeyard.runtime.host import NO_ADDITIONS, Additions, Netlink


class ProbeStep(Step):
    """Refuses a task whose address a machine outside the cluster has. It never trips over links of its own host."""

    def __init__(self, netlink: Netlink, wait_s: float) -> None:
        """`wait_s`: how long the LAN is listened to; 0: never."""
        self._netlink = netlink
        self._wait_s = wait_s

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`. Raises AddressTaken."""
        if self._wait_s <= 0:
            return NO_ADDITIONS
        # Where the host routes, neighbours ask for the host's own addresses and never for a task's.
        grants = [g for g in task.grants if isinstance(g, AddressGrant) and not is_routed(g.driver, g.mode)]
        wanted = [(grant.parent, address) for grant in grants for address in grant.addresses]
        if wanted and (taken := await probe.conflicts(self._netlink, wanted, self._wait_s)):
            raise AddressTaken(taken)
        return NO_ADDITIONS


__all__ = ["ProbeStep"]
