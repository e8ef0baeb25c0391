"""A manager's own list: what gossip knows of the local cluster, put where others see it, and kept there.

Theory of operation
-------------------
* The list stands under a key of the manager's own, with a lease. It is renewed at each third of its time; a manager that
  dies leaves it behind until the lease has run out, one that is stopped takes it away.
* A change of the members is written at once; changes that follow within `GATHER_S` go together.
* An error is retried with the same lease, for ever. Only a lease that is known to be lost is replaced.
* A manager that has just started knows hardly anybody. For `settle_s` it publishes what its last life had published as well.
"""

from __future__ import annotations

import math
import random

import structlog
import trio

from beeyard.core.errors import HostError, PeerError
from beeyard.discovery.published.backend import Backend, Lease, LeaseLost, LocalMembers
from beeyard.discovery.published.union import BACK_OFF_MAX_S, BackOff

# Sixty members that join at once are one or two writes, and nobody waits noticeably longer.
GATHER_S = 0.2
# Gossip finds the peers that it knew before within a second, all others within some three.
SETTLE_S = 5.0
# For what a manager that stops may spend on taking its list away; afterwards the lease does it.
FAREWELL_S = 2.0

log = structlog.get_logger(__name__)


class Publisher:
    """See the module.

    Args:
        name: of the place, for the log.
        owner: of the list; the only manager of that name there.
        ttl_s: of the lease.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        members: LocalMembers,
        owner: str,
        rng: random.Random,
        *,
        ttl_s: float,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._backend = backend
        self._name = name
        self._members = members
        self._owner = owner
        self._ttl_s = ttl_s
        self._settle_s = settle_s
        self._back_off = BackOff(rng, min(BACK_OFF_MAX_S, ttl_s / 4))
        self._before: tuple[str, ...] = ()  # what our last life had published
        self._settled_at_s = math.inf
        self.published: tuple[str, ...] | None = None  # None: nothing yet
        self.error = ""  # why it is not published, or may run out; "": it is as it should be
        self.n_errors = 0
        self.n_writes = 0
        self.n_leases = 0

    @property
    def owner(self) -> str:
        """Under which name the list stands."""
        return self._owner

    async def run(self) -> None:
        """Publish until cancelled, then take the list away.

        Raises:
            Unsupported: nothing can be published there.
        """
        while True:
            try:
                if self._settled_at_s == math.inf:
                    await self._look_back()
                lease = await self._backend.lease(self._owner, self._ttl_s)
                self.n_leases += 1
                try:
                    await self._hold(lease)
                finally:
                    await self._give_up(lease)
            except (PeerError, HostError) as error:
                if isinstance(error, LeaseLost):
                    self._back_off.succeeded()  # the server answers
                self._fail(str(error))
                await self._back_off.pause()

    async def _look_back(self) -> None:
        try:
            self._before = (await self._backend.read()).get(self._owner, ())
        except HostError:
            self._before = ()  # a file that is still to be made
        self._settled_at_s = trio.current_time() + self._settle_s

    def _wanted(self) -> tuple[str, ...] | None:
        """What should be published; None: gossip has not started, and what is there stays."""
        known = self._members.members()
        if known is None:
            return None
        before = self._before if trio.current_time() < self._settled_at_s else ()
        return tuple(sorted({*known, *before}))

    async def _hold(self, lease: Lease) -> None:
        """Keep the list right. Raises LeaseLost."""
        written: tuple[str, ...] | None = None
        renew_at_s = trio.current_time() + self._ttl_s / 3
        while True:
            wanted = self._wanted()
            try:
                if wanted is not None and wanted != written:
                    await lease.put(wanted)
                    self.published = written = wanted
                    self.n_writes += 1
                    log.info("list published", url=self._name, owner=self._owner, n_nodes=len(wanted))
                    await trio.sleep(GATHER_S)
                if trio.current_time() >= renew_at_s:
                    await lease.renew()
                    renew_at_s = trio.current_time() + self._ttl_s / 3
            except LeaseLost:
                raise
            except (PeerError, HostError) as error:
                self._fail(str(error))
                renew_at_s = -math.inf  # at once, when it is possible again: much of its time may be over
                await self._back_off.pause()
                continue
            self._work()
            if self._wanted() in (None, written):
                settled_at_s = self._settled_at_s if trio.current_time() < self._settled_at_s else math.inf
                with trio.move_on_at(min(renew_at_s, settled_at_s)):
                    await self._members.changed()

    async def _give_up(self, lease: Lease) -> None:
        """When cancelled, take the list away; a lease that was lost is none any more."""
        with trio.move_on_after(FAREWELL_S, shield=True):
            try:
                await lease.revoke()
            except (PeerError, HostError) as error:
                log.warning("the list stays until its lease has run out", url=self._name, reason=str(error))

    def _fail(self, reason: str) -> None:
        self.n_errors += 1
        if reason != self.error:
            log.warning("cannot publish the list", url=self._name, owner=self._owner, reason=reason)
            self.error = reason

    def _work(self) -> None:
        self._back_off.succeeded()
        if self.error:
            log.info("the list is published again", url=self._name, owner=self._owner)
            self.error = ""


__all__ = ["FAREWELL_S", "GATHER_S", "SETTLE_S", "Publisher"]
