"""What Serf's rules tell the application. They collect in `Serf.events`; the driver takes them out."""

from __future__ import annotations

from typing import Literal

import msgspec

from beeyard.discovery.gossip.message import NOWHERE, Address

MemberStatus = Literal["none", "alive", "leaving", "left", "failed"]

# Index: the number on the wire.
STATUSES: tuple[MemberStatus, ...] = ("none", "alive", "leaving", "left", "failed")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member as it is known here. A change makes a new one: keep it as long as you like, do not change `tags`."""

    name: str
    address: Address
    tags: dict[str, str] = {}
    status: MemberStatus = "alive"
    status_l_time: int = 0  # Lamport time of the newest intent about it
    since_s: float = 0.0  # when the status became what it is
    protocol: tuple[int, int, int] = (0, 0, 0)  # memberlist's: min, max, current
    delegate: tuple[int, int, int] = (0, 0, 0)  # Serf's: min, max, current


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the application may want to know."""


class MemberEvent(Event, frozen=True, kw_only=True):
    """Something about one member; `member` as it is from now on."""

    member: Member


class MemberJoin(MemberEvent, frozen=True, kw_only=True):
    """It is alive, and was not known, had failed or had left."""


class MemberLeave(MemberEvent, frozen=True, kw_only=True):
    """It left by its own will, or a failed one was declared to have left."""


class MemberFailed(MemberEvent, frozen=True, kw_only=True):
    """It died without a word."""


class MemberUpdate(MemberEvent, frozen=True, kw_only=True):
    """It has other tags or speaks other versions."""


class MemberReap(MemberEvent, frozen=True, kw_only=True):
    """It was failed or gone for so long, or was pruned, that it is forgotten."""


class UserEventCame(Event, frozen=True, kw_only=True):
    """A user event, from anyone including this member; each is told once."""

    l_time: int
    name: str
    payload: bytes = b""
    coalesce: bool = False


class QueryAsked(Event, frozen=True, kw_only=True):
    """A question to this member. `Serf.answer(now_s, query_id, payload)` answers it once, until `deadline_s`."""

    query_id: int  # of this process alone
    l_time: int
    name: str
    payload: bytes = b""
    source_node: str = ""
    deadline_s: float = 0.0


class QueryAck(Event, frozen=True, kw_only=True):
    """An own question has reached a member."""

    query_id: int
    from_node: str


class QueryAnswer(Event, frozen=True, kw_only=True):
    """A member has answered an own question; each does so once at most."""

    query_id: int
    from_node: str
    payload: bytes = b""


class QueryDone(Event, frozen=True, kw_only=True):
    """The time of an own question is up, or everyone alive has answered a question of keys."""

    query_id: int
    n_acks: int = 0
    n_answers: int = 0


class KeysDone(Event, frozen=True, kw_only=True):
    """What all members answered to `install_key`, `use_key`, `remove_key` or `list_keys`.

    It worked when `n_good` is `n_members`. `keys` and `primary_keys`: base64 to the number of members that have it.
    """

    query_id: int
    n_members: int
    n_answers: int = 0
    n_good: int = 0
    messages: dict[str, str] = {}  # member to what it said, errors among them
    keys: dict[str, int] = {}
    primary_keys: dict[str, int] = {}


class KeyringChanged(Event, frozen=True, kw_only=True):
    """The keyring is another one by a word of the cluster: the driver writes its file."""


class ConflictLost(Event, frozen=True, kw_only=True):
    """Another member goes by the name of this one, and most believe it: this one has to stop or take another name."""

    name: str
    other: Address = NOWHERE
    n_answers: int = 0
    n_matching: int = 0


class ConflictWon(Event, frozen=True, kw_only=True):
    """Another member goes by the name of this one, and most believe this one."""

    name: str
    other: Address = NOWHERE
    n_answers: int = 0
    n_matching: int = 0


class NameTaken(Event, frozen=True, kw_only=True):
    """Two others go by one name: nothing to be done here but to tell."""

    name: str
    known: Address
    other: Address


class LeaveDone(Event, frozen=True, kw_only=True):
    """`Serf.leave` has been told to the others: the process may end."""


__all__ = [
    "STATUSES",
    "ConflictLost",
    "ConflictWon",
    "Event",
    "KeyringChanged",
    "KeysDone",
    "LeaveDone",
    "Member",
    "MemberEvent",
    "MemberFailed",
    "MemberJoin",
    "MemberLeave",
    "MemberReap",
    "MemberStatus",
    "MemberUpdate",
    "NameTaken",
    "QueryAck",
    "QueryAnswer",
    "QueryAsked",
    "QueryDone",
    "UserEventCame",
]
