"""Some Serf members in one process: their rules, a network that delays, loses and splits, and a clock that jumps."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.command import Exchange, PingByStream, SendPacket
from beeyard.discovery.gossip.message import Address, Ping
from beeyard.discovery.gossip.serf.event import Event
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire import codec

QUESTIONS_AND_ANSWERS = (0, 1, 2, 11)  # types of memberlist: ping, indirect ping, ack, nack
DELAY_S = (0.0002, 0.002)


class SerfWorld:
    """Members by name in `serfs`, and in `events` when each was told what."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0) -> None:
        self.now_s = 100.0
        self.serfs: dict[str, Serf] = {}
        self.events: dict[str, list[tuple[float, Event]]] = {}
        self.n_packets = 0
        self.loss = loss
        self.overtaking: Callable[[bytes], float] = lambda part: 0.0  # more delay for packets with this part
        self.deaf: frozenset[str] = frozenset()  # whom no news reaches, only questions and answers
        self._seed = seed
        self._rng = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._by_address: dict[Address, str] = {}
        self._alarms: dict[str, float] = {}
        self._group: dict[str, int] = {}

    # --- what is done to it ------------------------------------------------------------------------------------------

    def add(self, name: str, tags: dict[str, str] | None = None, *, host: str = "", **options: Any) -> Serf:
        """Start a member. `host`: its address, else one of its own."""
        address = Address(host or f"10.1.{len(self._by_address) >> 8}.{len(self._by_address) & 255}", 7946)
        key = name if name not in self.serfs else f"{name}@{address.host}"
        serf = Serf(
            self.now_s,
            name=name,
            address=address,
            tags=tags or {},
            rng=random.Random(f"{self._seed}/{key}"),
            **options,
        )
        self.serfs[key] = serf
        self.events.setdefault(key, [])
        self._by_address[address] = key
        self._group[key] = 0
        self._alarms[key] = float("inf")
        self.act(key)
        return serf

    def join(self, name: str, other: str) -> None:
        """Have one join the other."""
        serf = self.serfs[name]
        serf.join(self.now_s, self.serfs[other].me.address)
        self.act(name)

    def cluster(self, n_members: int, **options: Any) -> list[str]:
        """Members m00, m01 and so on, joined to the first and known to each other."""
        names = [f"m{number:02}" for number in range(n_members)]
        for name in names:
            self.add(name, **options)
        for name in names[1:]:
            self.join(name, names[0])
        self.run(8.0)
        for name in names:
            assert [m.name for m in self.serfs[name].members() if m.status == "alive"] == names
        return names

    def crash(self, name: str) -> None:
        """It is gone, and what is under way to it is lost."""
        serf = self.serfs.pop(name)
        del self._by_address[serf.me.address]

    def split(self, *groups: Iterable[str]) -> None:
        """Only members of one group reach each other; none: all do."""
        self._group = dict.fromkeys(self._group, 0)
        for number, group in enumerate(groups):
            self._group.update(dict.fromkeys(group, number))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, happening = heapq.heappop(self._heap)
            happening()
        self.now_s = end_s

    def act(self, key: str) -> None:
        """Carry out what a member wants after something was done to it."""
        serf = self.serfs[key]
        while serf.out:
            commands, serf.out[:] = list(serf.out), []
            for command in commands:
                match command:
                    case SendPacket(to=to, parts=parts):
                        self._send(key, to, parts)
                    case PingByStream(to=to, ping=ping, seq_no=seq_no):
                        self._later(lambda to=to, ping=ping, seq_no=seq_no: self._stream_ping(key, to, ping, seq_no))
                    case Exchange(to=to, join=join):
                        self._later(lambda to=to, join=join: self._exchange(key, to, join))
        self.events[key] += [(self.now_s, event) for event in serf.events]
        serf.events.clear()
        next_s = max(serf.next_at(), self.now_s)
        if next_s < self._alarms[key]:
            self._alarms[key] = next_s
            self._at(next_s, lambda: self._ring(key, next_s))

    # --- what is asked ---------------------------------------------------------------------------------------------------

    def told(self, key: str, kind: type, since_s: float = 0.0) -> list[Any]:
        """Events of a kind that a member was told of."""
        return [event for at_s, event in self.events[key] if isinstance(event, kind) and at_s >= since_s]

    def statuses(self, name: str) -> list[str]:
        """What everybody who is up thinks of a member, without itself."""
        views = [serf.member(name) for key, serf in self.serfs.items() if key != name]
        return ["unknown" if view is None else view.status for view in views]

    # --- the network ---

    def _at(self, when_s: float, happening: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when_s, next(self._numbers), happening))

    def _later(self, happening: Callable[[], None]) -> None:
        self._at(self.now_s + self._rng.uniform(*DELAY_S), happening)

    def _ring(self, key: str, when_s: float) -> None:
        if key in self.serfs and self._alarms[key] == when_s:
            self._alarms[key] = float("inf")
            self.serfs[key].advance(self.now_s)
            self.act(key)

    def _reaches(self, key: str, to: Address) -> str:
        """Who is there; "": nobody, or not for this one."""
        other = self._by_address.get(to, "")
        return other if other and self._group[other] == self._group.get(key) else ""

    def _send(self, key: str, to: Address, parts: tuple[bytes, ...]) -> None:
        self.n_packets += 1
        if self._rng.random() < self.loss:
            return
        source = self.serfs[key].me.address
        delay_s = self._rng.uniform(*DELAY_S) + max(map(self.overtaking, parts))

        def arrive() -> None:
            other = self._reaches(key, to)
            for part in parts if other else ():
                if other in self.deaf and part[0] not in QUESTIONS_AND_ANSWERS:
                    continue
                self.serfs[other].handle(self.now_s, codec.decode(part), source)
            if other:
                self.act(other)

        self._at(self.now_s + delay_s, arrive)

    def _stream_ping(self, key: str, to: Address, ping: Ping, seq_no: int) -> None:
        other = self._reaches(key, to)
        if key in self.serfs and other and self.serfs[other].answer_stream_ping(ping) is not None:
            self.serfs[key].stream_ack(self.now_s, seq_no)
            self.act(key)

    def _exchange(self, key: str, to: Address, join: bool) -> None:
        other = self._reaches(key, to)
        if key not in self.serfs or not other:
            return
        asking, answering = self.serfs[key], self.serfs[other]
        said = asking.push_pull(self.now_s, join=join)
        answer = answering.push_pull(self.now_s, join=said.join)
        try:
            answering.merge(self.now_s, said, join=join)
            asking.merge(self.now_s, answer, join=join)
            if join:
                asking.joined(self.now_s)
        except RemoteProtocolError:
            pass
        self.act(other)
        self.act(key)


__all__ = ["SerfWorld"]
