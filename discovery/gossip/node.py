"""A member of a Serf cluster: the rules of `serf.Serf`, driven over datagrams and streams.

Theory of operation
-------------------
The rules never wait and do nothing by themselves: they are given messages and the time, and leave commands and events
behind. `driver.Driver` reads datagrams, gives them to the rules, and carries out what they leave behind, at once and in the
same turn: a ping is answered before anything else happens. Whatever takes time, an exchange over TCP or a file, is a task of
its own (`exchange`, `memory`).

* UDP and TCP have the same port. One TCP connection is one exchange, with a deadline; 128 are served at a time.
* Nothing that a peer sends ends more than its packet or its connection. What it did wrong is logged, a few times a minute.
* Cancelling `run` is a crash as far as the others can tell. `leave` first is a farewell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
import trio

from beeyard.core.errors import NameConflict, PeerError
from beeyard.discovery.gossip.config import GossipConfig, host_and_port, reached_at
from beeyard.discovery.gossip.driver import Driver, bind
from beeyard.discovery.gossip.exchange import Exchanges
from beeyard.discovery.gossip.memory import Memory
from beeyard.discovery.gossip.message import Address, Coordinate
from beeyard.discovery.gossip.quiet_log import QuietLog
from beeyard.discovery.gossip.serf.event import (
    ConflictLost,
    Event,
    KeyringChanged,
    KeysDone,
    LeaveDone,
    Member,
    QueryAck,
    QueryAnswer,
    QueryDone,
)
from beeyard.discovery.gossip.serf.serf import Serf, Welcome
from beeyard.discovery.gossip.subscription import Answers, Subscription
from beeyard.discovery.gossip.swim.config import LAN, LOCAL, WAN
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.runtime.host import Host

log = structlog.get_logger(__name__)

_SWIM = {"lan": LAN, "wan": WAN, "local": LOCAL}
# A farewell takes 2 to 3 s, some 5 s among 1,000 members. Source of the limit: BroadcastTimeout 5 s twice,
# LeavePropagateDelay 1 s.
LEAVE_TIMEOUT_S = 12.0
# Only asked which way the outside is, of no one. Source: RFC 5737 and RFC 3849, addresses for documents.
_OUTSIDE = {4: "192.0.2.1", 6: "2001:db8::1"}


class GossipNode:
    """See the module. Usage: `me = await nursery.start(node.run)`, then anything else.

    Args:
        is_welcome: whom to take in, by name and tags; None: everyone.
    """

    def __init__(self, host: Host, config: GossipConfig, *, is_welcome: Welcome | None = None) -> None:
        self._host = host
        self._config = config
        self._is_welcome = is_welcome
        self._quiet = QuietLog()
        self._memory = Memory(host.files, config)
        self._subscriptions: dict[Subscription, None] = {}
        self._answers: dict[int, Answers] = {}
        self._left = trio.Event()
        self._conflict: ConflictLost | None = None
        self._scope = trio.CancelScope()
        # What there is only once `run` has started.
        self._serf: Serf
        self._keyring: Keyring
        self._exchanges: Exchanges
        self._driver: Driver

    # --- life

    async def run(self, *, task_status: trio.TaskStatus[Member] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until cancelled; started with it. Members of a snapshot are joined again by and by.

        Raises:
            HostError: the port cannot be bound, or what is kept on disk cannot be read.
            InvalidSpec: the tags are longer than 512 bytes, or a key is none; names the field.
            NameConflict: most others know another member by this name.
        """
        self._left, self._conflict = trio.Event(), None  # of another life
        snapshot = await self._memory.read_snapshot()
        keys = await self._memory.read_keys()
        datagrams, listener = await bind(self._host, self._config.bind, self._config.port)
        try:
            address = await self._advertised(datagrams.address[1])
            self._make(snapshot, keys, address)
            self._driver = Driver(
                self._host,
                self._serf,
                PacketCodec(
                    self._keyring,
                    verify_incoming=self._config.verify_incoming,
                    verify_outgoing=self._config.verify_outgoing,
                    compress=False,  # legal: a ping and its answer get no smaller, and they are nearly all there is
                ),
                self._exchanges,
                datagrams,
                self._quiet,
                self._happened,
                self._memory.note_lines,
            )
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(listener.serve, self._exchanges.serve)
                nursery.start_soon(self._driver.run)
                nursery.start_soon(self._memory.keep, self._serf, self._keyring)
                nursery.start_soon(self._return_to_the_others)
                task_status.started(self._serf.me)
        finally:
            self._end()
            with trio.CancelScope(shield=True):
                await datagrams.aclose()
                await listener.aclose()
        if self._conflict is not None:
            raise NameConflict("member", self._config.name)

    def _make(self, snapshot: str, keys: Sequence[bytes], address: Address) -> None:
        config = self._config
        self._keyring = Keyring(keys, random_bytes=self._host.rng.randbytes)
        self._serf = Serf(
            trio.current_time(),
            name=config.name,
            address=address,
            tags=config.tags,
            rng=self._host.rng,
            swim=_SWIM[config.profile],
            keyring=self._keyring,
            is_welcome=self._is_welcome,
            snapshot=snapshot,
            keeps_snapshot=self._memory.keeps_snapshot,
        )
        self._exchanges = Exchanges(
            self._host.net,
            self._serf,
            self._keyring,
            self._quiet,
            lambda: self._driver.act(),
            timeout_s=_SWIM[config.profile].stream_timeout_s,
            verify_incoming=config.verify_incoming,
            verify_outgoing=config.verify_outgoing,
        )

    async def _advertised(self, port: int) -> Address:
        """Where others are told to reach this member."""
        wanted, bound = self._config.advertise, self._config.bind
        if wanted:
            host, port = host_and_port(wanted, port)
            return Address((await self._host.net.resolve(host))[0], port)
        if bound not in ("0.0.0.0", "::"):
            return Address((await self._host.net.resolve(bound))[0], port)
        try:
            return Address(await self._host.net.source_to(_OUTSIDE[6 if ":" in bound else 4]), port)
        except PeerError:
            return Address("::1" if ":" in bound else "127.0.0.1", port)

    def move(self, address: Address) -> None:
        """Be known by this address from the next `run` on."""
        self._config = reached_at(self._config, address)

    async def _return_to_the_others(self) -> None:
        """Join one of those who were alive when the snapshot ended."""
        for address in self._serf.previous().values():
            try:
                if await self.join([address]):
                    return
            except PeerError as error:
                log.info("a member of the last life cannot be joined", reason=str(error))

    def _happened(self, event: Event) -> None:
        match event:
            case QueryAck(query_id=query_id) | QueryAnswer(query_id=query_id):
                if query_id in self._answers:
                    self._answers[query_id].put_nowait(event)
            case KeysDone(query_id=query_id) | QueryDone(query_id=query_id):
                if (answers := self._answers.pop(query_id, None)) is not None:
                    if isinstance(event, KeysDone):
                        answers.put_nowait(event)
                    answers.end()
            case KeyringChanged():
                self._memory.note_keyring()
            case LeaveDone():
                self._left.set()
            case ConflictLost():
                self._conflict = event
                self._scope.cancel()
            case _:
                for subscription in list(self._subscriptions):
                    subscription.put_nowait(event)

    def _end(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.close()
        for answers in self._answers.values():
            answers.end()
        self._answers.clear()
        self._left.set()

    # --- what is known

    @property
    def me(self) -> Member:
        """This member, as it tells the others."""
        return self._serf.me

    @property
    def keyring(self) -> Keyring:
        """The keys of this member."""
        return self._keyring

    def members(self) -> list[Member]:
        """All members, this one too, by name, whatever their status."""
        return self._serf.members()

    def member(self, name: str) -> Member | None:
        """One of them."""
        return self._serf.member(name)

    def is_suspect(self, name: str) -> bool:
        """Whether a member that counts as alive does not answer."""
        return self._serf.is_suspect(name)

    def coordinate(self, name: str = "") -> Coordinate | None:
        """Where a member is in the space of round trips; "": this one; None: not known yet."""
        return self._serf.coordinate(name or self._config.name)

    def rtt_s(self, one: str, other: str = "") -> float | None:
        """The round trip between two members as their coordinates estimate it; `other` "": this one; None: not known."""
        return self._serf.rtt_s(one, other or self._config.name)

    def events(self) -> Subscription:
        """What happens from now on: changes of members, user events, and questions to answer. Close it when done."""
        subscription = Subscription(lambda gone: self._subscriptions.pop(gone, None) and None)
        self._subscriptions[subscription] = None
        return subscription

    def figures(self) -> dict[str, float]:
        """Counters and gauges by name, for metrics: those of the rules and those of packets and streams."""
        return {**self._serf.figures(), **self._driver.figures()}

    # --- what is to happen

    async def join(self, addresses: Sequence[Address]) -> int:
        """Exchange all that is known with these peers, at once; with how many it was possible. Their hosts may be names.

        Raises:
            PeerError: it was possible with none; says why, for each.
        """
        joined: list[Address] = []
        failures: list[str] = []

        async def join(address: Address) -> None:
            try:
                hosts = await self._host.net.resolve(address.host)
            except PeerError as error:
                failures.append(str(error))
                return
            for host in hosts:
                try:
                    await self._exchanges.push_pull(Address(host, address.port), join=True)
                except PeerError as error:
                    failures.append(str(error))
                else:
                    joined.append(address)
                    return

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(join, address)
        if addresses and not joined:
            raise PeerError(f"cannot join: {'; '.join(failures)}")
        return len(joined)

    async def leave(self) -> None:
        """Tell the others that this member leaves on purpose, and wait until they can know it; seconds at most.

        `run` goes on answering probes until it is cancelled. Idempotent: yes.
        """
        if self._serf.state == "alive":
            self._serf.leave(trio.current_time())
            self._driver.act()
        with trio.move_on_after(LEAVE_TIMEOUT_S):
            await self._left.wait()
        await self._memory.flush(self._serf, self._keyring)

    def force_leave(self, name: str, *, prune: bool = False) -> None:
        """Have a failed member count as one that left; `prune`: and be forgotten.

        Raises:
            NotFound: there is no member of this name.
        """
        self._serf.force_leave(trio.current_time(), name, prune=prune)
        self._driver.act()

    def send_event(self, name: str, payload: bytes = b"", *, coalesce: bool = True) -> None:
        """Send an event to all members.

        Raises:
            InvalidSpec: name and payload are longer than 512 bytes.
        """
        self._serf.send_event(trio.current_time(), name, payload, coalesce=coalesce)
        self._driver.act()

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Have these tags and no others.

        Raises:
            InvalidSpec: encoded they are longer than 512 bytes.
        """
        self._serf.set_tags(trio.current_time(), tags)
        self._driver.act()

    # --- questions

    def query(
        self,
        name: str,
        payload: bytes = b"",
        *,
        nodes: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        ack: bool = False,
        relay_factor: int = 0,
        timeout_s: float | None = None,
    ) -> Answers:
        """Ask members; see `Serf.query`. Gives `QueryAck` and `QueryAnswer` as they come, until the time is over.

        Raises:
            InvalidSpec: it is longer than 1,024 bytes, or an expression of `tags` cannot be understood.
        """
        return self._asked(
            self._serf.query(
                trio.current_time(),
                name,
                payload,
                nodes=nodes,
                tags=tags,
                ack=ack,
                relay_factor=relay_factor,
                timeout_s=timeout_s,
            )
        )

    def answer(self, query_id: int, payload: bytes) -> None:
        """Answer a `QueryAsked`.

        Raises:
            NotFound: there is no such question, its time is up, or it has been answered.
            InvalidSpec: the answer takes more than 1,024 bytes.
        """
        self._serf.answer(trio.current_time(), query_id, payload)
        self._driver.act()

    async def install_key(self, key: bytes) -> KeysDone:
        """Have all members know a key."""
        return await self._keys_done(self._serf.install_key(trio.current_time(), key))

    async def use_key(self, key: bytes) -> KeysDone:
        """Have all members encrypt with a key that they know."""
        return await self._keys_done(self._serf.use_key(trio.current_time(), key))

    async def remove_key(self, key: bytes) -> KeysDone:
        """Have all members forget a key that they do not encrypt with."""
        return await self._keys_done(self._serf.remove_key(trio.current_time(), key))

    async def list_keys(self) -> KeysDone:
        """Which keys the members know."""
        return await self._keys_done(self._serf.list_keys(trio.current_time()))

    def _asked(self, query_id: int) -> Answers:
        answers = self._answers[query_id] = Answers(query_id, self._forget_answers)
        self._driver.act()
        return answers

    def _forget_answers(self, query_id: int) -> None:
        if self._answers.pop(query_id, None) is not None:
            self._serf.close_query(query_id)

    async def _keys_done(self, query_id: int) -> KeysDone:
        answers = self._asked(query_id)
        try:
            async for event in answers:
                if isinstance(event, KeysDone):
                    return event
        finally:
            answers.close()
        raise PeerError("this member ended before the others had answered")


__all__ = ["GossipNode"]
