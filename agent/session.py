"""Being connected: one session with one manager, and a new one whenever it ends.

Theory of operation
-------------------
A *session* is one connection: `Hello`, `Welcome`, then a reader, one writer that owns the sending side, and what feeds the
writer: heartbeats, statuses, changes of the host, a renewal of the certificate. Whatever ends one of them ends the session.

*Heartbeats* start at a random point within the first interval, so that the nodes of a manager that came back do not beat
together. When each was sent is remembered until the manager confirms it: leases count from there (`agent.contact`).

*Silence.* A manager that has nothing to say is silent. After two heartbeat intervals of that the agent asks (an empty
status report, which must be confirmed); after three and a half the session is dead, however alive its connection looks.

*Reconnecting* goes round the known managers, those of the configuration first. The wait before each attempt is drawn
between zero and a bound that doubles with each failure: a thousand agents of a manager that restarts come back spread out.
A session that lasted for `GOOD_SESSION_S` forgives all failures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import structlog
import trio

from beeyard.agent.config import AgentConfig
from beeyard.agent.contact import Contact
from beeyard.agent.describe import Describer
from beeyard.agent.identity import IdentityKeeper
from beeyard.agent.manager_list import ManagerList
from beeyard.agent.reporter import Reporter
from beeyard.agent.routes import RouteKeeper
from beeyard.agent.workload import Workload
from beeyard.core.errors import HostError, PeerError, PeerRefused, RemoteProtocolError
from beeyard.core.model import NodeDescription
from beeyard.core.wire import (
    PROTOCOL_VERSION,
    Assignments,
    DescriptionChanged,
    FromAgent,
    FromManager,
    Heartbeat,
    Hello,
    IdentityReply,
    LeaseRenewed,
    Probe,
    Refused,
    Resync,
    Routes,
    StatusAck,
    Welcome,
    from_manager_decoder,
)
from beeyard.netdrivers.driver import link_indices
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Host

WELCOME_TIMEOUT_S = 10.0
ASK_AFTER_HEARTBEATS = 2.0
DEAD_AFTER_HEARTBEATS = 3.5
GOOD_SESSION_S = 10.0
# 2⁶ × 0.2 s is beyond the cap of 8 s: counting further has no effect, and a power that grows for hours is no float any more.
ROUNDS_MAX = 6
# A wall clock may jump while we sleep until a certificate is due: look at it at least this often.
RENEWAL_LOOK_S = 3600.0
# What may wait for the writer: a few messages of each kind. More means that the connection does not move.
OUTBOX_MESSAGES = 64

log = structlog.get_logger(__name__)

E = TypeVar("E", bound=BaseException)


class Removed(PeerRefused):
    """This node is no member of the cluster any more."""


@dataclasses.dataclass(frozen=True, eq=False)
class Equipment:
    """What every session of an agent works with."""

    host: Host
    config: AgentConfig
    identity: IdentityKeeper
    contact: Contact
    reporter: Reporter
    describer: Describer
    routes: RouteKeeper


class Connector:
    """Keeps the agent connected."""

    def __init__(self, equipment: Equipment, managers: ManagerList, workload: Workload) -> None:
        self._equipment = equipment
        self._managers = managers
        self._workload = workload
        self._pause_s = 0.0  # what the manager asked for in the last session
        self.manager = ""  # with which there is a session now

    async def run(self) -> PeerRefused:
        """Hold session after session; returns only when a manager does not want this node as it is, saying why."""
        n_failures = 0
        while True:
            address = await self._managers.current()
            began_s = trio.current_time()
            refused = await self._one_session(address)
            if refused is not None:
                return refused
            if trio.current_time() - began_s >= GOOD_SESSION_S:
                n_failures = 0
            else:
                n_failures += 1
                self._managers.advance()
            if self._pause_s > 0:
                # Twice at most, so that not all nodes come back at once.
                await trio.sleep(self._pause_s * self._equipment.host.rng.uniform(1.0, 2.0))
            else:
                await back_off(self._equipment.host, self._equipment.config, n_failures, len(self._managers.addresses))

    async def _one_session(self, address: str) -> PeerRefused | None:
        """One session from the first packet to the last; an error of it is told and forgotten."""
        refused: PeerRefused | None = None
        self._pause_s = 0.0
        try:
            await self._hold(address)
        except* PeerRefused as group:
            refused = _first(group)
        except* (PeerError, HostError) as group:
            error = _first(group)
            self._pause_s = error.pause_s if isinstance(error, PeerError) else 0.0
            log.warning("no session", manager=address, reason=str(error), pause_s=self._pause_s)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as group:
            log.warning("the session broke", manager=address, reason=type(_first(group)).__name__)
        except* Exception:
            # The firebreak: a defect met in one session ends that session. Tasks do not notice.
            log.exception("the session failed", manager=address)
        return refused

    async def _hold(self, address: str) -> None:
        equipment = self._equipment
        connection = await equipment.host.net.dial(address, equipment.identity.current.credentials)
        try:
            frames: FrameStream[FromManager] = FrameStream(connection.stream, from_manager_decoder)
            description = await equipment.describer.describe()
            with trio.fail_after(WELCOME_TIMEOUT_S):
                hello_at_s = trio.current_time()
                hello = Hello(protocol_version=PROTOCOL_VERSION, description=description, answers_probes=True)
                await frames.send([hello])
                welcome = await frames.receive()
            if isinstance(welcome, Refused):
                raise refusal(welcome)
            if not isinstance(welcome, Welcome):
                raise RemoteProtocolError("the manager did not answer a Hello with a Welcome")
            log.info("session opened", manager=address, session=welcome.session_id, node=welcome.node_id)
            self._workload.begin_session()
            equipment.routes.begin_session()
            equipment.reporter.restart()
            equipment.contact.confirm(hello_at_s)
            equipment.contact.heard_at_s = trio.current_time()
            await self._managers.learn(welcome.manager_addresses)
            self.manager = address
            await Session(equipment, self._workload, frames, welcome, description).run()
        finally:
            self.manager = ""
            await trio.aclose_forcefully(connection.stream)


class Session:
    """One open session."""

    def __init__(
        self,
        equipment: Equipment,
        workload: Workload,
        frames: FrameStream[FromManager],
        welcome: Welcome,
        description: NodeDescription,
    ) -> None:
        """The manager has said `Welcome` to `description`; nothing else was said yet."""
        self._equipment = equipment
        self._workload = workload
        self._frames = frames
        self._heartbeat_s = max(welcome.heartbeat_s, 0.1)
        self._described = description
        self._outbox, self._outgoing = trio.open_memory_channel[FromAgent](OUTBOX_MESSAGES)
        self._n_beaten = 0
        self._beaten: dict[int, float] = {}  # heartbeat number → when it was sent, until it is confirmed
        self._resync_asked = False
        self._parts: list[Assignments] = []  # of a set whose last part has not come
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Converse until one side ends it.

        Raises:
            PeerError: silence, or the manager said why it ends it. Errors may come in groups.
        """
        async with trio.open_nursery() as self._nursery:
            for task in (self._write, self._beat, self._report, self._describe, self._renew_identity):
                self._nursery.start_soon(task)
            await self._read()
            self._nursery.cancel_scope.cancel()

    # --- what comes ---

    async def _read(self) -> None:
        asked = False
        while True:
            patience = DEAD_AFTER_HEARTBEATS - ASK_AFTER_HEARTBEATS if asked else ASK_AFTER_HEARTBEATS
            with trio.move_on_after(patience * self._heartbeat_s) as waiting:
                message = await self._frames.receive()
            if waiting.cancelled_caught:
                if asked:
                    silence_s = DEAD_AFTER_HEARTBEATS * self._heartbeat_s
                    raise PeerError(f"nothing was heard from the manager for {silence_s:.1f} s")
                asked = True
                self._equipment.reporter.ask()
                continue
            asked = False
            await self._equipment.host.running()
            if message is None:
                raise PeerError("the manager ended the session")
            self._equipment.contact.heard_at_s = trio.current_time()
            await self._handle(message)

    async def _handle(self, message: FromManager) -> None:
        match message:
            case Assignments():
                await self._assign(message)
            case Routes():
                self._equipment.routes.take(message)
            case Probe():
                await self._beat_once()
            case LeaseRenewed():
                self._renew_leases(message.heartbeat_number)
            case StatusAck():
                self._equipment.reporter.acknowledge(message.number)
            case IdentityReply():
                await self._equipment.identity.renewed(message)
            case Refused():
                raise refusal(message)
            case _:
                raise RemoteProtocolError(f"a {type(message).__name__} has no place in a session")

    async def _assign(self, part: Assignments) -> None:
        self._parts.append(part)
        if part.more:
            return
        parts, self._parts = self._parts, []
        assignments = joined(parts)
        if self._workload.apply(assignments):
            self._equipment.routes.assigned()
            self._resync_asked = False
            self._workload.renew_leases()
        elif not self._resync_asked:
            log.warning("a set of assignments is missing", last_seen=self._workload.last_seen)
            self._resync_asked = True
            await self._outbox.send(Resync(last_seen=self._workload.last_seen))

    def _renew_leases(self, heartbeat_number: int) -> None:
        sent_at_s = self._beaten.get(heartbeat_number)
        if sent_at_s is None:
            return  # Never sent, or older than one that was confirmed: it says nothing new.
        self._beaten = {number: at_s for number, at_s in self._beaten.items() if number > heartbeat_number}
        self._equipment.contact.confirm(sent_at_s)
        self._workload.renew_leases()

    # --- what goes ---

    async def _write(self) -> None:
        while True:
            messages = [await self._outgoing.receive()]
            while self._outgoing.statistics().current_buffer_used:
                messages.append(self._outgoing.receive_nowait())
            await self._frames.send(messages)

    async def _beat(self) -> None:
        await trio.sleep(self._equipment.host.rng.uniform(0.0, self._heartbeat_s))
        while True:
            await self._equipment.host.running()
            await self._beat_once()
            await trio.sleep(self._heartbeat_s)

    async def _beat_once(self) -> None:
        self._n_beaten += 1
        number = self._n_beaten
        self._beaten[number] = trio.current_time()
        await self._outbox.send(Heartbeat(number=number))

    async def _report(self) -> None:
        while True:
            await self._outbox.send(await self._equipment.reporter.next())

    async def _describe(self) -> None:
        while True:
            await self._equipment.describer.wait(self._equipment.config.describe_interval_s)
            description = await self._equipment.describer.describe()
            self._workload.note_host_links(await link_indices(self._equipment.host.netlink))
            if description != self._described:
                self._described = description
                await self._outbox.send(DescriptionChanged(description=description))

    async def _renew_identity(self) -> None:
        while True:
            due_in_s = self._equipment.identity.renewal_due_in_s()
            if due_in_s <= 0:
                await self._outbox.send(self._equipment.identity.renewal())
                due_in_s = RENEWAL_LOOK_S  # Unless it is answered by then, ask again.
            await trio.sleep(min(due_in_s, RENEWAL_LOOK_S))


def joined(parts: Sequence[Assignments]) -> Assignments:
    """A set made whole from all of its parts.

    Raises:
        RemoteProtocolError: they are not of one set.
    """
    last = parts[-1]
    if any(
        (p.complete, p.applies_to, p.results_in) != (last.complete, last.applies_to, last.results_in) for p in parts
    ):
        raise RemoteProtocolError("the manager mixed the parts of two sets of assignments")
    return msgspec.structs.replace(
        last,
        tasks=tuple(task for part in parts for task in part.tasks),
        removed=tuple(task_id for part in parts for task_id in part.removed),
    )


def refusal(message: Refused) -> PeerError:
    """The error that a refusal is."""
    if message.removed:
        return Removed(message.reason)
    return PeerError(message.reason, message.pause_s) if message.retry else PeerRefused(message.reason)


async def back_off(host: Host, config: AgentConfig, n_failures: int, n_managers: int) -> None:
    """Wait before the next attempt, which is at another manager: each is asked as seldom as if it were the only one.

    So many that strangers make up in gossip keep nobody from the true one: a round of all takes no more pauses.

    Source: "full jitter", Brooker, AWS Architecture Blog 2015: random(0, min(cap, base · 2ⁿ)).
    """
    n_managers = max(1, n_managers)
    n_rounds = min(-(-n_failures // n_managers), ROUNDS_MAX)
    longest_s = min(config.backoff_cap_s, config.backoff_base_s * 2**n_rounds)
    await trio.sleep(host.rng.uniform(0.0, longest_s) / n_managers)


def _first(group: BaseExceptionGroup[E]) -> E:
    """The first leaf: children that fail together were ended by one cause."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf  # type: ignore[return-value]  # the leaves of a group of E are Es


__all__ = ["Connector", "Equipment", "Removed", "Session", "back_off", "joined", "refusal"]
