"""Keeps the host's routes to tasks on other hosts as the manager wants them.

Theory of operation
-------------------
What is wanted comes from the manager alone; until it has spoken, whatever an earlier life of the agent left stays as it is,
for its tasks run on. From then on the kernel has exactly the wanted routes of ours and no other. A change is made as it
comes; every `LOOK_S` the kernel is read anew and put right, because routes go with a link that went down and do not come
back with it.

A route that cannot be made (its next hop is not on any subnet of the parent) is told once and tried again with every look; it
keeps no other waiting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import structlog
import trio

from beeyard.core.wire import HostRoute, Routes
from beeyard.netdrivers import routes as kernel
from beeyard.runtime.host import Netlink

# How long a route may be missing that somebody else took away.
LOOK_S = 15.0

log = structlog.get_logger(__name__)


class RouteKeeper:
    """All routes of this host that are ours."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._wanted: dict[str, HostRoute] | None = None  # None: no manager has spoken yet
        self._parts: list[Routes] = []
        self._changed: dict[str, None] = {}  # destinations to look at
        self._all_changed = True
        self._told = False  # whether this session's manager has spoken of routes, or had its chance
        self._have: dict[str, list[kernel.Way]] = {}  # as last read or made
        self._faults: dict[str, str] = {}  # by destination, as last logged
        self._wake = trio.Event()
        self._settling = trio.Lock()

    # --- what it is told; none of these blocks ---

    def begin_session(self) -> None:
        """A manager has welcomed us; it tells of all routes before the first set of tasks."""
        self._told = False
        self._parts.clear()

    def take(self, part: Routes) -> None:
        """A message about routes."""
        self._told = True
        self._parts.append(part)
        if part.more:
            return
        parts, self._parts = self._parts, []
        before = {} if self._wanted is None else self._wanted
        wanted = {} if part.complete else before
        for piece in parts:
            for destination in piece.removed:
                wanted.pop(destination, None)
                self._changed[destination] = None
            for route in piece.routes:
                wanted[route.destination] = route
                self._changed[route.destination] = None
        self._all_changed = self._all_changed or part.complete
        self._wanted = wanted
        self._wake.set()

    def assigned(self) -> None:
        """A set of tasks has come: had the manager routes for this host, they would have come before it."""
        if not self._told:
            self._told = True
            self.clear()

    def clear(self) -> None:
        """No route is wanted any more."""
        self._wanted = {}
        self._all_changed = True
        self._wake.set()

    # --- what it does ---

    async def run(self) -> None:
        """Keep the routes until cancelled; they stay."""
        while True:
            if self._wanted is not None:
                await self.settle()
            # What could not be read or taken away yet is tried again, also when nothing is wanted any more.
            quiet = self._wanted is None or not (self._wanted or self._have or self._all_changed)
            with trio.move_on_after(math.inf if quiet else LOOK_S) as waiting:
                await self._wake.wait()
            self._all_changed = self._all_changed or waiting.cancelled_caught

    async def abandon(self) -> None:
        """This node is no member any more: return when no route is left."""
        self.clear()
        await self.settle()

    async def settle(self) -> None:
        """Make what is wanted true now, as far as the kernel lets us."""
        async with self._settling:
            await self._settle()

    async def _settle(self) -> None:
        self._wake = trio.Event()
        changed, self._changed = self._changed, {}
        everything, self._all_changed = self._all_changed, False
        wanted = self._wanted or {}
        try:
            indices = await kernel.links(self._netlink) if wanted else {}
            if everything:
                self._have = await kernel.present(self._netlink)
                changed = dict.fromkeys((*self._have, *wanted))
        except OSError as error:
            log.warning("the routes of this host cannot be read", reason=error.strerror)
            self._all_changed = True
            return
        for destination in changed:
            await self._settle_one(destination, wanted.get(destination), indices)
        if everything and wanted:
            log.info("routes to tasks of other hosts", wanted=len(wanted), missing=len(self._faults))

    async def _settle_one(self, destination: str, wanted: HostRoute | None, indices: Mapping[str, int]) -> None:
        have = self._have.get(destination, [])
        keep: kernel.Way | None = None
        fault = ""
        try:
            if wanted is not None:
                keep = kernel.Way(indices.get(wanted.parent, 0), wanted.via)
                if keep not in have:
                    keep = await kernel.put(self._netlink, wanted, indices)
            for way in have:
                # One through the same link was replaced.
                if keep is None or way.link != keep.link:
                    await kernel.take_away(self._netlink, destination, way.link)
            self._have[destination] = [keep] if keep is not None else []
        except OSError as error:
            fault = error.strerror or str(error)
        except ValueError as error:
            fault = f"the manager sent what is no route: {error}"
        if not self._have.get(destination):
            self._have.pop(destination, None)
        self._tell(destination, wanted, fault)

    def _tell(self, destination: str, wanted: HostRoute | None, fault: str) -> None:
        if not fault:
            self._faults.pop(destination, None)
        elif self._faults.get(destination) != fault:
            self._faults[destination] = fault
            way = {} if wanted is None else {"via": wanted.via, "parent": wanted.parent, "node": wanted.node}
            log.warning("no route to a task on another host", destination=destination, reason=fault, **way)


__all__ = ["LOOK_S", "RouteKeeper"]
