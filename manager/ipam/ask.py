"""One question for one grant's addresses, from the intent to the answer.

Theory of operation
-------------------
A question is worked on in the background, by a task of the service and not of the hook that wants the answer: the hook may
give up at any moment, and the answer that comes later must be read all the same, because it says what has to go back. So

    turn → intent stored → asked → checked → claimed in the address book → stored as HELD → the hook has it

and wherever that ends, the lease is either deleted (the plugin surely gave nothing), or on its way back, or the hook's.
A question keeps its turn until it is answered or `LATE_S` have passed.
"""

from __future__ import annotations

from functools import partial

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError, PluginRefused
from beeyard.core.ipam import AddressLease, LeaseState, PoolLease
from beeyard.core.model import Task
from beeyard.core.pools import ResolvedPool
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.ipam.answer import misfit, read_address, says_exhausted
from beeyard.manager.ipam.desk import Desk
from beeyard.manager.ipam.fault import FaultKind, PluginFault, quote
from beeyard.manager.ipam.give_back import GiveBack
from beeyard.manager.ipam.leases import Leases
from beeyard.manager.ipam.protocol import MAC_ADDRESS

# How long a question that its hook has given up may still be answered. A plugin that was stopped for longer has most likely
# been restarted, and its answer is found out by asking again.
LATE_S = 300.0
# How long a wrong address is kept from the plugin, so that it gives another one next time: as an address rests.
WRONG_S = 30.0

log = structlog.get_logger(__name__)


class Ask:
    """A question and, once `done`, its result: addresses or a refusal."""

    def __init__(self, lease: AddressLease, task: Task, pool: ResolvedPool, mac: str) -> None:
        self.lease = lease
        self.task = task
        self.pool = pool
        self.mac = mac  # told to plugins that want it, and then the task's
        self.addresses: tuple[str, ...] = ()
        self.refusal: PluginRefused | None = None
        self.abandoned = False
        self.done = trio.Event()
        self.patience = trio.CancelScope()  # the hook's: its deadline is set once the plugin is asked


class Asker:
    """Works on the questions for one plugin."""

    def __init__(
        self, desk: Desk, leases: Leases, give_back: GiveBack, ledger: AddressLedger, deadline_s: float
    ) -> None:
        self._desk = desk
        self._leases = leases
        self._give_back = give_back
        self._ledger = ledger
        self._deadline_s = deadline_s

    async def answer(self, ask: Ask) -> tuple[str, ...]:
        """Wait for the result of a question that `work` works on. Cancellation: nothing is held.

        Raises:
            PluginRefused
        """
        have = False
        try:
            with ask.patience:
                await ask.done.wait()
            if ask.done.is_set():
                have = True
            else:
                fault = self._desk.hung()
                self._desk.failed(fault)
                raise self._refusal("everywhere", fault.reason)
        finally:
            if not have:
                ask.abandoned = True
                if ask.done.is_set() and ask.refusal is None:
                    self.release(ask.lease.id, used=False, rest_s=0.0)
        if ask.refusal is not None:
            raise ask.refusal
        return ask.addresses

    async def work(self, ask: Ask) -> None:
        """Ask the plugin; never raises."""
        try:
            try:
                await self._work(ask)
            except PluginFault as fault:
                ask.refusal = self._refusal("everywhere", fault.reason)
        except Exception as error:
            # A firebreak: plugins are programs of others, and whatever they make us run into costs this one task.
            log.exception("question to an IPAM plugin failed", plugin=self._desk.plugin.name, lease=ask.lease.id)
            ask.refusal = self._refusal("everywhere", f"internal error: {error!r}")
            self.release(ask.lease.id, used=False, rest_s=0.0)
        if ask.abandoned and ask.refusal is None:
            self.release(ask.lease.id, used=False, rest_s=0.0)
        ask.done.set()

    def release(self, lease_id: str, *, used: bool, rest_s: float) -> None:
        """Give up what a grant holds. Idempotent."""
        self._ledger.release(lease_id, used=used)
        if self._leases.get(lease_id) is not None:
            self._give_back.put(lease_id, trio.current_time() + (rest_s if used else 0.0))

    async def _work(self, ask: Ask) -> None:
        async with self._desk.turn(ask.lease.pool_id):
            if ask.abandoned:
                return
            pool = self._leases.pool(ask.lease.pool_id)
            if pool is None:
                ask.refusal = self._refusal("everywhere", f"pool {ask.pool.name} is not obtained")
                return
            if reason := self._desk.exhausted(ask.lease.pool_id, ask.lease.node_id):
                ask.refusal = self._refusal("node", reason)
                return
            ask.patience.deadline = trio.current_time() + self._deadline_s
            try:
                await self._prepare(ask)
            except PluginFault as fault:
                self._failed(ask, fault)
                return
            except DiskError as error:
                ask.refusal = self._refusal("everywhere", f"what it is asked for cannot be stored: {error}")
                return
            answers, ended = await self._ask(ask, pool)
        if ended is not None:
            await self._end(ask, answers, ended)
            self._failed(ask, ended)
        elif reason := await self._accept(ask, pool, answers):
            ask.refusal = self._refusal("node", reason)
            self._desk.failed(PluginFault(self._desk.plugin.name, FaultKind.JUNK, reason))

    async def _prepare(self, ask: Ask) -> None:
        """Activate the plugin, and store the intent."""
        await self._desk.plugin.activate()
        if self._desk.plugin.capabilities.RequiresMACAddress:
            options = {**ask.lease.options, MAC_ADDRESS: ask.mac}
            ask.lease = msgspec.structs.replace(ask.lease, options=options)
        else:
            ask.mac = ""
        await self._leases.begin(ask.lease)

    async def _ask(self, ask: Ask, pool: PoolLease) -> tuple[list[str], PluginFault | None]:
        """What the plugin gives for each family, as far as it does."""
        answers: list[str] = []
        for i in range(len(pool.parts)):
            part_id = partial(self._leases.part_id, pool.id, i)
            try:
                answers.append(await self._desk.plugin.request_address(part_id, ask.lease.options, deadline_s=LATE_S))
            except PluginFault as fault:
                return answers, fault
            self._desk.answered()
        return answers, None

    async def _end(self, ask: Ask, answers: list[str], fault: PluginFault) -> None:
        """A question that went wrong: settle what the plugin may have given."""
        given = [address for answer in answers if (address := read_address(answer)) is not None]
        good = tuple(str(address) for address in given if not self._leases.take(ask.lease, str(address)))
        if not good and not fault.in_doubt:
            await self._leases.forget(ask.lease)
            return
        await self._leases.keep(ask.lease, LeaseState.ASKING if fault.in_doubt else LeaseState.HELD, good)
        self._give_back.put(ask.lease.id, trio.current_time())

    async def _accept(self, ask: Ask, pool: PoolLease, answers: list[str]) -> str:
        """Check what the plugin gave and hold it; "" or what is wrong with it, and then it goes back."""
        lease, mine, wrong, unreadable = ask.lease, [], "", False
        for answer, config in zip(answers, ask.pool.ipam, strict=False):
            address = read_address(answer)
            if address is None:
                unreadable = True
                wrong = wrong or f"gave {quote(answer)!r}, which is no address with a prefix length"
                continue
            reason = misfit(address, config)
            wrong = wrong or (f"gave {address}, {reason}" if reason else "")
            if owner := self._leases.take(lease, str(address)):
                wrong = wrong or f"gave {address.ip}, which {self._holder(owner)}"
            else:
                mine.append(str(address))
        if not wrong and (reason := self._ledger.claim(ask.pool, lease.id, ask.task, tuple(mine))):
            wrong = f"gave {reason}"
        state = LeaseState.ASKING if unreadable else LeaseState.HELD
        if mine or unreadable:
            await self._leases.keep(lease, state, tuple(mine))
        else:
            await self._leases.forget(lease)
        if wrong:
            self._give_back.put(lease.id, trio.current_time() + WRONG_S)
        else:
            self._desk.worked()
            ask.addresses = tuple(mine)
        return wrong

    def _holder(self, lease_id: str) -> str:
        lease = self._leases.get(lease_id)
        return f"task {lease.task_id} holds" if lease is not None else "another task is just being given"

    def _failed(self, ask: Ask, fault: PluginFault) -> None:
        """Refuse a question for what the plugin did."""
        if fault.kind is FaultKind.REFUSED and says_exhausted(fault.reason):
            reason = f"no address left in pool {ask.pool.name} ({fault.reason})"
            self._desk.note_exhausted(ask.lease.pool_id, ask.lease.node_id, reason)
            ask.refusal = self._refusal("node", reason)
            return
        self._desk.failed(fault)
        ask.refusal = self._refusal("everywhere" if fault.is_outage else "node", fault.reason)

    def _refusal(self, scope: str, reason: str) -> PluginRefused:
        where = "node" if scope == "node" else "everywhere"
        return PluginRefused(self._desk.plugin.name, where, reason, until=self._desk.key)  # type: ignore[arg-type]


__all__ = ["LATE_S", "WRONG_S", "Ask", "Asker"]
