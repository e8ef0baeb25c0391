"""Clusters in memory: joining, detection, and no false alarm. Bounds are those of real agents, see the tables below."""

import statistics

import msgspec
import pytest

from beeyard.discovery.gossip.swim import LAN
from tests.support.swim import Network

PEER = msgspec.structs.replace(LAN, refused_part=1.0)  # no use made of refused connections


def detection_s(n_hosts: int, seed: int, *, refuses: bool = True) -> float:
    """From a member's death until the last one knows it."""
    net = Network(n_hosts, seed=seed).joined()
    victim = net.hosts[n_hosts // 2]
    net.refuses_when_dead = refuses
    died_s = net.now_s
    net.kill(victim)
    net.run(30.0)
    seen = net.seen("failed", victim.name)
    assert len(seen) == n_hosts - 1
    assert {name for _, name in net.failures()} == {victim.name}
    assert max(seen) - min(seen) < 0.5
    return max(seen) - died_s


@pytest.mark.parametrize(("n_hosts", "n_seeds", "agents_s"), [(10, 3, 7.0), (30, 1, 8.0)])
def test_a_killed_process_is_noticed_sooner_than_by_real_agents(n_hosts: int, n_seeds: int, agents_s: float) -> None:
    assert statistics.median(detection_s(n_hosts, seed) for seed in range(n_seeds)) < agents_s - 1.0


def test_a_machine_that_vanished_is_noticed_as_soon_as_by_real_agents() -> None:
    assert statistics.median(detection_s(10, seed, refuses=False) for seed in range(3)) < 7.0


def test_many_that_join_at_once_know_each_other_within_a_second() -> None:
    """60 real agents take 1.2 s."""
    net = Network(60)
    for host in net.hosts[1:]:
        net.after(0.1, lambda host=host: net.join(host, net.hosts[0]))
    net.run(1.0)
    assert {host.knows() for host in net.hosts} == {60}


@pytest.mark.parametrize("seed", range(4))
def test_a_peer_that_is_frozen_for_six_seconds_is_not_failed(seed: int) -> None:
    net = Network(20, seed=seed).joined()
    net.freeze(net.hosts[7], 6.0)
    net.run(20.0)
    assert net.failures() == []
    assert net.hosts[7].rules.counts.stalls == 1


def test_with_much_loss_of_packets_nobody_is_even_suspected() -> None:
    net = Network(20).joined()
    net.loss = 0.4
    net.run(45.0)
    assert net.failures() == []
    assert sum(host.rules.counts.suspicions for host in net.hosts) == 0
    assert sum(host.rules.counts.probes_by_stream for host in net.hosts) > 50  # it is TCP that saved them


def test_a_member_that_was_cut_off_for_a_while_comes_back_by_itself() -> None:
    """Within the time that the dead are gossiped to; longer ones are the business of the layer above."""
    net = Network(10).joined()
    net.cut = {"n4"}
    net.run(20.0)
    assert len(net.seen("failed", "n4")) == 9
    net.cut = set()
    net.run(40.0)
    assert {host.knows() for host in net.hosts} == {10}


def test_who_leaves_is_seen_to_leave_by_all_and_never_to_fail() -> None:
    net = Network(20).joined()
    leaver, left_s = net.hosts[5], net.now_s
    net.leave(leaver)
    net.run(1.5)
    assert leaver.rules.leave_told()
    net.kill(leaver)
    net.run(60.0)
    seen = net.seen("left", leaver.name)
    assert len(seen) == 19
    assert max(seen) - left_s < 1.0
    assert net.failures() == []
    assert {host.rules.n_known for host in net.hosts if host is not leaver} == {19}  # and forgotten in the end


def test_who_restarts_with_its_first_incarnation_is_alive_again_soon() -> None:
    net = Network(10).joined()
    old = net.hosts[6]
    net.kill(old)
    net.run(20.0)
    new = net.restart(old)
    net.join(new, net.hosts[0])
    net.run(1.5)
    assert {host.knows() for host in net.hosts} == {10}
    assert new.rules.incarnation > 1


def test_a_quiet_member_sends_two_packets_a_second() -> None:
    """One ping, one answer; 300 bytes are the limit, and a coordinate takes a hundred more than these answers."""
    net = Network(30).joined()
    for host in net.hosts:
        host.n_packets = host.n_bytes = 0
    net.run(30.0)
    assert sum(host.n_packets for host in net.hosts) / 30 / 30 < 2.1
    assert sum(host.n_bytes for host in net.hosts) / 30 / 30 < 110


def test_the_same_seed_gives_the_same_story() -> None:
    def story() -> list[list[tuple[float, str, str]]]:
        net = Network(8, seed=5).joined()
        net.kill(net.hosts[2])
        net.run(12.0)
        return [host.log for host in net.hosts]

    assert story() == story()
