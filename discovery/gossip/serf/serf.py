"""One member of a cluster that speaks Serf: all that the driver knows. Rules alone; nothing here does I/O.

The driver puts in what comes (packets, streams, time), and takes out `out` (commands) and `events` (for the application)
after each call. Memberlist is inside; its timers and packets go through here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

from beeyard.core.errors import InvalidSpec, NotFound
from beeyard.discovery.gossip.message import Ack, Address, Coordinate, KeyRequest, Message, Ping, PushPull, UserEvent
from beeyard.discovery.gossip.serf import snapshot as snapshots
from beeyard.discovery.gossip.serf.bridge import Bridge, Welcome
from beeyard.discovery.gossip.serf.chores import Chores
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.context import Broadcasts, Context
from beeyard.discovery.gossip.serf.event import Member, MemberEvent, MemberReap
from beeyard.discovery.gossip.serf.figures import figures_of
from beeyard.discovery.gossip.serf.filters import encode_filters
from beeyard.discovery.gossip.serf.intents import Intents
from beeyard.discovery.gossip.serf.keys import INSTALL, LIST, REMOVE, USE, KeyTally
from beeyard.discovery.gossip.serf.own_queries import ForApplication
from beeyard.discovery.gossip.serf.push_pull import PushPulls
from beeyard.discovery.gossip.serf.queries import INTERNAL, Queries
from beeyard.discovery.gossip.serf.snapshot_log import SnapshotLog
from beeyard.discovery.gossip.serf.tags import meta_of
from beeyard.discovery.gossip.serf.user_events import UserEvents
from beeyard.discovery.gossip.serf.vivaldi import distance_s
from beeyard.discovery.gossip.swim import LAN, Config, Memberlist
from beeyard.discovery.gossip.swim.roster import SUSPECT
from beeyard.discovery.gossip.wire.keyring import KEY_LENGTHS, SEAL_OVERHEAD, Keyring
from beeyard.discovery.gossip.wire.serf_codec import encode_serf

State = Literal["alive", "leaving", "left"]

NAME_BYTES_MAX = 128  # Source: what Serf 0.9.5 and newer take where they check names


class Serf:
    """A member of a cluster, as pure rules. It is alive from the start, and alone until it joins or is joined.

    Args:
        name: its name, unique in the cluster.
        address: where others reach it, UDP and TCP.
        tags: at most 512 bytes when encoded.
        rng: where all chance comes from.
        swim: memberlist's own figures; None: those of a LAN.
        keyring: with keys in it when packets are encrypted. The driver seals with the same object; key queries change it.
        is_welcome: whom to take in. None: everyone.
        snapshot: text of a snapshot file of the life before; "" for none. `previous` then says who was alive.
        keeps_snapshot: whether `snapshot_lines` are wanted.

    Raises:
        InvalidSpec: the tags are too large, or there is no name, or too long a one.

    `out` and `events` grow until the driver empties them, so it does after each call. `snapshot_lines` likewise: text to
    append to the snapshot file.
    """

    def __init__(
        self,
        now_s: float,
        *,
        name: str,
        address: Address,
        tags: Mapping[str, str],
        rng: random.Random,
        config: SerfConfig | None = None,
        swim: Config | None = None,
        keyring: Keyring | None = None,
        is_welcome: Welcome | None = None,
        snapshot: str = "",
        keeps_snapshot: bool = False,
    ) -> None:
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise InvalidSpec("name", f"of a member has 1 to {NAME_BYTES_MAX} bytes, not {len(name.encode())}")
        config = config or SerfConfig()
        gossip_interval_s = (swim or LAN).gossip_interval_s
        meta = meta_of(tags)
        self._log = SnapshotLog(name, is_kept=keeps_snapshot)
        self._keyring = keyring
        context = self._context = Context(now_s, name, address, config, rng, self._member_event)
        self._intents = Intents(context, gossip_interval_s)
        self._user_events = UserEvents(config.n_event_times)
        self._queries = Queries(context, keyring, gossip_interval_s)
        push_pulls = PushPulls(context, self._intents, self._user_events, self._queries.seen)
        self._bridge = Bridge(context, meta, is_welcome, self._intents, self._user_events, self._queries, push_pulls)
        self._memberlist = context.memberlist = Memberlist(name, address, self._bridge, rng, config=swim or LAN)
        context.broadcasts = Broadcasts(self._memberlist, lambda: len(context.roster.by_name), config.n_queued_max)
        self.out = self._memberlist.out
        self.events = context.events
        self.snapshot_lines = self._log.lines
        self._restore(snapshot)
        self._chores = Chores(context)
        self._set_overhead()
        self._memberlist.start(now_s)

    def _restore(self, snapshot: str) -> None:
        restored = snapshots.replay(snapshot)
        self._context.clock.witness(restored.clock)
        for seen, time in ((self._user_events, restored.event_clock), (self._queries.seen, restored.query_clock)):
            if time > 0:
                seen.clock.witness(time)
                seen.min_time = seen.clock.time()
        self._previous = {name: at for name, at in restored.alive.items() if name != self._context.name}

    def _member_event(self, event: MemberEvent) -> None:
        self._context.events.append(event)
        self._log.note(event)
        if isinstance(event, MemberReap):
            self._bridge.forget(event.member.name)

    def _set_overhead(self) -> None:
        self._memberlist.packet_overhead_bytes = SEAL_OVERHEAD if self._keyring else 0

    # --- what comes in -----------------------------------------------------------------------------------------------

    def handle(self, now_s: float, message: Message, source: Address) -> None:
        """A message out of a packet, or a `User` message out of a stream. Never raises for what a peer sent."""
        self._context.now_s = now_s
        self._memberlist.handle(now_s, message, source)

    def stream_ack(self, now_s: float, seq_no: int) -> None:
        """The answer to a `PingByStream` came in time."""
        self._context.now_s = now_s
        self._memberlist.stream_ack(now_s, seq_no)

    def stream_refused(self, now_s: float, seq_no: int) -> None:
        """The host of a `PingByStream` refused the connection, see `Memberlist.stream_refused`."""
        self._context.now_s = now_s
        self._memberlist.stream_refused(now_s, seq_no)

    def joined(self, now_s: float) -> None:
        """An exchange that this member asked for with join=True has been merged: it tells all that it joins (its intent)."""
        self._context.now_s = now_s
        if self.state == "alive":
            self._intents.tell_join()
            self._chores.joined()

    def push_pull(self, now_s: float, *, join: bool) -> PushPull:
        """What to send on a stream, as the one who asks or answers."""
        self._context.now_s = now_s
        return self._memberlist.push_pull(now_s, join)

    def state_sent(self, n_bytes: int) -> None:
        """What `push_pull` returned went out on a stream, in so many bytes, see `Memberlist.state_sent`."""
        self._memberlist.state_sent(n_bytes)

    def merge(self, now_s: float, remote: PushPull, *, join: bool) -> None:
        """What the other one sent on a stream. The one who answers sends its own before it merges.

        Raises:
            RemoteProtocolError: the versions do not go together, or nobody in it is welcome: nothing was merged.
        """
        self._context.now_s = now_s
        self._memberlist.merge(now_s, remote, join)

    def next_at(self) -> float:
        """When `advance` is to be called next; calls with other methods may move it. Inf: not before something comes."""
        return min(
            self._memberlist.next_at(),
            self._intents.next_at(),
            self._queries.own.next_at(),
            self._chores.next_at(),
        )

    def advance(self, now_s: float) -> None:
        """Time has passed: all timers that are due, memberlist's too."""
        self._context.now_s = now_s
        self._set_overhead()
        self._memberlist.advance(now_s)
        self._intents.advance()
        self._queries.own.advance(now_s)
        self._chores.advance(is_staying=self.state == "alive")
        self._log.note_clocks(now_s, self._clocks())

    def answer_stream_ping(self, ping: Ping) -> Ack | None:
        """What to answer to a ping over TCP; None: hang up, it is meant for another name."""
        return self._memberlist.answer_stream_ping(ping)

    # --- what the owner of the member wants ----------------------------------------------------------------------------

    def join(self, now_s: float, address: Address) -> None:
        """Ask for an exchange with whoever is at this address (an `Exchange` goes out with join=True)."""
        self._context.now_s = now_s
        self._memberlist.join_exchange(address)

    def leave(self, now_s: float) -> None:
        """Leave gracefully. `LeaveDone` comes within some seconds; until then the driver keeps running the member."""
        self._context.now_s = now_s
        if self.state == "alive":
            self._log.note_clocks(now_s, self._clocks())
            self._log.note_leave()
            self._intents.begin_leave()

    def force_leave(self, now_s: float, name: str, *, prune: bool = False) -> None:
        """Declare a failed member to have left; `prune`: and forget it everywhere. An alive one refutes.

        Raises:
            NotFound: no member goes by this name.
        """
        self._context.now_s = now_s
        roster = self._context.roster
        if name not in roster.by_name and name not in roster.lost:
            raise NotFound("member", name)
        if name == self._context.name:
            raise InvalidSpec("name", f"{name} is this member itself: have it leave")
        self._intents.force_leave(name, prune=prune)

    def send_event(self, now_s: float, name: str, payload: bytes = b"", *, coalesce: bool = False) -> None:
        """Tell all members, this one among them.

        Raises:
            InvalidSpec: name and payload take more than 512 bytes.
        """
        self._context.now_s = now_s
        event = UserEvent(l_time=self._user_events.clock.time(), name=name, payload=payload, coalesce=coalesce)
        data = encode_serf(event)
        limit = self._context.config.user_event_bytes_max
        if not name:
            raise InvalidSpec("event", "its name is empty: give it one, such as deploy")
        if len(data) > limit:
            raise InvalidSpec("event", f"name and payload take {limit} bytes at most as they are sent, not {len(data)}")
        self._bridge.tell(event)
        self._context.broadcasts.put(self._context.broadcasts.events, data)

    def query(
        self,
        now_s: float,
        name: str,
        payload: bytes = b"",
        *,
        nodes: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        ack: bool = False,
        relay_factor: int = 0,
        timeout_s: float | None = None,
    ) -> int:
        """Ask members; its id, that `QueryAck`, `QueryAnswer` and at last `QueryDone` carry.

        Args:
            nodes: only these; none: all.
            tags: only those whose tag matches the regular expression (Go's syntax, found anywhere), for each tag given.
            relay_factor: so many others each pass a copy of every answer on, against loss.
            timeout_s: None: by the size of the cluster, `default_query_timeout_s`.

        Raises:
            InvalidSpec: it takes more than 1024 bytes, or an expression of `tags` cannot be understood.
        """
        self._context.now_s = now_s
        if name.startswith(INTERNAL):
            raise InvalidSpec("name", f"{name}: what begins with {INTERNAL} belongs to the protocol")
        query_id = self._queries.own.new_id()
        self._queries.ask(
            name,
            payload,
            ForApplication(query_id),
            query_id,
            timeout_s=self.default_query_timeout_s() if timeout_s is None else timeout_s,
            filters=encode_filters(nodes, tags or {}),
            ack=ack,
            relay_factor=relay_factor,
        )
        return query_id

    def answer(self, now_s: float, query_id: int, payload: bytes) -> None:
        """Answer a `QueryAsked`.

        Raises:
            NotFound: there is no such question, its time is up, or it has been answered.
            InvalidSpec: the answer takes more than 1024 bytes.
        """
        self._context.now_s = now_s
        self._queries.answer(query_id, payload)

    def close_query(self, query_id: int) -> None:
        """Wait no longer for answers to an own question; no `QueryDone` comes."""
        self._queries.own.close(query_id)

    def forget_broadcasts(self) -> None:
        """Tell nothing of what waits to be told: for simulations, that begin with what everybody knows."""
        self._context.broadcasts.forget()
        self._memberlist.forget_broadcasts()

    def set_tags(self, now_s: float, tags: Mapping[str, str]) -> None:
        """Show other tags from now on.

        Raises:
            InvalidSpec: they take more than 512 bytes.
        """
        self._context.now_s = now_s
        meta = meta_of(tags)
        if meta != self._bridge.meta_bytes:
            self._bridge.meta_bytes = meta
            self._memberlist.update_meta(now_s)

    def install_key(self, now_s: float, key: bytes) -> int:
        """Have all members accept a key; the id that `KeysDone` will carry."""
        return self._ask_keys(now_s, INSTALL, key)

    def use_key(self, now_s: float, key: bytes) -> int:
        """Have all members encrypt with a key that they have."""
        return self._ask_keys(now_s, USE, key)

    def remove_key(self, now_s: float, key: bytes) -> int:
        """Have all members forget a key that is not the primary one."""
        return self._ask_keys(now_s, REMOVE, key)

    def list_keys(self, now_s: float) -> int:
        """Ask all members for their keys."""
        return self._ask_keys(now_s, LIST, b"")

    def _ask_keys(self, now_s: float, name: str, key: bytes) -> int:
        self._context.now_s = now_s
        if name != LIST and len(key) not in KEY_LENGTHS:
            raise InvalidSpec("key", f"has 16, 24 or 32 bytes, not {len(key)}")
        query_id = self._queries.own.new_id()
        tally = KeyTally(query_id, self._memberlist.n_alive)
        payload = encode_serf(KeyRequest(key=key))
        self._queries.ask(name, payload, tally, query_id, timeout_s=self.default_query_timeout_s())
        return query_id

    # --- what is known -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Alive until `leave`, left after `LeaveDone`."""
        phase = self._intents.phase
        return "alive" if phase == "alive" else "left" if phase == "done" else "leaving"

    def _clocks(self) -> tuple[int, int, int]:
        """The last times that were seen."""
        return self._context.clock.time() - 1, self._user_events.clock.time() - 1, self._queries.seen.clock.time() - 1

    @property
    def me(self) -> Member:
        """This member."""
        return self._context.roster.by_name[self._context.name]

    def members(self) -> list[Member]:
        """Everyone known, this one among them, sorted by name."""
        by_name = self._context.roster.by_name
        return [by_name[name] for name in sorted(by_name)]

    def member(self, name: str) -> Member | None:
        """One of them."""
        return self._context.roster.by_name.get(name)

    def is_suspect(self, name: str) -> bool:
        """Whether a member that counts as alive does not answer."""
        node = self._memberlist.member(name)
        return node is not None and node.state == SUSPECT

    def previous(self) -> dict[str, Address]:
        """Who was alive when the snapshot ended, without this one: addresses to join, in random order."""
        names = list(self._previous)
        self._context.rng.shuffle(names)
        return {name: self._previous[name] for name in names}

    def coordinate(self, name: str) -> Coordinate | None:
        """Where a member is in Vivaldi's space, as far as known."""
        return self._bridge.vivaldi.here if name == self._context.name else self._bridge.coordinates.get(name)

    def rtt_s(self, one: str, other: str) -> float | None:
        """Estimated round trip time between two members; None: a coordinate is missing."""
        here, there = self.coordinate(one), self.coordinate(other)
        return None if here is None or there is None else distance_s(here, there)

    def default_query_timeout_s(self) -> float:
        """How long a question is open if nothing is said: 3.2 s below ten members of a LAN."""
        return self._queries.default_timeout_s()

    def compact_snapshot(self) -> str:
        """The whole snapshot as text, to write anew (temporary file, fsync, rename) in place of one that has grown."""
        kept = [
            (member.name, member.address)
            for member in self.members()
            if member.status in ("alive", "failed")
            and member.name != self._context.name
            and snapshots.is_one_line(member.name)
        ]
        return snapshots.whole(kept, *self._clocks())

    def figures(self) -> dict[str, float]:
        """Numbers for metrics: members by status, clocks, queue lengths, health, what was dropped and why."""
        return {
            **figures_of(self._context, self._clocks()),
            "coordinate_resets": float(self._bridge.vivaldi.n_resets),
        }


__all__ = ["Serf", "State", "Welcome"]
