"""The numbers of memberlist, with the three profiles that its peers use."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """How a member watches others and spreads news. The defaults are the profile `LAN`.

    All members of a cluster should have the same profile: a member that suspects sooner than others refute is a nuisance.
    Source: memberlist 0.2.2 config.go, `DefaultLANConfig`, `DefaultWANConfig`, `DefaultLocalConfig`.
    """

    # A probe: one ping every interval, its answer expected within the timeout (choose the 99th percentile of round trips),
    # helpers and TCP are asked then, and the interval's end is the verdict. Shorter: sooner detection, more traffic.
    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.5
    indirect_checks: int = 3  # helpers asked

    # Suspicion lasts mult · max(1, log10 N) · probe interval with enough confirmations, max_mult times that with none.
    suspicion_mult: int = 4
    suspicion_max_mult: int = 6
    # Of that shortest time, the part that is enough when the suspect's host itself refuses a TCP connection: no process
    # listens there. It is positive evidence, which a slow member cannot produce about another (a frozen process still
    # accepts). 0.5 leaves a daemon that restarts 2 s to come back; 1 is what memberlist does.
    refused_part: float = 0.5

    # Gossip: so many members get a packet every interval while there is something to say; every broadcast is sent
    # retransmit_mult · ceil(log10(N + 1)) times.
    gossip_interval_s: float = 0.2
    gossip_nodes: int = 3
    retransmit_mult: int = 4
    gossip_to_the_dead_s: float = 30.0  # the dead are told for so long, and then forgotten

    push_pull_interval_s: float = 30.0  # longer from 33 members on, see `push_pull_scale`
    # What a member's exchanges by the clock may take, bytes a second in both directions; they are rarer where states are
    # larger. With probes, 230 B/s in a cluster of any size, a member stays below 300. Ours: memberlist has no bound.
    push_pull_bytes_s: float = 40.0
    stream_timeout_s: float = 10.0  # a whole exchange over TCP, connecting included
    health_max: int = 8  # own troubles stretch the probe interval by at most this
    packet_bytes: int = 1400  # of one datagram, everything included
    # A dead member's name may be taken over from another address after so long; 0: when it would be forgotten.
    reclaim_s: float = 0.0

    # Bounds on what peers can make us keep; a record takes about 1 KiB. Ours: memberlist has none.
    members_max: int = 16_384
    name_bytes_max: int = 255


LAN = Config()
WAN = Config(
    probe_interval_s=5.0,
    probe_timeout_s=3.0,
    suspicion_mult=6,
    gossip_interval_s=0.5,
    gossip_nodes=4,
    gossip_to_the_dead_s=60.0,
    push_pull_interval_s=60.0,
    stream_timeout_s=30.0,
)
LOCAL = Config(
    probe_timeout_s=0.2,
    indirect_checks=1,
    suspicion_mult=3,
    gossip_interval_s=0.1,
    retransmit_mult=2,
    gossip_to_the_dead_s=15.0,
    push_pull_interval_s=15.0,
    stream_timeout_s=1.0,
)

__all__ = ["LAN", "LOCAL", "WAN", "Config"]
