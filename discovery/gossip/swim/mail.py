"""Packing and gossip: what is sent carries news along, and news is sent without an occasion too."""

from __future__ import annotations

import math
from collections.abc import Callable

from beeyard.discovery.gossip.command import SendPacket
from beeyard.discovery.gossip.message import Address, Message, User
from beeyard.discovery.gossip.swim.context import Context
from beeyard.discovery.gossip.swim.roster import DEAD, SUSPECT, UNDERSTANDS_CRC, Member
from beeyard.discovery.gossip.swim.timers import Timer
from beeyard.discovery.gossip.swim.transmit_queue import TransmitQueue
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.packet import COMPOUND_OVERHEAD, COMPOUND_PARTS_MAX, PART_OVERHEAD

USER_OVERHEAD = 1  # memberlist's type byte before a user message
# While one packet cannot take all news (many members join at once), a piece of it goes to fewer members in each round, so
# rounds come at this part of the interval; what is sent in all stays the same. A refutation has its round as soon.
HASTE_PART = 0.25


class Mail:
    """Sends packets, and holds the queue of memberlist's own broadcasts.

    Gossip rests while there is nothing to say. The first news after a rest goes out at once, what follows within the
    interval waits for its end; memberlist always waits for the next tick of its clock. No member sends more by that.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.news = self.new_queue(lambda: len(context.roster))
        self._layer_above: list[TransmitQueue] = []
        self._wanted = False  # there is news, and gossip is not scheduled
        self._timer: Timer | None = None
        self._last_s = -math.inf
        self._in_haste = False

    # --- queues ---

    def new_queue(self, n_nodes: Callable[[], int]) -> TransmitQueue:
        """A queue that wakes gossip up."""
        return TransmitQueue(n_nodes, self._context.config.retransmit_mult, self._wake)

    def new_queue_above(self, n_nodes: Callable[[], int]) -> TransmitQueue:
        """One from which the delegate draws."""
        queue = self.new_queue(n_nodes)
        self._layer_above.append(queue)
        return queue

    def broadcast(self, message: Message, about: str, done: Callable[[], None] | None = None) -> None:
        """Tell everyone, in place of what was to be told about the same member."""
        self.news.queue(encode(message), name=about, done=done)

    # --- packets ---

    def post(self, to: Address, *messages: Message, crc: bool = False, piggyback: bool = True) -> None:
        """Send messages in one packet, with as much news as fits."""
        parts = [encode(message) for message in messages]
        if piggyback:
            room = self._room() - sum(len(part) + PART_OVERHEAD for part in parts)
            parts += self._draw(room, COMPOUND_PARTS_MAX - len(parts))
        self._context.out.append(SendPacket(to=to, parts=tuple(parts), crc=crc))

    def _room(self) -> int:
        return self._context.config.packet_bytes - self._context.packet_overhead_bytes - COMPOUND_OVERHEAD

    def _draw(self, room: int, n_max: int) -> list[bytes]:
        """News for one packet: memberlist's first, the delegate's in what is left."""
        parts = self.news.draw(PART_OVERHEAD, room, n_max)
        room -= sum(len(part) + PART_OVERHEAD for part in parts)
        overhead = PART_OVERHEAD + USER_OVERHEAD
        # The delegate is not asked for more parts than a compound holds: its smallest message takes a byte or more.
        if room > overhead and len(parts) < n_max:
            above = self._context.delegate.broadcasts(overhead, room)
            parts += [encode(User(data=data)) for data in above[: n_max - len(parts)]]
        return parts

    # --- gossip ---

    def wants_gossip(self) -> bool:
        """Whether `arrange` is to be called."""
        return self._wanted

    def _wake(self) -> None:
        if self._timer is None:
            self._wanted = True

    def arrange(self, now_s: float) -> None:
        """Gossip now, or schedule it for when the interval is over."""
        if not self._wanted:
            return
        self._wanted = False
        part, self._in_haste = (HASTE_PART if self._in_haste else 1.0), False
        due_s = self._last_s + part * self._context.config.gossip_interval_s
        if due_s <= now_s:
            self.gossip(now_s)
        else:
            self._timer = self._context.timers.at(due_s, self._tick)

    def hurry(self) -> None:
        """What was just queued cannot wait for the interval's end."""
        if self._timer is not None:
            self._context.timers.cancel(self._timer)
            self._timer = None
        self._in_haste = True
        self._wanted = True

    def _tick(self, now_s: float) -> None:
        self._timer = None
        self.gossip(now_s)

    def gossip(self, now_s: float) -> None:
        """Send news to some members: to living ones, and to the dead for a while, who may only seem so."""
        context, config = self._context, self._context.config
        self._last_s = now_s
        me, told_since_s = context.me, now_s - config.gossip_to_the_dead_s

        def hears(member: Member) -> bool:
            if member is me:
                return False
            return member.state <= SUSPECT or (member.state == DEAD and member.changed_s > told_since_s)

        targets = context.roster.pick(config.gossip_nodes, hears)
        is_crowded = False
        for target in targets:
            n_waiting = self._n_waiting()
            parts = self._draw(self._room(), COMPOUND_PARTS_MAX)
            if not parts:
                break
            is_crowded = len(parts) < n_waiting
            crc = target.protocol_max >= UNDERSTANDS_CRC
            context.out.append(SendPacket(to=target.address, parts=tuple(parts), crc=crc))
        # With nobody to tell, news waits for the next news, which is somebody's coming.
        if targets and self._n_waiting():
            part = HASTE_PART if is_crowded else 1.0
            self._timer = context.timers.at(now_s + part * config.gossip_interval_s, self._tick)

    def _n_waiting(self) -> int:
        return len(self.news) + sum(len(queue) for queue in self._layer_above)


__all__ = ["Mail"]
