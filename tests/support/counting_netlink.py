"""A `Netlink` port around another one that counts what it is asked for, request by request, and fails the Nth."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import trio

from beeyard.runtime import netlink_format as nl
from beeyard.runtime.host import Netlink, RequestRefused


class CountingNetlink:
    """Passes everything on.

    Args:
        fail_at: number of the call (from 1) that fails with ENOBUFS instead of being passed on; 0: none.
        cancel_at: number of the call before which `scope` is cancelled; 0: none.
    """

    def __init__(self, inner: Netlink, *, fail_at: int = 0, cancel_at: int = 0) -> None:
        self.calls = 0
        self.scope = trio.CancelScope()
        self._inner = inner
        self._fail_at = fail_at
        self._cancel_at = cancel_at

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._cancel_at:
            self.scope.cancel()
        if self.calls == self._fail_at:
            raise RequestRefused(errno.ENOBUFS, "no buffer space available")

    async def request(self, message: bytes, netns: str = "") -> list[bytes]:
        replies: list[bytes] = []
        for position, part in enumerate(nl.split(message)):
            try:
                self._count()
                replies += await self._inner.request(nl.message(part.type, part.flags, part.payload), netns)
            except RequestRefused as error:
                error.position = position
                raise
        return replies

    async def send_frame(self, netns: str, interface: str, frame: bytes) -> None:
        self._count()
        await self._inner.send_frame(netns, interface, frame)

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
        self._count()
        return await self._inner.ask(interface, frames, is_answer, wait_s=wait_s, times=times, groups=groups)

    @contextlib.asynccontextmanager
    async def netns_fd(
        self, netns: str, *, settings: Mapping[str, str] = {}, frames: bool = False
    ) -> AsyncIterator[int]:
        self._count()
        async with self._inner.netns_fd(netns, settings=settings, frames=frames) as fd:
            yield fd
