"""Who is known: by name, by address, and in the order of probing."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b

from beeyard.discovery.gossip.message import Address, NodeRecord
from beeyard.discovery.gossip.swim.suspicion import Suspicion

ALIVE, SUSPECT, DEAD, LEFT = range(4)  # as in a push/pull

# What a member's memberlist understands, by the protocol max of its vsn. Source: memberlist 0.2.2 config.go.
UNDERSTANDS_STREAM_PING = 3
UNDERSTANDS_NACK = 4
UNDERSTANDS_CRC = 5


class Member:
    """What is believed of one member."""

    __slots__ = ("address", "changed_s", "incarnation", "mark", "meta", "name", "state", "suspicion", "vsn")

    def __init__(self, name: str, address: Address, meta: bytes, vsn: bytes, now_s: float) -> None:
        self.name = name
        self.address = address
        self.meta = meta
        self.vsn = vsn
        self.incarnation = 0  # see `Roster.set_incarnation`
        self.state = DEAD  # see `Roster.set_state`
        self.mark = 0  # its part of `Roster.view`
        self.changed_s = now_s  # of `state`
        self.suspicion: Suspicion | None = None  # Invariant: set exactly while state is SUSPECT

    @property
    def protocol_max(self) -> int:
        """The newest memberlist protocol that it understands, 0 when it did not say."""
        return self.vsn[1] if len(self.vsn) > 1 else 0

    @property
    def is_up(self) -> bool:
        """Neither dead nor gone."""
        return self.state <= SUSPECT

    def record(self) -> NodeRecord:
        """The same for others."""
        return NodeRecord(
            name=self.name,
            address=self.address,
            meta=self.meta,
            incarnation=self.incarnation,
            state=self.state,
            vsn=self.vsn,
        )


def mark(text: str) -> int:
    """32 bits for it, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


class Roster:
    """All members that are known, the local one among them, the dead until they are forgotten."""

    def __init__(self, rng: random.Random) -> None:
        self.by_name: dict[str, Member] = {}
        self.n_up = 0
        # 32 bits that two members have in common if both take the same members for up, under the same incarnations (which
        # cover addresses and tags). A suspect counts as up; the dead do not, for everybody forgets them at another time.
        self.view = 0
        self._rng = rng
        self._order: list[Member] = []  # of probing
        self._next = 0
        self._n_at: dict[Address, int] = {}  # members by address; two names may share one

    def __len__(self) -> int:
        return len(self._order)

    def get(self, name: str) -> Member | None:
        """The member of this name."""
        return self.by_name.get(name)

    def is_address(self, address: Address) -> bool:
        """Whether a member is there."""
        return address in self._n_at

    def add(self, member: Member) -> None:
        """Take in a new one (dead as yet), at a random place: appended ones would all be probed last, and late."""
        order = self._order
        place = int(self._rng.random() * (len(order) + 1))
        order.append(member)
        order[place], order[-1] = order[-1], order[place]
        self.by_name[member.name] = member
        self._n_at[member.address] = self._n_at.get(member.address, 0) + 1

    def set_state(self, member: Member, state: int, now_s: float) -> None:
        """Believe something else of it."""
        if state != member.state:
            self.n_up += (state <= SUSPECT) - (member.state <= SUSPECT)
            member.state = state
            member.changed_s = now_s
            self._mark(member)

    def set_incarnation(self, member: Member, incarnation: int) -> None:
        """It said so."""
        if incarnation != member.incarnation:
            member.incarnation = incarnation
            self._mark(member)

    def _mark(self, member: Member) -> None:
        """Have `view` tell what is believed of this one now.

        Of hashes whose bits mix: of sums such as CRC-32 two members that both went from 1 to 2 would cancel each other.
        """
        old = member.mark
        member.mark = mark(f"{member.incarnation}/{member.name}") if member.is_up else 0
        self.view ^= old ^ member.mark

    def move(self, member: Member, address: Address) -> None:
        """It is reached elsewhere from now on."""
        if address != member.address:
            self._forget_address(member)
            member.address = address
            self._n_at[address] = self._n_at.get(address, 0) + 1

    def pick(self, count: int, wanted: Callable[[Member], bool]) -> list[Member]:
        """Up to `count` different members at random; possibly fewer than there are, if few are wanted.

        O(count) on average. With few members all are looked at, with many some random ones, as memberlist does.
        """
        order = self._order
        n = len(order)
        if n <= 4 * count:
            return [member for member in self._rng.sample(order, n) if wanted(member)][:count]
        picked: list[Member] = []
        random_ = self._rng.random
        for _ in range(min(3 * n, 16 * count)):
            member = order[int(random_() * n)]
            if member not in picked and wanted(member):
                picked.append(member)
                if len(picked) == count:
                    break
        return picked

    def next_to_probe(self, now_s: float, skip: Member, keep_s: float) -> Member | None:
        """The next member in turn that is up; at the end of a round the dead are forgotten and the rest is shuffled.

        So any member is probed once within two rounds. Source: SWIM, section 4.3.
        """
        for _ in range(len(self._order) + 1):
            if self._next >= len(self._order):
                self._reap(now_s, skip, keep_s)
                self._rng.shuffle(self._order)
                self._next = 0
            member = self._order[self._next]
            self._next += 1
            if member is not skip and member.state <= SUSPECT:
                return member
        return None

    def _reap(self, now_s: float, me: Member, keep_s: float) -> None:
        """Forget those that are dead or gone for longer than `keep_s`, but never oneself."""
        if self.n_up == len(self._order):
            return
        kept = []
        for member in self._order:
            if member.state <= SUSPECT or member is me or now_s - member.changed_s <= keep_s:
                kept.append(member)
            else:
                del self.by_name[member.name]
                self._forget_address(member)
        self._order = kept

    def _forget_address(self, member: Member) -> None:
        n_left = self._n_at[member.address] - 1
        if n_left:
            self._n_at[member.address] = n_left
        else:
            del self._n_at[member.address]


__all__ = ["ALIVE", "DEAD", "LEFT", "SUSPECT", "Member", "Roster", "mark"]
