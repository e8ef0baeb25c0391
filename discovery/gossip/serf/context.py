"""What the parts of one Serf member share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.event import Event, MemberEvent
from beeyard.discovery.gossip.serf.lamport import LamportClock
from beeyard.discovery.gossip.serf.roster import Roster
from beeyard.discovery.gossip.serf.rtt_histogram import RttHistogram
from beeyard.discovery.gossip.swim import Memberlist
from beeyard.discovery.gossip.swim.transmit_queue import TransmitQueue

# A broadcast that fills a datagram leaves no room for the ping that it travels with. Source: UDPBufferSize of memberlist.
BROADCAST_BYTES_MAX = 1300

# Why a message is passed over: it cannot be read; it could never be sent on; nobody waits for the answer; it names an address
# outside the cluster; it relays something else than an answer; its coordinate cannot be.
REASONS = ("malformed", "oversized", "response", "stranger", "relay", "coordinate")


class Context:
    """Fields as said in `Serf`; `now_s` is the time of the call that is going on. `dropped`: what was passed over, by why."""

    def __init__(
        self,
        now_s: float,
        name: str,
        address: Address,
        config: SerfConfig,
        rng: random.Random,
        emit: Callable[[MemberEvent], None],
    ) -> None:
        self.now_s = now_s
        self.name = name
        self.address = address
        self.config = config
        self.rng = rng
        self.events: list[Event] = []
        self.clock = LamportClock()
        self.roster = Roster(config, emit)
        self.dropped = Counter(dict.fromkeys(REASONS, 0))
        self.rtts = RttHistogram()
        # Who goes by the name of a member from another address, and until when that is remembered.
        self.rivals: dict[Address, float] = {}
        self.memberlist: Memberlist  # set by `Serf`, since it wants a delegate that wants this
        self.broadcasts: Broadcasts

    def is_known(self, address: Address, name: str) -> bool:
        """Whether something may be sent to an address that a peer has named: never to somebody outside the cluster."""
        member = self.roster.by_name.get(name)
        if member is not None and member.address == address:
            return True
        return any(member.address == address for member in self.roster.by_name.values())

    def is_rival(self, address: Address) -> bool:
        """Whether somebody there goes by a member's name: it may be told the votes on it, and nothing else."""
        return self.rivals.get(address, 0.0) > self.now_s

    def has_alive_others(self) -> bool:
        """Whether anybody is there to be told something."""
        return any(member.status == "alive" and name != self.name for name, member in self.roster.by_name.items())


class Broadcasts:
    """What Serf wants everyone to hear: intents before queries before user events."""

    def __init__(self, memberlist: Memberlist, n_members: Callable[[], int], n_queued_max: int) -> None:
        self._n_queued_max = n_queued_max
        self.intents, self.queries, self.events = (memberlist.new_queue(n_members) for _ in range(3))

    def put(self, queue: TransmitQueue, data: bytes, done: Callable[[], None] | None = None) -> bool:
        """Queue one; False: too large to ever be sent."""
        if len(data) > BROADCAST_BYTES_MAX:
            return False
        queue.queue(data, done=done)
        if len(queue) > self._n_queued_max:
            queue.prune(self._n_queued_max)
        return True

    def forget(self) -> None:
        """Send nothing of what waits."""
        for queue in (self.intents, self.queries, self.events):
            queue.prune(0)

    def draw(self, overhead: int, limit: int) -> list[bytes]:
        """What fits into a packet with `limit` bytes left."""
        drawn: list[bytes] = []
        for queue in (self.intents, self.queries, self.events):
            if len(queue) and limit > overhead:
                found = queue.draw(overhead, limit)
                limit -= sum(map(len, found)) + overhead * len(found)
                drawn += found
        return drawn


__all__ = ["BROADCAST_BYTES_MAX", "Broadcasts", "Context"]
