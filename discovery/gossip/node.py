"""A member of a Serf cluster: the rules of `serf.Serf`, driven over datagrams and streams.

Theory of operation
-------------------
The rules never wait and do nothing by themselves: they are given messages and the time, and leave commands behind. This
driver reads datagrams, gives them to the rules, and carries out what they leave behind, at once and in the same turn: a
ping is answered before anything else happens. Whatever takes time, a TCP exchange or a snapshot, is a task of its own.

* UDP and TCP have the same port. One TCP connection is one exchange, with a deadline; 128 are served at a time.
* Nothing that a peer sends ends more than its packet or its connection. What it did wrong is logged, a few times a minute.
* Cancelling `run` is a crash as far as the others can tell. `leave` first is a farewell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import trio

from beeyard.discovery.gossip.message import Address, Coordinate, MemberRecord
from beeyard.runtime.host import Host


class GossipConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a member takes part. Times follow `profile`, one of Serf's: lan, wan or local."""

    name: str  # of the member; the only one of it in the cluster
    bind: str = "0.0.0.0"  # or an IPv6 address; "::" hears IPv6 alone
    port: int = 7946  # for UDP and TCP; 0: one that the kernel chooses
    advertise: str = ""  # HOST or HOST:PORT to be reached at; "": `bind`, or the address that leads to the outside
    tags: Mapping[str, str] = {}
    profile: str = "lan"
    # Keys of 16, 24 or 32 bytes, the first encrypts; none: nothing is encrypted. Those in `keyring_path` count instead once
    # that file exists; it is written with each change.
    keys: Sequence[bytes] = ()
    keyring_path: str = ""
    # Staged change to encryption: first keys everywhere with both off, then outgoing on everywhere, then incoming.
    verify_incoming: bool = True  # drop what is not encrypted
    verify_outgoing: bool = True  # encrypt
    snapshot_path: str = ""  # remembers members and clocks as Serf's -snapshot; "": forgets
    rejoin_after_leave: bool = False


class MemberChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A member joined, left, failed, was changed or was forgotten; `kind`: "join", "leave", "failed", "update", "reap"."""

    kind: str
    member: MemberRecord


class EventSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody sent a user event."""

    name: str
    payload: bytes
    l_time: int
    coalesce: bool = False


class QuerySeen(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asks all members, this one too: answer with `GossipNode.answer(id, ...)` within `timeout_s`."""

    name: str
    payload: bytes
    l_time: int
    id: int
    source_node: str
    timeout_s: float


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A member's answer to a query of ours, or with `ack` its word that the query has come."""

    from_node: str
    payload: bytes = b""
    ack: bool = False


class KeyReport(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation on keys went: members asked, those that answered, those that failed with why, and keys in base64."""

    n_members: int
    n_answers: int
    errors: Mapping[str, str]
    keys: Mapping[str, int] = {}  # how many members have each
    primary_keys: Mapping[str, int] = {}

    @property
    def ok(self) -> bool:
        """Whether every member did it."""
        return not self.errors and self.n_answers >= self.n_members


NodeEvent = MemberChanged | EventSeen | QuerySeen


class Subscription(AsyncIterator[NodeEvent]):
    """What happens from the moment of subscribing on.

    Changes of one member that nobody has read yet are told as the last of them: a slow reader misses steps, never the
    state. Of events and queries the newest 1,024 are kept.
    """

    async def __anext__(self) -> NodeEvent:
        raise NotImplementedError

    def close(self) -> None:
        """End it: the reader's loop ends. Idempotent: yes."""


class GossipNode:
    """See the module.

    Usage: `me = await nursery.start(node.run)`, then anything else.
    """

    def __init__(self, host: Host, config: GossipConfig) -> None: ...

    async def run(self, *, task_status: trio.TaskStatus[MemberRecord] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until cancelled, until `leave` is done or until another member has this one's name; started with it.

        Raises:
            HostError: the port cannot be bound.
            NameTaken: most others know another member by this name.
        """

    @property
    def me(self) -> MemberRecord:
        """This member, as it tells the others."""
        raise NotImplementedError

    def members(self) -> list[MemberRecord]:
        """All members, this one too, by name. `status`: 1 alive, 2 leaving, 3 left, 4 failed."""
        raise NotImplementedError

    def is_suspect(self, name: str) -> bool:
        """Whether a member that counts as alive does not answer."""
        raise NotImplementedError

    def events(self) -> Subscription:
        """What happens from now on. Close it when done."""
        raise NotImplementedError

    async def join(self, addresses: Sequence[Address], *, ignore_old_events: bool = True) -> int:
        """Exchange all that is known with these peers; how many of them it was possible with. Their hosts may be names.

        Raises:
            PeerError: it was possible with none; says why, for each.
        """
        raise NotImplementedError

    async def leave(self) -> None:
        """Tell the others that this member leaves on purpose, and wait until they can know it; seconds at most.

        `run` goes on answering probes until it is cancelled. Idempotent: yes.
        """

    async def force_leave(self, name: str, *, prune: bool = False) -> None:
        """Have a failed member count as one that left; `prune`: and be forgotten.

        Raises:
            NotFound: there is no member of this name.
        """

    def send_event(self, name: str, payload: bytes = b"", *, coalesce: bool = True) -> None:
        """Send an event to all members.

        Raises:
            InvalidSpec: name and payload are longer than 512 bytes.
        """

    def query(
        self,
        name: str,
        payload: bytes = b"",
        *,
        nodes: Sequence[str] = (),
        tags: Mapping[str, str] = {},
        want_ack: bool = False,
        relay_factor: int = 0,
        timeout_s: float = 0.0,
    ) -> AsyncIterator[QueryAnswer]:
        """Ask all members, or those with one of these names and with tags that match these regular expressions.

        The answers come as they arrive, until `timeout_s` is over; 0: as long as Serf waits in a cluster of this size.

        Raises:
            InvalidSpec: it is longer than 1,024 bytes.
        """
        raise NotImplementedError

    def answer(self, query: QuerySeen, payload: bytes) -> bool:
        """Answer a query; False when its time is over.

        Raises:
            InvalidSpec: the answer is longer than 1,024 bytes.
        """
        raise NotImplementedError

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Have these tags and no others.

        Raises:
            InvalidSpec: encoded they are longer than 512 bytes.
        """

    def coordinate(self, name: str = "") -> Coordinate | None:
        """Where a member is in the space of round trips; "": this one; None: not known yet."""
        raise NotImplementedError

    def rtt_s(self, one: str, other: str = "") -> float | None:
        """The round trip between two members as their coordinates estimate it; `other` "": this one; None: not known."""
        raise NotImplementedError

    async def install_key(self, key: bytes) -> KeyReport:
        """Have all members know a key."""
        raise NotImplementedError

    async def use_key(self, key: bytes) -> KeyReport:
        """Have all members encrypt with a key that they know."""
        raise NotImplementedError

    async def remove_key(self, key: bytes) -> KeyReport:
        """Have all members forget a key that they do not encrypt with."""
        raise NotImplementedError

    async def list_keys(self) -> KeyReport:
        """Which keys the members know."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """Counters and gauges by name, for metrics: packets, bytes, probes, members by status, health, queues."""
        raise NotImplementedError


__all__ = [
    "EventSeen",
    "GossipConfig",
    "GossipNode",
    "KeyReport",
    "MemberChanged",
    "NodeEvent",
    "QueryAnswer",
    "QuerySeen",
    "Subscription",
]
