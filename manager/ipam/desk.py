"""One plugin as the manager deals with it: calls in turn, whether it works at the moment, and when to try again.

Theory of operation
-------------------
A plugin that is missing, unreachable or hung is *out*: nobody is let through to it and whoever waits is told why at once,
so that an outage costs each of its tasks one look at memory. After a pause, doubled with each outage in a row, it is given
another chance, and the tasks that were refused are tried again; the first answer ends the outage. The same pause follows
other faults (a wrong address, an error), which concern one question alone. A plugin that is told everything again is greeted
then, whether or not anybody has a question left: until it is told, it may give away what tasks have.

A plugin is hung when the answer to one question takes too long, and also when nothing at all was answered for that long
while others wait for their turn: questions that are given up keep their place until the plugin answers or hangs up, so a
hung plugin has `calls_max` of them and no more.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
import trio

from beeyard.manager.config import IpamConfig
from beeyard.manager.ipam.fault import FaultKind, PluginFault
from beeyard.manager.ipam.plugin import Plugin
from beeyard.manager.ipam.turns import Turns

# The first pause after a fault, and the longest: a plugin that is restarted is back in a second or two, and one that is out
# for long costs one try of each waiting task so often.
PAUSE_S = 1.0
PAUSE_S_MAX = 30.0
# How long a plugin that had no address left for a node's pool is not asked for another one, unless it took one back.
EXHAUSTED_S = 5.0

log = structlog.get_logger(__name__)


class Desk:
    """See the module. `run` must be running. `retry` is told when tasks that were refused may be tried again."""

    def __init__(self, plugin: Plugin, config: IpamConfig, retry: Callable[[str], None]) -> None:
        self.plugin = plugin
        self.turns = Turns(config.calls_max)
        self.outage: PluginFault | None = None
        self._deadline_s = config.deadline_s
        self._retry = retry
        self._n_faults = 0  # in a row
        self._due_s = math.inf  # when to try again
        self._progress_s = -math.inf  # when something was answered last, or when there was nothing to wait for
        # By (pool, node): until when, and the reason; in order of time, without those whose time is over.
        self._exhausted: dict[tuple[str, str], tuple[float, str]] = {}
        self._changed = trio.Event()

    @property
    def key(self) -> str:
        """What `HookRefused.until` says."""
        return f"plugin {self.plugin.name}"

    async def run(self) -> None:
        """Watch over it, until cancelled."""
        async with trio.open_nursery() as nursery:
            await self._watch(nursery)

    async def _watch(self, nursery: trio.Nursery) -> None:
        while True:
            hung_s = self._progress_s + self._deadline_s if self.turns.is_full else math.inf
            with trio.move_on_at(min(self._due_s, hung_s)):
                await self._changed.wait()
            self._changed = trio.Event()
            now_s = trio.current_time()
            if self.turns.is_full and now_s >= self._progress_s + self._deadline_s:
                if self.turns.n_waiting:
                    self.failed(self.hung())
                self._progress_s = now_s
            if now_s >= self._due_s:
                self._due_s = math.inf
                self.outage = None
                self._retry(self.key)
                if self.plugin.capabilities.RequiresRequestReplay:
                    nursery.start_soon(self._greet)

    async def _greet(self) -> None:
        """See that it is told again what it gave, should it have lost that."""
        try:
            async with self.turn("greeting"):
                await self.plugin.activate()
        except PluginFault as fault:
            self.failed(fault)
        else:
            self.worked()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """A place among those who call.

        Raises:
            PluginFault: the plugin is out.
        """
        if self.outage is not None:
            raise self.outage
        if not self.turns.n_waiting:
            self._progress_s = trio.current_time()
        await self.turns.enter(key)
        try:
            if self.turns.is_full:
                self._wake()
            yield
        finally:
            self.turns.leave(key)

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """As `turn`, with nobody else inside who has this key."""
        if self.outage is not None:
            raise self.outage
        async with self.turns.alone(key):
            yield

    @property
    def out_until_s(self) -> float:
        """When it is tried again, if it is out; else long ago."""
        return self._due_s if self.outage is not None else -math.inf

    def hung(self) -> PluginFault:
        """What is said when it does not answer in time."""
        reason = f"no answer within {self._deadline_s:g} s"
        return PluginFault(self.plugin.name, FaultKind.HUNG, reason, in_doubt=True)

    def answered(self) -> None:
        """It said something, also late: whatever it was, it is there."""
        self._progress_s = trio.current_time()
        if self.outage is not None:
            self.outage = None
            self._due_s = trio.current_time()
            self._wake()

    def worked(self) -> None:
        """It did what it was asked for."""
        self.answered()
        self._n_faults = 0

    def failed(self, fault: PluginFault) -> None:
        """It did not. Of an outage everybody who waits is told."""
        if self.outage is not None:
            return  # others met it before
        now_s = trio.current_time()
        if fault.is_outage:
            self.outage = fault
            self.turns.refuse(fault)
            log.warning("IPAM plugin does not work", plugin=self.plugin.name, reason=fault.reason)
        else:
            self._progress_s = now_s
            if self.plugin.capabilities.RequiresRequestReplay:
                self.plugin.forget()  # it may have lost its books
        if self._due_s == math.inf:
            self._due_s = now_s + min(PAUSE_S * 2 ** min(self._n_faults, 10), PAUSE_S_MAX)
            self._n_faults += 1
            self._wake()

    def exhausted(self, pool_id: str, node_id: str) -> str:
        """The reason why a pool has nothing for a node, as the plugin said a moment ago; "" when it is to be asked."""
        until_s, reason = self._exhausted.get((pool_id, node_id), (-math.inf, ""))
        return reason if trio.current_time() < until_s else ""

    def note_exhausted(self, pool_id: str, node_id: str, reason: str) -> None:
        """It said so."""
        self.worked()
        now_s = trio.current_time()
        for key, (until_s, _) in list(self._exhausted.items()):
            if until_s > now_s:
                break
            del self._exhausted[key]
        self._exhausted.pop((pool_id, node_id), None)
        self._exhausted[pool_id, node_id] = (now_s + EXHAUSTED_S, reason)

    def took_back(self) -> None:
        """It has an address more than before: those who wait for one are tried again, soon and together."""
        self.worked()
        if self._exhausted:
            self._exhausted.clear()
            self._due_s = min(self._due_s, trio.current_time() + PAUSE_S)
            self._wake()

    def _wake(self) -> None:
        self._changed.set()


__all__ = ["EXHAUSTED_S", "PAUSE_S", "PAUSE_S_MAX", "Desk"]
