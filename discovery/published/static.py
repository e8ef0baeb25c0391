"""`nodes://`: a list that is written in the URL itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from beeyard.core.errors import Unsupported
from beeyard.discovery.published.backend import OTHERS, Contents, Lease


class StaticBackend:
    """`Backend` of entries that never change."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._contents: Contents = {OTHERS: tuple(entries)}

    async def read(self) -> Contents:
        """See `Backend.read`."""
        await trio.lowlevel.checkpoint()
        return self._contents

    async def follow(self, seen: Callable[[Contents], None]) -> None:
        """See `Backend.follow`."""
        seen(self._contents)
        await trio.sleep_forever()

    async def lease(self, owner: str, ttl_s: float) -> Lease:
        """See `Backend.lease`."""
        raise Unsupported("publishing at nodes://", "name a file, a server or a token")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await trio.lowlevel.checkpoint()


__all__ = ["StaticBackend"]
