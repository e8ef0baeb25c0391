"""One member of a cluster that speaks Serf: all that the driver knows. Rules alone; nothing here does I/O.

The driver puts in what comes (packets, streams, time), and takes out `out` (commands) and `events` (for the application)
after each call. Memberlist is inside; its timers and packets go through here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from beeyard.discovery.gossip.command import Command
from beeyard.discovery.gossip.message import Address, Coordinate, Message, PushPull
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.event import Event, Member

# Takes a name and its tags as decoded; False keeps the member out, whatever it says.
Welcome = Callable[[str, Mapping[str, str]], bool]

State = Literal["alive", "leaving", "left"]


class Serf:
    """A member of a cluster, as pure rules.

    Args:
        name: its name, unique in the cluster.
        address: where others reach it, UDP and TCP.
        tags: at most 512 bytes when encoded, or `InvalidSpec`.
        rng: where all chance comes from.
        swim: memberlist's own figures (`swim.config`); None: those of a LAN.
        keyring: `wire.keyring.Keyring` when packets are encrypted, for key queries. The driver seals with the same object.
        is_welcome: whom to take in. None: everyone.
        snapshot: text of a snapshot file of the life before; "" for none. `previous` then says who was alive.

    `out` and `events` grow until the driver empties them, so it does after each call. `snapshot_lines` likewise: lines to
    append to the snapshot file; a driver that keeps none sets `keeps_snapshot=False` and they stay empty.
    """

    out: list[Command]
    events: list[Event]
    snapshot_lines: list[str]
    state: State

    def __init__(
        self,
        now_s: float,
        *,
        name: str,
        address: Address,
        tags: Mapping[str, str],
        rng: random.Random,
        config: SerfConfig | None = None,
        swim: object | None = None,
        keyring: object | None = None,
        is_welcome: Welcome | None = None,
        snapshot: str = "",
        keeps_snapshot: bool = False,
    ) -> None:
        raise NotImplementedError

    # --- what comes in -----------------------------------------------------------------------------------------------

    def handle(self, now_s: float, message: Message, source: Address) -> None:
        """A message out of a packet, or a `User` message out of a stream. Never raises for what a peer sent."""
        raise NotImplementedError

    def stream_ack(self, now_s: float, seq_no: int) -> None:
        """The answer to a `PingByStream` came in time."""
        raise NotImplementedError

    def stream_refused(self, now_s: float, seq_no: int) -> None:
        """The host of a `PingByStream` refused the connection, see `Memberlist.stream_refused`."""
        raise NotImplementedError

    def joined(self, now_s: float) -> None:
        """An exchange that this member asked for with join=True has been merged: it tells all that it joins (its intent)."""
        raise NotImplementedError

    def push_pull(self, now_s: float, *, join: bool) -> PushPull:
        """What to send on a stream, as the one who asks or answers."""
        raise NotImplementedError

    def merge(self, now_s: float, remote: PushPull, *, join: bool) -> None:
        """What the other one sent on a stream. The one who answers sends its own before it merges.

        Raises:
            RemoteProtocolError: the versions do not go together, or nobody in it is welcome: nothing was merged.
        """
        raise NotImplementedError

    def next_at(self) -> float:
        """When `advance` is to be called next; calls with other methods may move it. Inf: not before something comes."""
        raise NotImplementedError

    def advance(self, now_s: float) -> None:
        """Time has passed: all timers that are due, memberlist's too."""
        raise NotImplementedError

    # --- what the owner of the member wants ----------------------------------------------------------------------------

    def join(self, now_s: float, address: Address) -> None:
        """Ask for an exchange with whoever is at this address (an `Exchange` goes out with join=True)."""
        raise NotImplementedError

    def leave(self, now_s: float) -> None:
        """Leave gracefully. `LeaveDone` comes within some seconds; until then the driver keeps running the member."""
        raise NotImplementedError

    def force_leave(self, now_s: float, name: str, *, prune: bool = False) -> None:
        """Declare a failed member to have left; `prune`: and forget it everywhere. An alive one refutes.

        Raises:
            NotFound: no member goes by this name.
        """
        raise NotImplementedError

    def send_event(self, now_s: float, name: str, payload: bytes = b"", *, coalesce: bool = False) -> None:
        """Tell all members, this one among them.

        Raises:
            InvalidSpec: name and payload take more than 512 bytes.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def answer(self, now_s: float, query_id: int, payload: bytes) -> None:
        """Answer a `QueryAsked`.

        Raises:
            NotFound: there is no such question, its time is up, or it has been answered.
            InvalidSpec: the answer takes more than 1024 bytes.
        """
        raise NotImplementedError

    def close_query(self, query_id: int) -> None:
        """Wait no longer for answers to an own question; no `QueryDone` comes."""
        raise NotImplementedError

    def set_tags(self, now_s: float, tags: Mapping[str, str]) -> None:
        """Show other tags from now on.

        Raises:
            InvalidSpec: they take more than 512 bytes.
        """
        raise NotImplementedError

    def install_key(self, now_s: float, key: bytes) -> int:
        """Have all members accept a key; the id that `KeysDone` will carry."""
        raise NotImplementedError

    def use_key(self, now_s: float, key: bytes) -> int:
        """Have all members encrypt with a key that they have."""
        raise NotImplementedError

    def remove_key(self, now_s: float, key: bytes) -> int:
        """Have all members forget a key that is not the primary one."""
        raise NotImplementedError

    def list_keys(self, now_s: float) -> int:
        """Ask all members for their keys."""
        raise NotImplementedError

    # --- what is known -------------------------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """This member."""
        raise NotImplementedError

    def members(self) -> list[Member]:
        """Everyone known, this one among them, sorted by name."""
        raise NotImplementedError

    def member(self, name: str) -> Member | None:
        """One of them."""
        raise NotImplementedError

    def previous(self) -> dict[str, Address]:
        """Who was alive when the snapshot ended, without this one: addresses to join, in random order."""
        raise NotImplementedError

    def coordinate(self, name: str) -> Coordinate | None:
        """Where a member is in Vivaldi's space, as far as known."""
        raise NotImplementedError

    def rtt_s(self, one: str, other: str) -> float | None:
        """Estimated round trip time between two members; None: a coordinate is missing."""
        raise NotImplementedError

    def default_query_timeout_s(self) -> float:
        """How long a question is open if nothing is said: 3.2 s below ten members of a LAN."""
        raise NotImplementedError

    def compact_snapshot(self) -> str:
        """The whole snapshot as text, to write anew (temporary file, fsync, rename) in place of one that has grown."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """Numbers for metrics: members by status, clocks, queue lengths, health, what was dropped and why."""
        raise NotImplementedError


__all__ = ["Serf", "State", "Welcome"]
