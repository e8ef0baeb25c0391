"""What can be set about Serf's rules. Memberlist's own figures are in `swim`.

Source: Serf 0.9.4 serf/config.go (DefaultConfig), cmd/serf/command/agent/config.go.
"""

from __future__ import annotations

import msgspec

DAY_S = 24 * 3600.0


class SerfConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults are those of `serf agent`. Times in seconds, sizes in bytes."""

    # How long a failed member is kept in the list, and one that left. Longer: more names in every push/pull.
    reconnect_timeout_s: float = DAY_S
    tombstone_timeout_s: float = DAY_S
    reap_interval_s: float = 15.0

    # How often failed members are tried again. A partition heals within this time after the network does.
    reconnect_interval_s: float = 30.0

    # Failed members whose record has been reaped and whose address is tried further, for partitions longer than a day.
    n_lost_max: int = 64

    # How long an intent about somebody unknown waits for the member to show up, and how many of them are kept.
    recent_intent_timeout_s: float = 300.0
    n_recent_intents_max: int = 4096

    # Members that are kept. Each costs about 1 KiB; a peer can name as many as it likes.
    n_members_max: int = 65536

    # User events and queries remembered, by their Lamport time: what is older than this many is passed over.
    n_event_times: int = 512
    n_query_times: int = 512

    user_event_bytes_max: int = 512  # name and payload together, and the encoded message
    query_bytes_max: int = 1024  # the encoded message
    query_response_bytes_max: int = 1024

    query_timeout_mult: int = 16
    # Queries of others that wait here for an answer; the oldest is let go.
    n_open_queries_max: int = 1024
    # A peer asks for any timeout: a query stays open no longer than this.
    query_timeout_s_max: float = 300.0

    # A leave intent is sent out for at most this long before memberlist says the same, and so is memberlist's word.
    broadcast_timeout_s: float = 5.0
    # After a leave is told, how long this member stays to pass it on.
    leave_propagate_s: float = 1.0

    # Broadcasts that wait; beyond it the oldest go. Source: Serf's MaxQueueDepth, which is 4096 in the agent.
    n_queued_max: int = 4096

    # The minority in a conflict of names stops by itself.
    resolve_conflicts: bool = True


__all__ = ["SerfConfig"]
