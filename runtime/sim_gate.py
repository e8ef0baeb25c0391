"""Ports of one life around things that outlive it: the machine's kernel and its tasks.

Each call waits while the machine is paused, and fails once the daemon has crashed.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from beeyard.core.errors import ExecutorError
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller, Executor, ExitStatus, Netlink
from beeyard.runtime.sim_life import Life


class MachineParts(Protocol):
    """What lives on a machine beside its daemons: kernel and tasks. Survives a crash, dies with a power cut."""

    def netlink(self) -> Netlink:
        """The kernel's face for one life of a daemon."""

    def executors(self, life: Life) -> Sequence[Executor]:
        """Executors for one life of a daemon; they stop working when it ends."""

    def power_cut(self) -> None:
        """Everything that is not on disk is gone."""


class NoParts:
    """A machine without a network of its own and without tasks: enough for a manager."""

    def netlink(self) -> Netlink:
        """See `MachineParts.netlink`."""
        return _NoKernel()

    def executors(self, life: Life) -> Sequence[Executor]:
        """See `MachineParts.executors`."""
        return ()

    def power_cut(self) -> None:
        """See `MachineParts.power_cut`."""


class _NoKernel:
    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        raise OSError(errno.EOPNOTSUPP, "this simulated machine has no kernel")

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        raise OSError(errno.EOPNOTSUPP, "this simulated machine has no kernel")

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int = 1,
        groups: Sequence[bytes] = (),
    ) -> bytes | None:
        raise OSError(errno.EOPNOTSUPP, "this simulated machine has no kernel")

    def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AbstractAsyncContextManager[int]:
        raise OSError(errno.EOPNOTSUPP, "this simulated machine has no kernel")


class GatedNetlink:
    """`Netlink` of one life."""

    def __init__(self, life: Life, kernel: Netlink) -> None:
        self._life = life
        self._kernel = kernel

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        """See `Netlink.request`."""
        await self._enter()
        try:
            return await self._kernel.request(message, netns)
        finally:
            await self._enter()

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        """See `Netlink.send_frame`."""
        await self._enter()
        await self._kernel.send_frame(netns, interface, frame)

    async def ask(
        self,
        interface: str,
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int = 1,
        groups: Sequence[bytes] = (),
    ) -> bytes | None:
        """See `Netlink.ask`."""
        await self._enter()
        try:
            return await self._kernel.ask(interface, frames, is_answer, wait_s=wait_s, times=times, groups=groups)
        finally:
            await self._enter()

    @asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        """See `Netlink.netns_fd`."""
        await self._enter()
        async with self._kernel.netns_fd(netns, settings=settings, frames=frames) as fd:
            yield fd

    async def _enter(self) -> None:
        if not await self._life.gate():
            raise OSError(errno.ENODEV, "this machine has crashed")


class GatedExecutor:
    """`Executor` of one life."""

    def __init__(self, life: Life, executor: Executor) -> None:
        self._life = life
        self._executor = executor

    @property
    def name(self) -> str:
        """See `Executor.name`."""
        return self._executor.name

    @property
    def images(self) -> tuple[str, ...]:
        """See `Executor.images`."""
        return self._executor.images

    @property
    def log_drivers(self) -> tuple[str, ...]:
        """See `Executor.log_drivers`."""
        return self._executor.log_drivers

    def runs(self, image: str) -> bool:
        """See `Executor.runs`."""
        return self._executor.runs(image)

    async def recover(self) -> list[Controller]:
        """See `Executor.recover`."""
        await enter(self._life, "recover")
        return [GatedController(self._life, controller) for controller in await self._executor.recover()]

    async def create(self, task: AssignedTask, additions: Additions = NO_ADDITIONS) -> Controller:
        """See `Executor.create`."""
        await enter(self._life, "create")
        return GatedController(self._life, await self._executor.create(task, additions))


class GatedController:
    """`Controller` of one life."""

    def __init__(self, life: Life, controller: Controller) -> None:
        self._life = life
        self._controller = controller

    @property
    def task_id(self) -> str:
        """See `Controller.task_id`."""
        return self._controller.task_id

    @property
    def netns(self) -> str:
        """See `Controller.netns`."""
        return self._controller.netns

    @property
    def phase(self) -> str:
        """See `Controller.phase`."""
        return self._controller.phase

    @property
    def pid(self) -> int:
        """See `Controller.pid`."""
        return self._controller.pid

    @property
    def lapsed(self) -> bool:
        """See `Controller.lapsed`."""
        return self._controller.lapsed

    async def prepare(self) -> None:
        """See `Controller.prepare`."""
        await enter(self._life, "prepare")
        await self._controller.prepare()
        await enter(self._life, "prepare")

    async def start(self) -> None:
        """See `Controller.start`."""
        await enter(self._life, "start")
        await self._controller.start()
        await enter(self._life, "start")

    async def run(self) -> None:
        """See `Controller.run`."""
        await self.prepare()
        await self.start()

    async def wait(self) -> ExitStatus:
        """See `Controller.wait`."""
        await enter(self._life, "wait")
        status = await self._controller.wait()
        await enter(self._life, "wait")
        return status

    async def stop(self, *, links_first: bool = False) -> ExitStatus | None:
        """See `Controller.stop`."""
        await enter(self._life, "stop")
        status = await self._controller.stop(links_first=links_first)
        await enter(self._life, "stop")
        return status

    async def links_down(self) -> None:
        """See `Controller.links_down`."""
        await enter(self._life, "links_down")
        await self._controller.links_down()
        await enter(self._life, "links_down")

    async def renew_lease(self, remaining_s: float) -> None:
        """See `Controller.renew_lease`."""
        await enter(self._life, "renew_lease")
        await self._controller.renew_lease(remaining_s)

    async def remove(self) -> None:
        """See `Controller.remove`."""
        await enter(self._life, "remove")
        await self._controller.remove()


async def enter(life: Life, phase: str) -> None:
    """Wait while the machine is paused.

    Raises:
        ExecutorError: the daemon has crashed.
    """
    if not await life.gate():
        raise ExecutorError(phase, "this machine has crashed")


__all__ = ["GatedController", "GatedExecutor", "GatedNetlink", "MachineParts", "NoParts"]
