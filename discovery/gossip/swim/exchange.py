"""Push/pull: now and then two members tell each other all they know, which mends what gossip missed.

Memberlist does so by the clock: every 30 s, 3 minutes among 1,000 members. But what is told grows as fast as the cluster, and
nearly always the other one knew it: with the tags that daemons have it would be 560 bytes a second and member among 1,000,
compressed, which is two and a half times what all probes take. So the clock is slower here where the state is large
(`Config.push_pull_bytes_s`), and a member that has missed something notices by itself: whoever answers a probe says in 32
bits what it believes (`serf.views`), and one with whom nobody agrees asks for an exchange, seconds after gossip has passed
it by.

Source: memberlist 0.2.2 state.go `pushPullTrigger`, `mergeState`, util.go `pushPullScale`.
"""

from __future__ import annotations

import math

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.command import Exchange
from beeyard.discovery.gossip.message import Address, Alive, Dead, NodeRecord, PushPull, Suspect
from beeyard.discovery.gossip.swim.beliefs import Beliefs, is_compatible
from beeyard.discovery.gossip.swim.context import Context
from beeyard.discovery.gossip.swim.roster import ALIVE, LEFT

SCALE_FROM = 32  # members from which exchanges get rarer


def push_pull_scale(n_known: int) -> int:
    """By how much rarer exchanges are: 1 up to 32 members, 2 up to 64, 3 up to 128 and so on."""
    return 1 if n_known <= SCALE_FROM else math.ceil(math.log2(n_known) - math.log2(SCALE_FROM)) + 1


class Exchanges:
    """When to exchange, what to send, and what to make of what came."""

    def __init__(self, context: Context, beliefs: Beliefs) -> None:
        self._context = context
        self._beliefs = beliefs
        self._state_bytes = 0  # of the last one sent, in a frame
        self._mended_s = -math.inf

    @property
    def gap_s(self) -> float:
        """The time between two exchanges by memberlist's rule."""
        return self._context.config.push_pull_interval_s * push_pull_scale(len(self._context.roster))

    @property
    def interval_s(self) -> float:
        """The time between two exchanges: longer where two states, one in each direction, would take too many bytes."""
        return max(self.gap_s, 2 * self._state_bytes / self._context.config.push_pull_bytes_s)

    def sent(self, n_bytes: int) -> None:
        """A state went out, in so many bytes."""
        self._state_bytes = n_bytes

    def start(self, now_s: float) -> None:
        """Begin, at a random moment of the first interval."""
        delay_s = self._context.rng.random() * self._context.config.push_pull_interval_s
        self._context.timers.at(now_s + delay_s, self._tick)

    def _tick(self, now_s: float) -> None:
        context = self._context
        context.timers.at(now_s + self.interval_s, self._tick)
        for member in context.roster.pick(1, lambda other: other.state == ALIVE and other is not context.me):
            self.ask(member.address, join=False)

    def mend(self, now_s: float, name: str) -> None:
        """Exchange with a member that believes something else, unless that was done a short time ago.

        What an exchange does not mend is not tried at each probe: then it is as it would be by the clock alone.
        """
        member = self._context.roster.get(name)
        if member is not None and member.state == ALIVE and now_s - self._mended_s >= self.gap_s:
            self._mended_s = now_s
            self._context.counts.mends += 1
            self.ask(member.address, join=False)

    def ask(self, to: Address, *, join: bool) -> None:
        """Have the driver exchange with somebody."""
        self._context.out.append(Exchange(to=to, join=join))

    def state(self, *, join: bool) -> PushPull:
        """All that this member knows."""
        context = self._context
        nodes = tuple(member.record() for member in context.roster.by_name.values())
        return PushPull(nodes=nodes, user_state=context.delegate.local_state(join=join), join=join)

    def merge(self, now_s: float, remote: PushPull, *, join: bool) -> None:
        """Take in what a peer knows. See `Memberlist.merge`."""
        context = self._context
        if len(remote.nodes) > context.config.members_max:
            raise RemoteProtocolError(
                f"push/pull: nodes: {len(remote.nodes)} given, at most {context.config.members_max} are taken"
            )
        others = [record for record in remote.nodes if record.name != context.me.name]
        welcome = [record for record in others if self._is_welcome(record)]
        if others and not welcome:
            # Another cluster, or one of other versions: its clocks and events are none of ours either.
            raise RemoteProtocolError(f"push/pull: nodes: none of the {len(others)} given belongs to this cluster")
        for record in remote.nodes if len(welcome) == len(others) else [*self._mine(remote), *welcome]:
            self._merge_record(now_s, record)
        if remote.user_state:
            context.delegate.merge_remote_state(remote.user_state, join=join)

    def _mine(self, remote: PushPull) -> list[NodeRecord]:
        return [record for record in remote.nodes if record.name == self._context.me.name]

    def _is_welcome(self, record: NodeRecord) -> bool:
        context = self._context
        known = context.roster.get(record.name)
        if known is not None and known.meta == record.meta and known.vsn == record.vsn:
            return True  # as it was when it was taken in; asking costs the delegate more than all the rest
        if not is_compatible(record.vsn, context.me.vsn):
            context.counts.refused += 1
            return False
        if not context.delegate.is_welcome(_alive(record)):
            context.counts.unwelcome += 1
            return False
        return True

    def _merge_record(self, now_s: float, record: NodeRecord) -> None:
        if record.state == ALIVE:
            self._beliefs.alive(now_s, _alive(record))
        elif record.state == LEFT:
            self._beliefs.dead(now_s, Dead(incarnation=record.incarnation, node=record.name, from_node=record.name))
        else:
            # Nobody is killed on hearsay: a member that is dead to the peer is suspect here, and may refute.
            me = self._context.me.name
            self._beliefs.suspect(now_s, Suspect(incarnation=record.incarnation, node=record.name, from_node=me))


def _alive(record: NodeRecord) -> Alive:
    return Alive(
        incarnation=record.incarnation,
        node=record.name,
        address=record.address,
        meta=record.meta,
        vsn=record.vsn,
    )


__all__ = ["Exchanges", "push_pull_scale"]
