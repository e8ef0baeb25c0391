"""A simulated machine's kernel and tasks: the fakes of `Netlink` and `Executor`, tied to the life of the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from beeyard.core.model import Link
from beeyard.core.wire import AssignedTask
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.fake_executor import Behaviour, FakeExecutor, FakeTasks
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import Executor, Netlink
from beeyard.runtime.sim import SimMachine
from beeyard.runtime.sim_life import Life

_READS = (nl.RTM_GETLINK, nl.RTM_GETADDR, nl.RTM_GETROUTE)


class FakeParts:
    """`MachineParts` for a machine that runs tasks. Pass `FakeParts` itself, or a function that makes one, to `SimWorld`.

    Args:
        machine: whose parts they are.
        links: the machine's own links besides its loopback; None: one named eth0 with the machine's address.
        kinds: the kinds of link that its kernel can create.
        script: how each task behaves; None: it runs until it is stopped.
    """

    def __init__(
        self,
        machine: SimMachine,
        *,
        links: Sequence[Link] | None = None,
        kinds: tuple[str, ...] = ("macvlan",),
        script: Callable[[AssignedTask], Behaviour] | None = None,
    ) -> None:
        own = (Link(name="eth0", mtu=1500, up=True, addresses=(f"{machine.ip}/16",)),)
        self.kernel = FakeKernel(own if links is None else links, kinds, seed=machine.name)
        # Called after each request that may have changed the kernel: what checks a whole LAN hangs on here.
        self.on_change: Callable[[], None] = _nothing
        if script is None:
            self.tasks = FakeTasks(self.kernel, running=machine.switch.running)
        else:
            self.tasks = FakeTasks(self.kernel, script=script, running=machine.switch.running)

    def netlink(self) -> Netlink:
        """See `MachineParts.netlink`."""
        return _WatchedKernel(self)

    def executors(self, life: Life) -> Sequence[Executor]:
        """See `MachineParts.executors`."""
        executor = FakeExecutor(self.kernel, self.tasks)
        life.at_end(executor.crash)
        return (executor,)

    def power_cut(self) -> None:
        """See `MachineParts.power_cut`."""
        self.tasks.power_cut()
        self.kernel.reboot()


class _WatchedKernel:
    """The kernel's port, which tells of changes."""

    def __init__(self, parts: FakeParts) -> None:
        self._parts = parts
        self._kernel = parts.kernel
        self.send_frame = self._kernel.send_frame
        self.ask = self._kernel.ask
        self.netns_fd = self._kernel.netns_fd

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        try:
            return await self._kernel.request(message, netns)
        finally:
            # The type is after the length in the first message's header.
            if int.from_bytes(message[4:6], sys.byteorder) not in _READS:
                self._parts.on_change()


def _nothing() -> None:
    """What nobody watches."""


__all__ = ["FakeParts"]
