"""What a member does from time to time: forget old members, try failed ones, look again after joining.

Failed members are tried again, so that a partition heals whoever was on which side, however long it lasted.

Source: Serf 0.9.4 serf/serf.go (reconnect). Two things are ours: Serf tries one member, of which some may really be dead, and
forgets them all after a day.
"""

from __future__ import annotations

import math

from beeyard.discovery.gossip.command import Exchange
from beeyard.discovery.gossip.serf.context import Context

# Tried at a time. Whoever is on the smaller side of a partition tries every time; with three, it reaches the other side
# although most of those that it misses are dead.
N_TRIED = 3


def reconnect(context: Context) -> None:
    """Ask some failed member for an exchange, as often as there are failed members to alive ones."""
    roster = context.roster
    addresses = {name: member.address for name, member in roster.by_name.items() if member.status == "failed"}
    addresses.update(roster.lost)
    if not addresses:
        return
    n_alive = sum(member.status == "alive" for member in roster.by_name.values())
    if context.rng.random() >= len(addresses) / max(1, n_alive):
        return
    for name in context.rng.sample(sorted(addresses), min(N_TRIED, len(addresses))):
        context.memberlist.join_exchange(addresses[name])


# After joining, between these times. News reaches each member with a probability of 1 - exp(-8) or so: when sixty join at
# once, one run in seven leaves somebody unknown to somebody, who would only notice some seconds later (`serf.views`).
LOOK_AGAIN_S = (0.6, 1.6)


def look_again(context: Context) -> None:
    """Exchange with anybody, to learn who joined at the same time and was missed."""
    for node in context.memberlist.random_alive(1):
        context.memberlist.out.append(Exchange(to=node.address))


class Chores:
    """When what is due."""

    def __init__(self, context: Context) -> None:
        self._context = context
        config = context.config
        self._reap_at_s = context.now_s + config.reap_interval_s
        self._reconnect_at_s = context.now_s + context.rng.random() * config.reconnect_interval_s
        self._look_again_at_s = math.inf

    def joined(self) -> None:
        """An exchange to join has been merged."""
        self._look_again_at_s = self._context.now_s + self._context.rng.uniform(*LOOK_AGAIN_S)

    def next_at(self) -> float:
        """When `advance` has something to do."""
        return min(self._reap_at_s, self._reconnect_at_s, self._look_again_at_s, self._context.roster.next_prune_at())

    def advance(self, *, is_staying: bool) -> None:
        """Do what is due; a member that leaves asks nobody any more."""
        context = self._context
        now_s, config = context.now_s, context.config
        context.roster.prune_due(now_s)
        if self._reap_at_s <= now_s:
            context.roster.reap(now_s)
            self._reap_at_s = now_s + config.reap_interval_s
        if self._reconnect_at_s <= now_s:
            if is_staying:
                reconnect(context)
            self._reconnect_at_s = now_s + config.reconnect_interval_s
        if self._look_again_at_s <= now_s:
            if is_staying:
                look_again(context)
            self._look_again_at_s = math.inf


__all__ = ["LOOK_AGAIN_S", "N_TRIED", "Chores"]
