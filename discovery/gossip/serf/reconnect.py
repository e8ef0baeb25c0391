"""Failed members are tried again, so that a partition heals whoever was on which side, however long it lasted.

Source: Serf 0.9.4 serf/serf.go (reconnect). Two things are ours: Serf tries one member, of which some may really be dead, and
forgets them all after a day.
"""

from __future__ import annotations

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
        context.memberlist.join_exchange(addresses[name], name)


__all__ = ["N_TRIED", "reconnect"]
