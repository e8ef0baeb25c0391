"""SWIM with Lifeguard as rules: messages and the time in, commands out.

A driver calls `handle` for each message of a datagram and `advance` when `next_at` has come, and then acts on what it
finds in `out` (taking it with `drain`). After any call `next_at` may be sooner than before. Times are seconds of one
monotonic clock. No method raises for what a peer did, but `merge` for a whole exchange that cannot be used.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from beeyard.discovery.gossip.command import Command
from beeyard.discovery.gossip.delegate import Delegate
from beeyard.discovery.gossip.message import Ack, Address, Message, NodeRecord, Ping, PushPull
from beeyard.discovery.gossip.swim.config import LAN, Config
from beeyard.discovery.gossip.swim.transmit_queue import TransmitQueue

# Protocol min, max, current; delegate (Serf) min, max, current. Source: what serf 0.9.4 sends.
VSN = bytes((1, 5, 2, 2, 5, 5))


class Memberlist:
    """One member's view of the others, and its duties towards them."""

    out: list[Command]

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
            delegate: told of members and messages; it may be handed over later by assigning `delegate` before `start`.
            rng: all its randomness.
            packet_overhead_bytes: what encryption adds to a datagram (29), see `packet_overhead_bytes`.
        """

    # --- life ---

    def start(self, now_s: float) -> None:
        """Become alive (the delegate hears of itself joining) and begin to probe, gossip and exchange."""

    def leave(self, now_s: float) -> None:
        """Tell others that this member leaves by itself. It goes on answering; `leave_told` says when it may stop."""

    def leave_told(self) -> bool:
        """Whether `leave`'s news was sent as often as it should be, or nobody is there to hear it."""

    def update_meta(self, now_s: float) -> None:
        """Take `delegate.meta()` as own, under a new incarnation, and tell it."""

    # --- what comes in ---

    def handle(self, now_s: float, message: Message, source: Address) -> None:
        """One message of a datagram that came from `source`: Ping, IndirectPing, Ack, Nack, Suspect, Alive, Dead, User."""

    def answer_stream_ping(self, ping: Ping) -> Ack | None:
        """What to answer to a ping over TCP; None: hang up, it is meant for another name."""

    def stream_ack(self, now_s: float, seq_no: int) -> None:
        """A `PingByStream` was answered."""

    def stream_refused(self, now_s: float, seq_no: int) -> None:
        """The host of a `PingByStream` refused the connection (ECONNREFUSED, nothing else): no process listens there."""

    def push_pull(self, now_s: float, join: bool) -> PushPull:
        """All that this member knows, to send in an exchange; a server answers with it before it merges."""

    def merge(self, now_s: float, remote: PushPull, join: bool) -> None:
        """What a peer knows.

        Raises:
            RemoteProtocolError: it holds more members than `Config.members_max`; nothing was merged.
        """

    # --- time ---

    def next_at(self) -> float:
        """When `advance` is to be called, -inf: at once, inf: never."""

    def advance(self, now_s: float) -> None:
        """Do what is due: probes, gossip, exchanges, suspicions. Hand over datagrams that have arrived before."""

    def drain(self) -> list[Command]:
        """What is to be done since last time; `out` is empty then."""

    # --- for the layer above ---

    def join_exchange(self, address: Address, node: str = "") -> None:
        """Ask for an exchange with somebody who need not be known, to join its cluster."""

    def send_user(self, to: Address, data: bytes) -> None:
        """Send one user message (Serf's type byte first) in a datagram of its own."""

    def new_queue(self, n_nodes: Callable[[], int]) -> TransmitQueue:
        """A queue for `Delegate.broadcasts` to draw from; what is put into it makes gossip wake up."""

    def members(self) -> list[NodeRecord]:
        """All known, this one included, the dead until they are forgotten. O(N)."""

    def member(self, name: str) -> NodeRecord | None:
        """One of them."""

    def random_alive(self, count: int, exclude: str = "") -> list[NodeRecord]:
        """Up to `count` others that are alive and not called `exclude`, drawn at random."""

    @property
    def n_known(self) -> int:
        """How many are known, this one included, the dead until they are forgotten."""

    @property
    def n_alive(self) -> int:
        """How many are alive or suspect, this one included."""

    @property
    def incarnation(self) -> int:
        """This member's own."""

    @property
    def health(self) -> int:
        """Own troubles: 0 none, up to `Config.health_max` - 1."""


__all__ = ["VSN", "Memberlist"]
