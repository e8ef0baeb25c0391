"""A member that did not run for a while: what it finds overdue says nothing about others."""

import pytest

from beeyard.discovery.gossip.message import Ack, Nack
from tests.support.swim import Network, Scene, alive, at, suspect


@pytest.mark.parametrize("asleep_s", [3.0, 8.0, 3600.0])
def test_a_probe_from_before_is_not_judged(asleep_s: float) -> None:
    scene = Scene(*"abcd")
    ping = scene.until_probe()
    scene.now_s += asleep_s
    scene.rules.advance(scene.now_s)
    scene.until(scene.now_s + 0.05)
    assert scene.state(ping.node) == "alive"
    assert scene.rules.counts.stalls == 1
    scene.hear(Ack(seq_no=ping.seq_no), Nack(seq_no=ping.seq_no))  # found in the socket afterwards
    assert scene.notes.rtts == []


@pytest.mark.parametrize("answered", [True, False])
def test_after_a_short_absence_what_has_arrived_is_read_before_anybody_is_judged(answered: bool) -> None:
    scene = Scene(*"abcd")
    ping = scene.until_probe()
    scene.until(scene.now_s + 0.6)
    scene.now_s += 0.9  # the verdict is overdue by half a second
    scene.rules.advance(scene.now_s)
    assert scene.state(ping.node) == "alive"
    assert scene.rules.counts.late == 1
    if answered:
        scene.hear(Ack(seq_no=ping.seq_no))
    scene.now_s += 0.7  # late again: there was time to read, so no more of it is given
    scene.rules.advance(scene.now_s)
    assert scene.state(ping.node) == ("alive" if answered else "suspect")
    assert scene.rules.counts.late == 1


def test_no_suspicion_got_older_meanwhile() -> None:
    scene = Scene(*"abcd")
    scene.hear(*[suspect("a", 1, by=accuser) for accuser in "xyz"])
    begun_s = scene.now_s
    scene.now_s += 1000.0
    scene.rules.advance(scene.now_s)
    suspicion = scene.rules._context.roster.by_name["a"].suspicion
    assert suspicion is not None
    # Of the 4 s some were over when the first of its deadlines passed, and a grace is given for reading.
    left_s = suspicion.due_s - scene.now_s
    assert 4.0 - (scene.now_s - begun_s - 1000.0) - 1.0 < left_s <= 4.1
    scene.hear(alive("a", 2))
    scene.until(scene.now_s + 0.09)
    assert scene.state("a") == "alive"
    assert ("failed", "a") not in scene.notes.told


def test_it_is_noticed_by_whatever_comes_first() -> None:
    scene = Scene("a")
    scene.now_s += 500.0
    scene.hear(alive("b"))
    assert scene.rules.counts.stalls == 1
    assert scene.rules.next_at() > scene.now_s or scene.rules._mail.wants_gossip()
    assert scene.rules.health == 1


@pytest.mark.parametrize("late_s", [0.01, 0.1, 0.24])
def test_what_is_a_little_late_is_done_at_once(late_s: float) -> None:
    scene = Scene("a")
    for _ in range(20):
        scene.now_s = max(scene.now_s, scene.rules.next_at() + late_s)
        scene.rules.advance(scene.now_s)
        assert scene.rules.next_at() > scene.now_s or scene.rules._mail.wants_gossip()
    assert (scene.rules.counts.late, scene.rules.counts.stalls) == (0, 0)


def test_ticks_that_were_missed_are_skipped() -> None:
    scene = Scene(*"abcd")
    scene.now_s += 100.0
    scene.rules.advance(scene.now_s)
    scene.drain()
    before = scene.rules.counts.probes
    scene.until(scene.now_s + 1.05)
    assert scene.rules.counts.probes - before <= 2


@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_was_frozen_fails_nobody(seed: int) -> None:
    """It may be failed itself; whom it was probing and suspecting is none the worse for it."""
    net = Network(10, seed=seed).joined()
    sleeper, suspected = net.hosts[3], net.hosts[5]
    sleeper.rules.handle(net.now_s, suspect(suspected.name, suspected.rules.incarnation, by="n1"), at("n1"))
    net.freeze(sleeper, 20.0)
    net.run(60.0)
    assert {name for _, name in net.failures()} <= {sleeper.name}
    assert all(host.knows() == 10 for host in net.hosts)


def test_a_machine_that_is_always_late_still_finds_the_dead() -> None:
    """Every turn comes 0.3 s late. Were that made up for, time would hardly pass."""
    scene = Scene(*"abcd")
    begun_s = scene.now_s
    while scene.state("a") != "dead":
        scene.now_s = max(scene.now_s, scene.rules.next_at()) + 0.3
        scene.rules.advance(scene.now_s)
        scene.drain()
        assert scene.now_s < begun_s + 60.0
