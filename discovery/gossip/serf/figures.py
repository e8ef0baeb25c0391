"""Numbers for metrics."""

from __future__ import annotations

import msgspec

from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.event import STATUSES


def figures_of(context: Context, clocks: tuple[int, int, int]) -> dict[str, float]:
    """Members by status, clocks (members, events, queries), what waits, what memberlist counts, what was dropped."""
    figures = {f"members_{status}": 0.0 for status in STATUSES[1:]}
    for member in context.roster.by_name.values():
        figures[f"members_{member.status}"] += 1
    memberlist, broadcasts = context.memberlist, context.broadcasts
    figures |= {
        "health_score": float(memberlist.health),
        "member_time": float(clocks[0]),
        "event_time": float(clocks[1]),
        "query_time": float(clocks[2]),
        "exchange_interval_s": memberlist.exchange_interval_s,
        "queued_members": float(memberlist.n_queued),
        "queued_intents": float(len(broadcasts.intents)),
        "queued_queries": float(len(broadcasts.queries)),
        "queued_events": float(len(broadcasts.events)),
    }
    figures |= {f"swim_{name}": float(count) for name, count in msgspec.structs.asdict(memberlist.counts).items()}
    figures |= {f"dropped_{reason}": float(context.dropped[reason]) for reason in sorted(context.dropped)}
    return figures | context.rtts.figures()


__all__ = ["figures_of"]
