"""SWIM with Lifeguard as rules: messages and the time in, commands out.

Theory of operation
-------------------
A driver calls `handle` for each message of a datagram and `advance` when `next_at` has come, and then takes out of `out` what
it finds there and does it. After any call `next_at` may be sooner than before. Times are seconds of one monotonic
clock. No method raises for what a peer did, but `merge` for a whole exchange that cannot be used.

This process may be stopped, or get little CPU, while answers wait in its socket. What is found overdue says nothing about
others then. After a short absence, what has arrived is read first. After a long one, when answers may have been lost as
well, all deadlines are moved by as much as this member was not there, what it was asking is not judged, and its health gets
worse. A short one is not made up for: on a busy machine they follow each other, and nobody would ever be found dead.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from beeyard.discovery.gossip.command import Command
from beeyard.discovery.gossip.delegate import Delegate
from beeyard.discovery.gossip.message import (
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    Message,
    Nack,
    NodeRecord,
    Ping,
    PushPull,
    Suspect,
    User,
)
from beeyard.discovery.gossip.swim.beliefs import Beliefs
from beeyard.discovery.gossip.swim.config import LAN, Config
from beeyard.discovery.gossip.swim.context import Context, Counts
from beeyard.discovery.gossip.swim.exchange import Exchanges
from beeyard.discovery.gossip.swim.mail import Mail
from beeyard.discovery.gossip.swim.prober import Prober
from beeyard.discovery.gossip.swim.roster import ALIVE, Member
from beeyard.discovery.gossip.swim.transmit_queue import TransmitQueue, transmit_limit

# Protocol min, max, current; delegate (Serf) min, max, current. Source: what serf 0.9.4 sends.
VSN = bytes((1, 5, 2, 2, 5, 5))

# A deadline noticed later than this part of the probe's timeout is not acted on before what has arrived is read.
LATE_PART = 0.5
READING_PART = 0.1  # of the probe interval: the time for that
# Later than so many probe intervals, the process was stopped, or as good as that.
STALL_INTERVALS = 2


class Memberlist:
    """One member's view of the others, and its duties towards them."""

    def __init__(
        self,
        name: str,
        address: Address,
        delegate: Delegate,
        rng: random.Random,
        *,
        config: Config = LAN,
        vsn: bytes = VSN,
        packet_overhead_bytes: int = 0,
    ) -> None:
        """A member that has not started.

        Args:
            name: unique in the cluster.
            address: where others reach it, UDP and TCP.
            delegate: told of members and messages.
            rng: all its randomness.
            packet_overhead_bytes: what encryption adds to a datagram, see the property.
        """
        me = Member(name, address, b"", vsn, 0.0)
        self._context = Context(me, delegate, rng, config, packet_overhead_bytes)
        self.out: list[Command] = self._context.out
        self._mail = Mail(self._context)
        self._beliefs = Beliefs(self._context, self._mail)
        self._prober = Prober(self._context, self._mail, self._beliefs)
        self._exchanges = Exchanges(self._context, self._beliefs)
        self._late_s = LATE_PART * config.probe_timeout_s
        self._is_reading = False  # what is overdue was put off once; it is acted on now, however late

    # --- life ---

    def start(self, now_s: float) -> None:
        """Become alive (the delegate hears of itself joining) and begin to probe, gossip and exchange."""
        context, me = self._context, self._context.me
        me.meta = context.delegate.meta()
        context.roster.add(me)
        context.roster.set_state(me, ALIVE, now_s)
        self._beliefs.tell_me(1)
        context.delegate.notify_join(me.record())
        self._prober.start(now_s)
        self._exchanges.start(now_s)

    def leave(self, now_s: float) -> None:
        """Tell others that this member leaves by itself. It goes on answering; `leave_told` says when it may stop.

        Idempotent: yes.
        """
        self._notice_stall(now_s)
        context, me = self._context, self._context.me
        if not context.has_left:
            context.has_left = True
            self._beliefs.dead(now_s, Dead(incarnation=me.incarnation, node=me.name, from_node=me.name))

    def leave_told(self) -> bool:
        """Whether `leave`'s news was sent as often as it should be, or nobody is there to hear it."""
        return self._context.has_left and (self._context.leave_told or self._context.roster.n_up == 0)

    def update_meta(self, now_s: float) -> None:
        """Take `delegate.meta()` as own, under a new incarnation, and tell it."""
        self._notice_stall(now_s)
        context, me = self._context, self._context.me
        me.meta = context.delegate.meta()
        if not context.has_left:
            self._beliefs.tell_me(me.incarnation + 1)
            context.delegate.notify_update(me.record())

    # --- what comes in ---

    def handle(self, now_s: float, message: Message, source: Address) -> None:
        """One message of a datagram that came from `source`: Ping, IndirectPing, Ack, Nack, Suspect, Alive, Dead, User."""
        self._notice_stall(now_s)
        match message:
            case Ping():
                self._prober.ping(message, source)
            case Ack():
                self._prober.ack(now_s, message)
            case Alive():
                self._beliefs.alive(now_s, message)
            case User():
                self._context.delegate.notify_message(message.data)
            case Suspect():
                self._beliefs.suspect(now_s, message)
            case Dead():
                self._beliefs.dead(now_s, message)
            case IndirectPing():
                self._prober.indirect_ping(now_s, message, source)
            case Nack():
                self._prober.nack(message)
            case _:
                self._context.counts.refused += 1

    def answer_stream_ping(self, ping: Ping) -> Ack | None:
        """What to answer to a ping over TCP; None: hang up, it is meant for another name."""
        return Ack(seq_no=ping.seq_no) if ping.node in ("", self._context.me.name) else None

    def stream_ack(self, now_s: float, seq_no: int) -> None:
        """A `PingByStream` was answered."""
        self._notice_stall(now_s)
        self._prober.stream_ack(now_s, seq_no)

    def stream_refused(self, now_s: float, seq_no: int) -> None:
        """The host of a `PingByStream` refused the connection (ECONNREFUSED, nothing else): no process listens there.

        A member that is still suspected for half of the usual time is dead then, see `Config.refused_part`.
        """
        self._notice_stall(now_s)
        self._prober.stream_refused(seq_no)

    def push_pull(self, now_s: float, join: bool) -> PushPull:
        """All that this member knows, to send in an exchange; a server answers with it before it merges."""
        self._notice_stall(now_s)
        return self._exchanges.state(join=join)

    def merge(self, now_s: float, remote: PushPull, join: bool) -> None:
        """What a peer knows. Records of members that are not welcome are left out.

        Raises:
            RemoteProtocolError: it holds more than `Config.members_max` members, or others but none that is welcome and
                speaks our versions. Nothing was merged.
        """
        self._notice_stall(now_s)
        self._exchanges.merge(now_s, remote, join=join)

    def state_sent(self, n_bytes: int) -> None:
        """What `push_pull` returned went out, in so many bytes. The larger, the rarer, see `Config.push_pull_bytes_s`."""
        self._exchanges.sent(n_bytes)

    # --- time ---

    def next_at(self) -> float:
        """When `advance` is to be called, -inf: at once, inf: never."""
        return -math.inf if self._mail.wants_gossip() else self._context.timers.next_at()

    def advance(self, now_s: float) -> None:
        """Do what is due: probes, gossip, exchanges, suspicions. Hand over datagrams that have arrived before."""
        self._notice_stall(now_s)
        if self._context.timers.next_at() <= now_s:
            self._is_reading = False
            self._context.timers.run(now_s)
        self._mail.arrange(now_s)

    def _notice_stall(self, now_s: float) -> None:
        late_s = now_s - self._context.timers.next_at()
        if late_s <= self._late_s:
            return
        interval_s = self._context.config.probe_interval_s
        if late_s > STALL_INTERVALS * interval_s:
            self._context.counts.stalls += 1
            self._context.trouble(+1)
            self._prober.abandon()
            self._context.timers.delay(late_s + READING_PART * interval_s)
            self._beliefs.stalled(late_s)
        elif not self._is_reading:
            self._is_reading = True
            self._context.counts.late += 1
            self._context.timers.postpone(now_s + READING_PART * interval_s)

    # --- for the layer above ---

    def join_exchange(self, address: Address) -> None:
        """Ask for an exchange with somebody who need not be known, to join its cluster."""
        self._exchanges.ask(address, join=True)

    def mend(self, now_s: float, name: str) -> None:
        """Exchange with a member that believes something else; not more often than memberlist would exchange anyway."""
        self._exchanges.mend(now_s, name)

    def send_user(self, to: Address, data: bytes) -> None:
        """Send one user message (Serf's type byte first) in a datagram of its own."""
        self._mail.post(to, User(data=data), piggyback=False)

    def new_queue(self, n_nodes: Callable[[], int]) -> TransmitQueue:
        """A queue for `Delegate.broadcasts` to draw from; what is put into it makes gossip wake up."""
        return self._mail.new_queue_above(n_nodes)

    def forget_broadcasts(self) -> None:
        """Tell nothing of what waits to be told: for simulations, that begin with what everybody knows."""
        self._mail.news.prune(0)

    def members(self) -> list[NodeRecord]:
        """All known, this one included, the dead until they are forgotten. O(N)."""
        return [member.record() for member in self._context.roster.by_name.values()]

    def member(self, name: str) -> NodeRecord | None:
        """One of them."""
        member = self._context.roster.get(name)
        return None if member is None else member.record()

    def random_alive(self, count: int, exclude: str = "") -> list[NodeRecord]:
        """Up to `count` others that are alive and not called `exclude`, drawn at random."""
        me = self._context.me
        picked = self._context.roster.pick(
            count, lambda other: other.state == ALIVE and other is not me and other.name != exclude
        )
        return [member.record() for member in picked]

    @property
    def n_known(self) -> int:
        """How many are known, this one included, the dead until they are forgotten."""
        return len(self._context.roster)

    @property
    def n_alive(self) -> int:
        """How many are alive or suspect, this one included."""
        return self._context.roster.n_up

    @property
    def incarnation(self) -> int:
        """This member's own."""
        return self._context.me.incarnation

    @property
    def view(self) -> int:
        """32 bits that say who is believed to be up, see `Roster.view`."""
        return self._context.roster.view

    @property
    def news_s(self) -> float:
        """How long a member repeats what is new: then all have heard it, whom it reaches at all."""
        config = self._context.config
        return config.gossip_interval_s * transmit_limit(config.retransmit_mult, self.n_known)

    @property
    def exchange_interval_s(self) -> float:
        """The time between two exchanges by the clock."""
        return self._exchanges.interval_s

    @property
    def health(self) -> int:
        """Own troubles: 0 none, up to `Config.health_max` - 1."""
        return self._context.health

    @property
    def counts(self) -> Counts:
        """What happened since the start."""
        return self._context.counts

    @property
    def n_queued(self) -> int:
        """Own broadcasts that wait, without those of the layer above."""
        return len(self._mail.news)

    @property
    def packet_overhead_bytes(self) -> int:
        """What encryption adds to a datagram; set it when that changes."""
        return self._context.packet_overhead_bytes

    @packet_overhead_bytes.setter
    def packet_overhead_bytes(self, n_bytes: int) -> None:
        self._context.packet_overhead_bytes = n_bytes


__all__ = ["VSN", "Memberlist"]
