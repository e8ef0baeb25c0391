"""The manager's end of all connections from agents: who may in, what nodes are told, what they report, who is alive.

A connection begins with one message that says what it is for (see `entrance`); `Hello` opens a session. Whatever is
refused gets a sentence and leaves nothing behind.
"""

from __future__ import annotations

from typing import Protocol

import structlog
import trio

from beeyard.core.errors import DiskError, PeerError
from beeyard.core.model import Node, Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import (
    DescriptionChanged,
    FromAgent,
    Heartbeat,
    Hello,
    IdentityReply,
    Refused,
    RenewRequest,
    Resync,
    StatusReport,
    Welcome,
)
from beeyard.manager.ca import Authority
from beeyard.manager.dispatch.admission import (
    DESCRIPTIONS_MAX,
    DESCRIPTIONS_WINDOW_S,
    RELEASE_PAUSE_S,
    SESSIONS_MAX,
    SESSIONS_WINDOW_S,
    RateLimit,
    check_certificate,
    check_hello,
    description_fault,
    make_ready,
    register,
)
from beeyard.manager.dispatch.assignments import TASK_BYTES_MAX, AssignmentBook, is_news
from beeyard.manager.dispatch.doubt import Doubts, NoDoubts, ask_doubted
from beeyard.manager.dispatch.entrance import Entrance, Visitor, disk_refusal
from beeyard.manager.dispatch.liveness import MISSED_PERIODS, Liveness
from beeyard.manager.dispatch.pacer import Pacer
from beeyard.manager.dispatch.route_table import RouteTable
from beeyard.manager.dispatch.routes import RouteBook
from beeyard.manager.dispatch.session import Session
from beeyard.manager.dispatch.statuses import StatusCollector
from beeyard.manager.dispatch.watch import mark_unknown, watch_liveness
from beeyard.manager.store import Store, Wakeups
from beeyard.runtime.host import Connection, Host, PeerCertificate

# Agents spread over a tenth of the period; downwards, so that three missed heartbeats always fit in three periods.
HEARTBEAT_SPREAD = 0.1

log = structlog.get_logger(__name__)


class DispatcherConfig(Protocol):
    """What of the manager's configuration matters here."""

    @property
    def listen(self) -> str:
        """Address for agents, "tcp://0.0.0.0:2377"."""

    @property
    def advertise(self) -> str:
        """Address that agents are told to try, "tcp://10.0.0.7:2377"; "": the one that is listened on."""

    @property
    def node_name(self) -> str:
        """Name of the node on this manager's own host; "" for its hostname."""


class Dispatcher:
    """All sessions of one manager. Make it in trio, after `ca.bootstrap`; one `run` per instance."""

    def __init__(self, host: Host, store: Store, config: DispatcherConfig, authority: Authority | None = None) -> None:
        self._host = host
        self._store = store
        self._config = config
        self._authority = authority or Authority(host, store, config)
        self._entrance = Entrance(self._authority)
        self._liveness = Liveness(trio.current_time(), self._authority.cluster.heartbeat_s)
        self._liveness.restore(store.nodes.values())
        self._statuses = StatusCollector(store)
        self._pacer = Pacer()
        self._rate_limit = RateLimit()
        self._description_limit = RateLimit(DESCRIPTIONS_MAX, DESCRIPTIONS_WINDOW_S)
        self._sessions: dict[str, Session] = {}
        self._advertised: tuple[str, ...] = ()
        self.doubts: Doubts = NoDoubts()  # set by who knows what gossip says
        self._routes = RouteTable(store.nodes, self._touch_route)

    @property
    def mass_failure(self) -> str:
        """Why tasks of nodes that are down must not be replaced now, as a sentence; "" when they may.

        Its end is followed by a change of a node in the store, so whoever waits needs no clock.
        """
        return self._liveness.mass_failure(self._store.nodes, trio.current_time())

    def last_contact(self, node_id: str) -> float:
        """When the node was last heard of, in trio's clock; no lease of its tasks was renewed later.

        For a node that was not heard of since this manager started it is the start: it may have been until then.
        """
        return self._liveness.last_contact_s(node_id)

    def is_connected(self, node_id: str) -> bool:
        """Whether the node has a session."""
        return node_id in self._sessions

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve agents until cancelled; started with the address it really listens on.

        Raises:
            HostError: the address cannot be bound.
        """
        await mark_unknown(self._store)
        listener = await self._host.net.listen(self._config.listen, self._authority.credentials)
        try:
            async with self._store.subscribe("task", "node") as wakeups, trio.open_nursery() as nursery:
                for task in self._store.tasks.values():
                    self._routes.set_task(task.id, task)
                nursery.start_soon(self._follow, wakeups)
                nursery.start_soon(self._statuses.run)
                nursery.start_soon(self._pacer.run)
                nursery.start_soon(self._watch)
                log.info("listening for agents", address=listener.address)
                self._advertised = _advertised(self._config.advertise or listener.address)
                task_status.started(listener.address)
                await listener.serve(self._serve)
        finally:
            await listener.aclose()

    async def _watch(self) -> None:
        def ask(now_s: float) -> None:
            ask_doubted(self.doubts, self._store.nodes, self._sessions, self._liveness, now_s)

        await watch_liveness(self._host, self._store, self._liveness, self._went_down, ask)

    async def _serve(self, connection: Connection) -> None:
        """One connection. What its other side does ends it alone; a defect of ours is left to the listener's firebreak."""
        try:
            connected = self.is_connected(self._authority.cluster.manager_node_id)
            visitor = await self._entrance.greet(connection, manager_node_connected=connected)
            if visitor is not None:
                await self._session(visitor)
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as group:
            log.debug("connection ended", remote=connection.remote, reason=str(group.exceptions[0]))
        except* PeerError as group:
            log.warning("connection ended", remote=connection.remote, reason=str(group.exceptions[0]))

    # --- sessions ---

    async def _session(self, visitor: Visitor) -> None:
        peer, hello = visitor.connection.peer, visitor.hello
        # The entrance lets nobody else through.
        assert peer is not None
        assert hello is not None
        if refused := self._check(peer, hello):
            await visitor.refuse(refused)
            return
        book = AssignmentBook(self._store, peer.node_id, self._too_large)
        routes = RouteBook(self._routes, peer.node_id)
        session = Session(
            peer.node_id,
            self._host.new_id(),
            visitor.frames,
            book,
            routes,
            self._pacer,
            answers_probes=hello.answers_probes,
        )
        self._replace(session)
        try:
            if refused := await self._open(session, visitor.connection, peer, hello):
                await visitor.refuse(refused)
                return
            log.info("session opened", node=session.node_id, session=session.session_id)
            self._liveness.opened(session.node_id, trio.current_time())
            await session.run(self._welcome(session), self._handle, self._taken)
        finally:
            if self._sessions.get(session.node_id) is session:
                del self._sessions[session.node_id]
            self._statuses.drop(session)
            log.info("session ended", node=session.node_id, session=session.session_id, reason=session.end_reason)

    def _check(self, peer: PeerCertificate, hello: Hello) -> Refused | None:
        node = self._store.nodes.get(peer.node_id)
        refused = check_certificate(node, peer, self._host.wall_now_s()) or check_hello(hello)
        if refused is None and not self._rate_limit.allow(peer.node_id, trio.current_time()):
            reason = f"node {peer.node_id} opened more than {SESSIONS_MAX} sessions within {SESSIONS_WINDOW_S:g} s"
            refused = Refused(reason=reason, retry=True)
        return refused

    def _replace(self, session: Session) -> None:
        """From now on this is the node's session; an older one ends."""
        older = self._sessions.get(session.node_id)
        self._sessions[session.node_id] = session
        self._liveness.heard(session.node_id, trio.current_time())
        if older is not None:
            older.end(Refused(reason=f"a newer session of node {session.node_id} was opened", retry=True))

    async def _open(
        self, session: Session, connection: Connection, peer: PeerCertificate, hello: Hello
    ) -> Refused | None:
        """Make the node READY in the store; the reason why not, if so."""
        try:
            ready = not self._liveness.is_unserved(session.node_id, trio.current_time())
            refused = await self._store.commit(lambda tx: register(tx, connection, peer, hello, ready=ready))
        except DiskError as error:
            return disk_refusal(error)
        return refused or session.refused

    def _welcome(self, session: Session) -> Welcome:
        period_s = self._authority.cluster.heartbeat_s
        return Welcome(
            session_id=session.session_id,
            node_id=session.node_id,
            heartbeat_s=period_s * (1.0 - self._host.rng.uniform(0.0, HEARTBEAT_SPREAD)),
            manager_addresses=self._advertised,
        )

    async def _taken(self, session: Session) -> None:
        """The agent took a part of what its node must run."""
        now_s = trio.current_time()
        was_unserved = self._liveness.is_unserved(session.node_id, now_s)
        self._liveness.took(session.node_id, now_s, served=session.served)
        if was_unserved:
            try:
                await self._store.commit(lambda tx: make_ready(tx, session.node_id))
            except DiskError as error:
                session.end(disk_refusal(error))

    def _too_large(self, task_id: str, n_bytes: int) -> None:
        """No agent can ever be told of this task."""
        err = f"it takes {n_bytes} bytes to tell a node of this task, more than the {TASK_BYTES_MAX} that are possible"
        log.error("a task is too large to be sent", task=task_id, bytes=n_bytes)
        self._statuses.reject(task_id, TaskStatus(state=TaskState.REJECTED, err=err, at_s=self._host.wall_now_s()))

    async def _handle(self, session: Session, message: FromAgent) -> None:
        now_s = trio.current_time()
        self._liveness.heard(session.node_id, now_s)
        match message:
            case Heartbeat():
                session.heartbeat(message.number, now_s)
            case StatusReport():
                self._statuses.submit(session, message)
            case Resync():
                session.resync()
            case DescriptionChanged():
                if fault := description_fault(message.description):
                    session.end(Refused(reason=fault, retry=True, pause_s=RELEASE_PAUSE_S))
                elif not self._description_limit.allow(session.node_id, now_s):
                    reason = f"more than {DESCRIPTIONS_MAX} descriptions within {DESCRIPTIONS_WINDOW_S:g} s"
                    session.end(Refused(reason=reason, retry=True))
                else:
                    self._statuses.submit_description(session, message.description)
            case RenewRequest():
                session.start_renewal(message, self._renew)
            case _:
                reason = f"{type(message).__name__} has no place in a session"
                session.end(Refused(reason=reason, retry=True))

    async def _renew(self, session: Session, request: RenewRequest) -> IdentityReply | Refused:
        try:
            return await self._authority.renew(session.node_id, request.csr_pem)
        except DiskError as error:
            return disk_refusal(error)

    # --- what changes under a session ---

    async def _follow(self, wakeups: Wakeups) -> None:
        """Tell sessions what changed for their node."""
        async for wake in wakeups:
            for change in wake.changes:
                if change.kind == "node":
                    self._routes.set_node(_as_node(change.old), _as_node(change.new))
                    if change.new is None:
                        self._removed(change.id)
                    continue
                old, new = _as_task(change.old), _as_task(change.new)
                if (new is not None and new.grants) or (old is not None and old.grants):
                    self._routes.set_task(change.id, new)
                task = new or old
                if task is not None and task.node_id in self._sessions and is_news(old, new):
                    self._sessions[task.node_id].touch(change.id)

    def _touch_route(self, node_id: str, destination: str | None) -> None:
        if session := self._sessions.get(node_id):
            session.touch_route(destination)

    def _removed(self, node_id: str) -> None:
        self._liveness.forget(node_id)
        self._rate_limit.forget(node_id)
        self._description_limit.forget(node_id)
        if session := self._sessions.get(node_id):
            session.end(Refused(reason=f"node {node_id} was removed from the cluster", removed=True))

    def _went_down(self, node_id: str) -> None:
        silence_s = trio.current_time() - self._liveness.last_contact_s(node_id)
        if not self._liveness.is_asked(node_id):
            silence_s = MISSED_PERIODS * self._liveness.period_s
        if session := self._sessions.get(node_id):
            what = "no heartbeat of node" if session.served else "none of its assignments was taken by node"
            session.end(Refused(reason=f"{what} {node_id} for {silence_s:.0f} s", retry=True))


def _advertised(address: str) -> tuple[str, ...]:
    """What agents can be told of an address: nothing when it means all of this host's."""
    host = address.removeprefix("tcp://").rpartition(":")[0]
    return () if host in ("0.0.0.0", "[::]") else (address,)


def _as_node(obj: object) -> Node | None:
    return obj if isinstance(obj, Node) else None


def _as_task(obj: object) -> Task | None:
    return obj if isinstance(obj, Task) else None
