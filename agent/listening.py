"""What listens on this node that no task published: told to the manager so that it is not given away.

Told only once it lasts, since every new word about a node ends plans that were made on the old one: a port is added when two
looks in a row have found it, and taken out when two have not. The first look counts by itself, and so does a task that met
one: it would be sent here again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from beeyard.core.model import HostPort
from beeyard.runtime.host import Sockets

# 40 KiB of a description, far above what a host has; more would not be told.
PORTS_MAX = 4000


class Listeners:
    """Foreign listeners of this host.

    Args:
        sockets: of this host.
        own: the ports that belong to its tasks, which do not count.
    """

    def __init__(self, sockets: Sockets, own: Callable[[], Collection[HostPort]]) -> None:
        self._sockets = sockets
        self._own = own
        self._told: tuple[HostPort, ...] = ()
        self._before: frozenset[HostPort] | None = None  # in the look before
        self.on_met: Callable[[], None] = _nobody_asks

    def met(self, port: HostPort) -> None:
        """A task could not have a port because something else listens on it: tell that soon."""
        if port not in self._told:
            self._told = tuple(sorted((*self._told, port)))
            self._before = (self._before or frozenset()) | {port}
            self.on_met()

    async def look(self) -> tuple[HostPort, ...]:
        """Look, and give what is to be told now, sorted."""
        own = self._own()
        now = frozenset(port for port in await self._sockets.listening() if port not in own)
        before = now if self._before is None else self._before
        told = {port for port in self._told if port not in own}
        self._told = tuple(sorted((now & before) | (told & (now | before))))[:PORTS_MAX]
        self._before = now
        return self._told


def _nobody_asks() -> None:
    """What nobody waits for."""


__all__ = ["Listeners"]
