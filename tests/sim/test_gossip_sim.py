"""A cluster of gossip members on a heap of events: what it promises at a size that a test can afford."""

from __future__ import annotations

from benchmarks.gossip_sim import Cluster, measure


def test_a_death_is_seen_by_all_and_idle_members_send_little() -> None:
    """A host that is gone is failed for everybody within the time that Serf's figures give, and nobody else is;
    one seed gives one result."""
    first = measure(24, seed=3, deaths=1)
    assert first == measure(24, seed=3, deaths=1)
    # About 1.6 s until somebody probes, 1 s for the probe, 5.5 s of suspicion at 24 members, and gossip.
    assert 5.5 < first.detect_median_s < 14
    assert first.spread_max_s < 2
    assert first.false_failures == 0
    # One ping and one answer a second, and an exchange of all that is known every half minute.
    assert 1.9 < first.idle_packets_s < 2.1
    assert first.idle_packets_bytes_s + first.idle_streams_bytes_s < 300


def test_loss_fails_nobody() -> None:
    """With a fifth of all packets lost nobody is failed for a minute."""
    cluster = Cluster(16, loss=0.2)
    cluster.introduce()
    cluster.run_until(60)
    assert cluster.failures == []
    assert all(len(member.members()) == 16 for member in cluster.members.values())
