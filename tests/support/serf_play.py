"""One member of Serf, what it is told, and what it does about it. No clock, no network."""

import random
from collections.abc import Mapping
from typing import Any, TypeVar

from beeyard.discovery.gossip.command import SendPacket
from beeyard.discovery.gossip.message import (
    Address,
    Alive,
    MergeState,
    Message,
    NodeRecord,
    PushPull,
    Query,
    User,
)
from beeyard.discovery.gossip.serf.event import (
    Event,
)
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire import codec
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_serf,
    encode_serf,
    encode_tags,
)

M = TypeVar("M", bound=Message)

VSN = bytes((1, 5, 2, 2, 5, 5))
ME, STRANGER = Address("10.0.0.1", 7946), Address("192.0.2.66", 53)


def address_of(name: str) -> Address:
    return Address(f"10.0.1.{ord(name[0])}", 7946)


class Play:
    """A member "a", what it is told, and what it does about it."""

    def __init__(self, *others: str, **options: Any) -> None:
        self.now_s = 10.0
        options.setdefault("tags", {"role": "web"})
        self.serf = Serf(self.now_s, name="a", address=ME, rng=random.Random(1), **options)
        for name in others:
            self.meet(name)
        self.settle()

    def meet(self, name: str, tags: Mapping[str, str] | None = None, address: Address | None = None) -> None:
        at = address or address_of(name)
        alive = Alive(incarnation=1, node=name, address=at, meta=encode_tags(tags or {}), vsn=VSN)
        self.serf.handle(self.now_s, alive, at)

    def hear(self, message: Message, source: str = "b") -> None:
        self.serf.handle(self.now_s, User(data=encode_serf(message)), address_of(source))

    def settle(self) -> None:
        """Gossip until there is nothing more to say, and forget it all."""
        self.serf.forget_broadcasts()
        self.serf.out.clear()
        self.serf.events.clear()

    def events(self) -> list[Event]:
        found = list(self.serf.events)
        self.serf.events.clear()
        return found

    def sent(self) -> list[tuple[Address, Message]]:
        """Serf's messages in packets since last time, without gossip."""
        found = [
            (command.to, decode_serf(message.data))
            for command in self.serf.out
            if isinstance(command, SendPacket)
            for message in map(codec.decode, command.parts)
            if isinstance(message, User)
        ]
        self.serf.out.clear()
        return found

    def packets(self, kind: type[M]) -> list[M]:
        """Messages of a kind in what was sent and not looked at by `sent` yet."""
        packets = [command for command in self.serf.out if isinstance(command, SendPacket)]
        return [m for packet in packets for m in map(codec.decode, packet.parts) if isinstance(m, kind)]

    def broadcasts(self) -> list[Message]:
        """What Serf adds to a packet with much room."""
        return [decode_serf(data) for data in self.serf._context.broadcasts.draw(3, 60_000)]

    def pass_time(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while (at_s := max(self.serf.next_at(), self.now_s)) <= end_s:
            self.now_s = at_s
            self.serf.advance(at_s)
        self.now_s = end_s


def a_query(name: str = "q", *, l_time: int = 5, asks: str = "b", **fields: Any) -> Query:
    fields.setdefault("address", address_of(asks))
    return Query(l_time=l_time, id=77, source_node=asks, name=name, timeout_ns=3_000_000_000, **fields)


def a_remote(state: MergeState | None, *names: str) -> PushPull:
    nodes = [NodeRecord(name=name, address=address_of(name), incarnation=1, vsn=VSN) for name in names]
    return PushPull(nodes=tuple(nodes), user_state=b"" if state is None else encode_serf(state))
