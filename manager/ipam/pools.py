"""The pools of networks at their plugins: obtained while a network is created, given back after it was removed.

Theory of operation
-------------------
`create` stores the intent, asks, and stores the network together with what the plugin gave: a user sees a refusal at once,
and there is no network without its pools. What a creation that failed has left, and what a removed network had, is given back
by `run`: it looks for pools without a network, waits until all of their addresses have been taken back, and repeats until the
plugin acknowledges.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog
import trio

from beeyard.core.errors import FailedPrecondition, NameConflict
from beeyard.core.ipam import PoolLease, PoolPart
from beeyard.core.model import Network
from beeyard.manager.control.network import add_network, check_network
from beeyard.manager.ipam.desk import PAUSE_S, PAUSE_S_MAX, Desk
from beeyard.manager.ipam.fault import FaultKind, PluginFault
from beeyard.manager.ipam.give_back import BELIEVED_AFTER_S
from beeyard.manager.ipam.leases import Leases
from beeyard.manager.ipam.plugin import Plugin
from beeyard.manager.ipam.pool_request import GATEWAY_OPTIONS, PoolRequest
from beeyard.manager.store import Store, Transaction, Wakeups

# Deadlines of one answer within which all that a new network needs must be obtained: it is two or three questions.
PATIENCE = 3

log = structlog.get_logger(__name__)


class _Tries(NamedTuple):
    """Of giving a pool back."""

    n: int
    due_s: float
    since_s: float


_FIRST = _Tries(0, -math.inf, math.inf)


class Pools:
    """See the module."""

    def __init__(self, store: Store, leases: Leases, desk_of: Callable[[str], Desk], deadline_s: float) -> None:
        self._store = store
        self._leases = leases
        self._desk_of = desk_of
        self._deadline_s = deadline_s
        self._making: dict[str, None] = {}  # networks that are being created
        self._left: dict[str, PoolRequest] = {}  # what creations that failed have left, by network
        self._tries: dict[str, _Tries] = {}  # by pool
        self._wakeups: Wakeups | None = None

    async def create(self, network: Network) -> Network:
        """Obtain a network's pools and store it, with the subnets and gateways that its plugin chose.

        Raises:
            FailedPrecondition: the plugin is missing, does not answer or refuses; says which.
            As `control.network.add_network`.
        """
        request = PoolRequest(network)

        def intend(tx: Transaction) -> PoolLease:
            if tx.by_name(Network, network.name) is not None:
                raise NameConflict("network", network.name)
            check_network(tx, network)
            return tx.create(request.lease)

        self._making[network.id] = None
        intended = created = None
        try:
            intended = await self._store.commit(intend)
            await self._obtain(request, network.ipam_driver)
            created = await self._store.commit(lambda tx: _store_both(tx, request))
            return created
        except PluginFault as fault:
            raise FailedPrecondition(str(fault)) from None
        finally:
            del self._making[network.id]
            if intended is not None and created is None:
                self._left[network.id] = request
                if self._wakeups is not None:
                    self._wakeups.poke()

    async def replay(self, plugin: Plugin) -> None:
        """Tell a plugin that begins with empty books what it has given. Raises PluginFault when it is out."""
        for lease in list(self._store.pool_leases.values()):
            if lease.plugin == plugin.name and self._leases.pool(lease.id) is not None:
                await self._replay_one(plugin, lease)

    async def run(self) -> None:
        """Give back what no network has any more, until cancelled."""
        async with self._store.subscribe("network", "pool_lease", "address_lease") as changes:
            self._wakeups = changes
            while True:
                changes.take_nowait()
                due_s = await self._sweep()
                with trio.move_on_at(due_s):
                    await changes.wait()

    # --- obtaining

    async def _obtain(self, request: PoolRequest, name: str) -> None:
        plugin = self._desk_of(name).plugin
        patience_s = PATIENCE * self._deadline_s
        try:
            with trio.fail_after(patience_s):
                await request.run(plugin)
        except trio.TooSlowError:
            reason = f"not all of what the network needs was given within {patience_s:g} s"
            raise PluginFault(name, FaultKind.HUNG, reason, in_doubt=True) from None

    async def _replay_one(self, plugin: Plugin, lease: PoolLease) -> None:
        parts = []
        for part in lease.parts:
            with _tolerating(plugin):
                got = await plugin.ask_pool(part.given, part.ip_range, lease.options, v6=part.v6)
                part = msgspec.structs.replace(part, pool_id=got.PoolID)
            for address in part.taken:
                options = GATEWAY_OPTIONS if address == part.gateway else {}
                with _tolerating(plugin):
                    await plugin.ask_address(part.pool_id, options, address)
            parts.append(part)
        for held, address in self._leases.of_pool(lease.id):
            if not self._leases.has(held, address):
                continue  # it went back while the plugin was told of others
            pool_id = next((part.pool_id for part in parts if part.v6 == (":" in address)), parts[0].pool_id)
            self._leases.note_told(held, address, is_confirmed=False)
            with _tolerating(plugin):
                said = await plugin.ask_address(pool_id, held.options, address)
                self._leases.note_told(held, address, is_confirmed=said.partition("/")[0] == address)
        if tuple(parts) != lease.parts:
            changed = msgspec.structs.replace(lease, parts=tuple(parts))
            await self._store.commit_patiently(lambda tx: _update_if_there(tx, changed))

    # --- giving back

    async def _sweep(self) -> float:
        """Give back what can be; when to look again though nothing changed."""
        # Until none is left: while one is stored another creation may fail, and its pool must not be taken for a network's
        # that was removed, with nothing known of what was obtained.
        while self._left:
            network_id = next(iter(self._left))
            await self._settle(network_id, self._left.pop(network_id))
        busy = {lease.pool_id for lease in self._store.address_leases.values()}
        async with trio.open_nursery() as nursery:
            for lease in list(self._store.pool_leases.values()):
                used = lease.id in self._store.networks or lease.id in self._making or lease.id in busy
                if not used and self._tries.get(lease.id, _FIRST).due_s <= trio.current_time():
                    # Beside each other: one plugin that hangs holds up no other's.
                    nursery.start_soon(self._try_release, lease)
        return min((tries.due_s for tries in self._tries.values()), default=math.inf)

    async def _try_release(self, lease: PoolLease) -> None:
        now_s = trio.current_time()
        tries = self._tries.pop(lease.id, _Tries(0, now_s, now_s))
        try:
            await self._release(lease, believed=tries.since_s + BELIEVED_AFTER_S < now_s)
        except PluginFault as fault:
            log.info("pool not given back yet", network=lease.network_name, reason=str(fault))
            pause_s = min(PAUSE_S * 2 ** min(tries.n, 10), PAUSE_S_MAX)
            self._tries[lease.id] = _Tries(tries.n + 1, trio.current_time() + pause_s, tries.since_s)
        except Exception:
            # A firebreak, as in `ask`: a plugin is a program of others, and no answer of it may end the manager.
            log.exception("giving a pool back failed", plugin=lease.plugin, network=lease.network_name)
            self._tries[lease.id] = _Tries(tries.n + 1, trio.current_time() + PAUSE_S_MAX, tries.since_s)

    async def _settle(self, network_id: str, request: PoolRequest) -> None:
        """Store what a creation that failed has left."""

        def build(tx: Transaction) -> None:
            if network_id in tx.networks:
                return  # it was created after all: only the answer did not get through
            if request.parts:
                tx.update(request.lease)
            else:
                tx.delete(PoolLease, network_id)

        await self._store.commit_patiently(build)

    async def _release(self, lease: PoolLease, *, believed: bool) -> None:
        """Give a pool back, addresses first. What was given back is stored, so that it is not given back twice."""
        plugin = self._desk_of(lease.plugin).plugin
        for i, part in enumerate(lease.parts):
            part_id = partial(self._leases.part_id, lease.id, i)
            if not part.pool_id:
                part = await _ask_again(plugin, lease, part)
                await self._change_part(lease, i, pool_id=part.pool_id)
            for n, address in enumerate(part.taken, 1):
                await _insist(plugin.release_address(part_id, address), believed)
                await self._change_part(lease, i, taken=part.taken[n:])
            if part.pool_id:
                await _insist(plugin.release_pool(part_id), believed)
                await self._change_part(lease, i, pool_id="", subnet="")
        await self._store.commit_patiently(lambda tx: tx.delete(PoolLease, lease.id))

    async def _change_part(self, lease: PoolLease, i: int, **changes: Any) -> None:
        """Change a part of a pool as it is now: the plugin may have been told everything again meanwhile."""

        def build(tx: Transaction) -> None:
            now = tx.find(PoolLease, lease.id)
            part = msgspec.structs.replace(now.parts[i], **changes)
            tx.update(msgspec.structs.replace(now, parts=(*now.parts[:i], part, *now.parts[i + 1 :])))

        await self._store.commit_patiently(build)


def _store_both(tx: Transaction, request: PoolRequest) -> Network:
    created = add_network(tx, request.network)
    tx.update(request.lease)
    return created


def _update_if_there(tx: Transaction, lease: PoolLease) -> None:
    if tx.get(PoolLease, lease.id) is not None:  # else it was given back meanwhile
        tx.update(lease)


async def _ask_again(plugin: Plugin, lease: PoolLease, part: PoolPart) -> PoolPart:
    """Find out what a question gave whose answer was lost: plugins give the same pool again, or say that they have it."""
    if not part.subnet:
        return part  # it would only choose another one
    try:
        got = await plugin.request_pool(part.subnet, part.ip_range, lease.options, v6=part.v6)
    except PluginFault as fault:
        if fault.kind is not FaultKind.REFUSED:
            raise
        log.warning("an IPAM plugin may keep a pool", network=lease.network_name, reason=str(fault))
        return part
    return msgspec.structs.replace(part, pool_id=got.PoolID)


async def _insist(call: Awaitable[None], believed: bool) -> None:
    """Give something back. A plugin that has answered "no" for long is believed that it does not have it."""
    try:
        await call
    except PluginFault as fault:
        if not (believed and fault.kind is FaultKind.REFUSED):
            raise
        log.warning("an IPAM plugin knows nothing of what it is given back", reason=str(fault))


@contextmanager
def _tolerating(plugin: Plugin) -> Iterator[None]:
    """It may know already what it is told again, and say so as an error."""
    try:
        yield
    except PluginFault as fault:
        if fault.is_outage:
            raise
        log.info("IPAM plugin refused what it is told again", plugin=plugin.name, reason=fault.reason)


__all__ = ["Pools"]
