"""One at a time, for little: a lock that costs a switch of tasks only when it is taken."""

from __future__ import annotations

import trio


class Turn:
    """As `trio.Lock`, but entering it is a full checkpoint only where it has to be waited for.

    That is for blocks that wait for something anyway: a lock of trio's then is a turn of its loop more, each time.
    Cancellation is noticed on entering in any case.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._lock.locked()


__all__ = ["Turn"]
