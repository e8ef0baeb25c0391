"""Gives back to plugins what nobody uses any more, until they acknowledge it.

Theory of operation
-------------------
What has to be given back follows from the store: a lease whose task has ended, is gone or never had the grant. So nothing is
written when a grant is released; the manager that is running remembers it here, and the next one finds it out anew.

* An address that an agent may have used rests first, so that the plugin does not hand it out while neighbours still know it.
* Of a lease in doubt (the plugin was asked and nobody knows what it gave) the question is repeated word by word: a plugin
  that knows leases by their `beeyard.lease.id`, or by a MAC address, gives the same address again, which then goes back.
  Any other gives a new one, which goes back too; what it gave before stays in its books.
* A release whose acknowledgement was lost is repeated while nobody asks for addresses of that pool, because the plugin may
  have handed the address out anew: a late repetition would take it from its new owner. So is the first release of an
  address of which a plugin that was told everything again did not say that it is the lease's.
* A plugin that is out is tried as often as its `Desk` says. One that *answers* with an error for an hour is believed that it
  knows nothing of the address, and that is logged: it may have lost its books.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
from functools import partial

import structlog
import trio

from beeyard.core.address_pool import TIME_ERROR_S
from beeyard.core.ipam import AddressLease, LeaseState, PoolLease
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.ipam.answer import read_address, says_exhausted
from beeyard.manager.ipam.desk import PAUSE_S, PAUSE_S_MAX, Desk
from beeyard.manager.ipam.fault import FaultKind, PluginFault, quote
from beeyard.manager.ipam.leases import Leases
from beeyard.manager.ipam.plugin import PoolId

# How often a plugin has to say that it has no address left before a repeated question is settled: had it given one, it would
# have given that again.
DOUBTS_MAX = 5
# For how long a plugin may answer "no" to a repeated question or to a release before it is believed. A shorter time would
# believe one that refuses everything while its own database is being repaired.
BELIEVED_AFTER_S = 3600.0
# How often a lease whose address is put aside is looked at: an operator may take the address back before its time.
LOOK_S = 30.0
# Past this an operator hears of addresses that were not taken back.
LATE_S = 60.0

log = structlog.get_logger(__name__)


class _Entry:
    """One lease on its way back."""

    def __init__(self, due_s: float, *, sure: bool, repeated: bool) -> None:
        self.due_s = due_s
        self.first_s = due_s  # when it was to be given back
        self.sure = sure  # the plugin was never asked, or said no
        self.repeated = repeated  # a release may have arrived before
        self.n_refused = 0

    @property
    def is_believed(self) -> bool:
        """Whether the plugin has said "no" for so long that it will never say anything else."""
        return self.first_s + BELIEVED_AFTER_S < trio.current_time()


class _Later(Exception):
    """Not before this time."""

    def __init__(self, due_s: float) -> None:
        super().__init__(due_s)
        self.due_s = due_s


class GiveBack:
    """What goes back to one plugin. `run` must be running."""

    def __init__(self, desk: Desk, leases: Leases, ledger: AddressLedger, n_max: int) -> None:
        self._desk = desk
        self._leases = leases
        self._ledger = ledger
        self._entries: dict[str, _Entry] = {}  # by lease
        self._heap: list[tuple[float, str]] = []
        self._places = trio.Semaphore(n_max)
        self._changed = trio.Event()

    def put(self, lease_id: str, due_s: float, *, sure: bool = False, repeated: bool = False) -> None:
        """Give a lease back at this time. Idempotent."""
        if lease_id not in self._entries:
            self._entries[lease_id] = _Entry(due_s, sure=sure, repeated=repeated)
            self._push(lease_id, due_s)

    def n_late(self, now_s: float) -> int:
        """How many leases should have been taken back a while ago."""
        return sum(entry.first_s + LATE_S < now_s for entry in self._entries.values())

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._places.acquire()
                while not self._heap or self._heap[0][0] > trio.current_time():
                    self._changed = trio.Event()
                    with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                        await self._changed.wait()
                nursery.start_soon(self._give_back, heapq.heappop(self._heap)[1])

    def _push(self, lease_id: str, due_s: float) -> None:
        heapq.heappush(self._heap, (due_s, lease_id))
        self._changed.set()

    async def _give_back(self, lease_id: str) -> None:
        entry = self._entries[lease_id]
        try:
            lease = self._leases.get(lease_id)
            if lease is not None:
                await self._settle(lease, entry)
            del self._entries[lease_id]
        except _Later as later:
            self._push(lease_id, later.due_s)
        except PluginFault as fault:
            self._desk.failed(fault)
            entry.n_refused += not fault.is_outage
            pause_s = min(PAUSE_S * 2 ** min(entry.n_refused, 10), PAUSE_S_MAX)
            self._push(lease_id, max(trio.current_time() + pause_s, self._desk.out_until_s))
        except Exception:
            # A firebreak, as in `ask`: it stays on its way back.
            log.exception("giving back to an IPAM plugin failed", plugin=self._desk.plugin.name, lease=lease_id)
            self._push(lease_id, trio.current_time() + PAUSE_S_MAX)
        finally:
            self._places.release()

    async def _settle(self, lease: AddressLease, entry: _Entry) -> None:
        pool = self._leases.pool(lease.pool_id)
        if pool is None or (entry.sure and not lease.addresses):
            await self._leases.forget(lease)
            return
        if lease.state is LeaseState.ASKING and not entry.sure:
            lease = await self._ask_again(lease, entry)
        # What a stranger on the LAN has is put aside for long, and the plugin must not hand it out meanwhile.
        rests_s = max((self._ledger.rests_until_s(lease.pool_id, a) for a in lease.addresses), default=-math.inf)
        if rests_s > trio.current_time() + TIME_ERROR_S:
            entry.first_s = rests_s
            raise _Later(min(rests_s, trio.current_time() + LOOK_S))
        for address in lease.addresses:
            await self._release(lease, partial(self._leases.part_id, pool.id, _part_of(pool, address)), address, entry)
        if not lease.addresses:
            await self._leases.forget(lease)

    async def _ask_again(self, lease: AddressLease, entry: _Entry) -> AddressLease:
        """The lease with what the plugin says that it has."""
        pool = self._leases.pool(lease.pool_id)
        assert pool is not None
        found = list(lease.addresses)
        for i, part in enumerate(pool.parts[len(found) :], len(found)):
            part_id = partial(self._leases.part_id, pool.id, i)
            try:
                async with self._desk.turn(lease.pool_id):
                    answer = await self._desk.plugin.request_address(part_id, lease.options)
            except PluginFault as fault:
                settled = entry.n_refused >= DOUBTS_MAX and says_exhausted(fault.reason)
                if fault.is_outage or not (settled or entry.is_believed):
                    raise
                log.warning("an IPAM plugin may keep an address", lease=lease.id, reason=str(fault))
                break
            self._desk.answered()
            address = read_address(answer)
            sane = address is not None and address.ip in ipaddress.ip_network(part.given)
            if sane and not self._leases.take(lease, str(address)):
                found.append(str(address))
            elif not entry.is_believed:
                reason = f"asked again, it gave {quote(answer)!r}, which cannot be"
                raise PluginFault(self._desk.plugin.name, FaultKind.JUNK, reason, in_doubt=True)
            else:
                log.warning("an IPAM plugin may keep an address", lease=lease.id, reason=f"it gives {answer!r}")
                break
        await self._leases.keep(lease, LeaseState.HELD, tuple(found))
        return self._leases.get(lease.id) or lease

    async def _release(self, lease: AddressLease, plugin_pool_id: PoolId, address: str, entry: _Entry) -> None:
        ip = address.partition("/")[0]
        self._leases.going_back[lease.id] = ip
        alone = entry.repeated
        try:
            if not entry.repeated:
                async with self._desk.turn("releases"):
                    await self._desk.plugin.activate()  # then it is known whether the address is in doubt
                    alone = self._leases.is_doubted(lease, ip)
                    if not alone:
                        await self._desk.plugin.release_address(plugin_pool_id, address)
            if alone:
                async with self._desk.alone(lease.pool_id):
                    if self._leases.going_back.get(lease.id) != ip:
                        return  # it was handed out anew while we waited
                    await self._desk.plugin.release_address(plugin_pool_id, address)
        except PluginFault as fault:
            if self._leases.going_back.get(lease.id) != ip:
                return
            entry.repeated = entry.repeated or fault.in_doubt
            if not fault.in_doubt:
                del self._leases.going_back[lease.id]
            if not (fault.kind is FaultKind.REFUSED and entry.is_believed):
                raise
            log.warning("an IPAM plugin knows nothing of an address", address=address, reason=str(fault))
        else:
            self._desk.took_back()
        await self._leases.gave_back(lease, address)


def _part_of(pool: PoolLease, address: str) -> int:
    """The part that an address came from; one of a family that was not asked for, from the first."""
    return next((i for i, part in enumerate(pool.parts) if part.v6 == (":" in address)), 0)


__all__ = ["GiveBack"]
