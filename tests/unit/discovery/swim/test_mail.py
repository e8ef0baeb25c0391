"""Packing and gossip: what goes into packets, when, and to whom."""

import itertools
import math

import pytest

from beeyard.discovery.gossip.command import SendPacket
from beeyard.discovery.gossip.message import Ack, Ping, User
from beeyard.discovery.gossip.swim import Config
from tests.support.swim import Scene, alive, at, dead, messages_of, suspect

QUIET = Config(probe_interval_s=1e6, push_pull_interval_s=1e6)  # gossip alone, and never a probe


def rounds(scene: Scene, for_s: float) -> list[tuple[float, int]]:
    """When packets go out, and how many."""
    end_s, sent = scene.now_s + for_s, []
    scene.drain()
    while scene.rules.next_at() <= end_s:
        scene.now_s = max(scene.now_s, scene.rules.next_at())
        scene.rules.advance(scene.now_s)
        if commands := scene.drain():
            sent.append((scene.now_s, len(commands)))
    return sent


def test_without_news_nothing_is_sent_and_nothing_wakes_up() -> None:
    scene = Scene("a", "b", "c", config=QUIET)
    assert rounds(scene, 100.0) == []


def test_first_news_goes_out_at_once_then_every_interval_until_it_was_said_often_enough() -> None:
    scene = Scene(*"abcdefghijklm", config=QUIET)
    scene.now_s += 1.0
    begun_s = scene.now_s
    scene.hear(alive("a", 2))
    assert scene.rules.next_at() == -math.inf
    # 14 members: 8 transmits, 3 a round.
    assert rounds(scene, 10.0) == [
        (pytest.approx(begun_s), 3),
        (pytest.approx(begun_s + 0.2), 3),
        (pytest.approx(begun_s + 0.4), 2),
    ]


def test_more_news_within_the_interval_waits_for_its_end() -> None:
    scene = Scene(*"abcd", config=QUIET)
    scene.now_s += 1.0
    scene.hear(alive("a", 2))
    scene.rules.advance(scene.now_s)
    scene.drain()
    scene.hear(alive("b", 2))
    assert scene.rules.next_at() == pytest.approx(scene.now_s + 0.2)


def test_the_accused_waits_for_a_quarter_of_the_interval_at_most() -> None:
    scene = Scene(*"abcd", config=QUIET)
    scene.now_s += 1.0
    scene.hear(alive("a", 2))
    scene.rules.advance(scene.now_s)
    scene.drain()
    scene.hear(suspect("me"))
    sent = rounds(scene, 0.1)
    assert sent == [(pytest.approx(scene.now_s), 3)]
    assert scene.now_s == pytest.approx(101.05)


def test_however_many_accusations_come_refutations_have_their_pace() -> None:
    scene = Scene(*"abcd", config=QUIET)
    scene.now_s += 1.0
    n_packets = 0
    for incarnation in range(1, 101):
        scene.now_s += 0.002
        scene.hear(suspect("me", incarnation))
        scene.rules.advance(scene.now_s)
        n_packets += len(scene.drain())
    assert scene.rules.incarnation == 101
    assert n_packets <= 3 * 5  # rounds within 0.2 s


def test_news_that_does_not_fit_into_a_packet_makes_rounds_come_sooner() -> None:
    scene = Scene(*"abcd", config=QUIET)
    scene.now_s += 1.0
    scene.hear(*[alive(f"n{i}", 1, meta=b"m" * 100) for i in range(40)])
    times = [at_s for at_s, _ in rounds(scene, 60.0)]
    gaps = [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]
    assert gaps[0] == 0.05
    assert set(gaps) <= {0.05, 0.2}


@pytest.mark.parametrize(
    ("message", "after_s", "hears"),
    [
        (alive("b", 2), 0.0, True),
        (suspect("b"), 0.0, True),
        (dead("b"), 0.0, True),
        (dead("b"), 29.0, True),  # it may only seem so, and can refute
        (dead("b"), 31.0, False),
        (dead("b", by="b"), 0.0, False),
    ],
)
def test_gossip_goes_to_the_living_and_for_a_while_to_the_dead(message: object, after_s: float, hears: bool) -> None:
    scene = Scene("a", "b", config=QUIET)
    scene.hear(message)  # type: ignore[arg-type]
    scene.settle()
    scene.now_s += after_s
    scene.hear(alive("a", 2))
    scene.rules._mail.gossip(scene.now_s)
    assert (at("b") in {to for _, to in messages_of(scene.drain())}) == hears


def test_alone_news_waits_and_nothing_wakes_up() -> None:
    scene = Scene(config=QUIET)
    scene.rules.update_meta(scene.now_s)
    assert rounds(scene, 100.0) == []
    scene.hear(alive("a"))
    assert any(alive("me", 2, address=m.address) == m for m in scene.said() if getattr(m, "node", "") == "me")


@pytest.mark.parametrize("overhead", [0, 29, 45])
def test_no_packet_is_larger_than_agreed(overhead: int) -> None:
    scene = Scene("a", "b")
    scene.rules.packet_overhead_bytes = overhead
    assert scene.rules.packet_overhead_bytes == overhead
    scene.hear(*[alive(f"node-{i}", 1, meta=b"m" * (i % 90)) for i in range(100)])
    scene.notes.waiting = [b"u" * 40] * 50
    scene.hear(*[Ping(seq_no=i, node="me", source=at("a")) for i in range(30)], source=at("a"))
    packets = [command for command in scene.drain() if isinstance(command, SendPacket)]
    sizes = [overhead + 2 + sum(2 + len(part) for part in packet.parts) for packet in packets]
    assert len(packets) == 30
    assert max(sizes) <= 1400
    assert max(sizes) > 1250  # and they are well filled


def test_no_packet_has_more_parts_than_peers_can_count() -> None:
    scene = Scene("a", "b")
    scene.notes.waiting = [b"."] * 500
    scene.hear(Ping(seq_no=1, node="me"), source=at("a"))
    [packet] = scene.drain()
    assert isinstance(packet, SendPacket)
    assert len(packet.parts) == 127


def test_the_layer_above_speaks_in_what_memberlist_leaves() -> None:
    scene = Scene("a", "b")
    scene.notes.waiting = [b"\x03event"]
    scene.hear(suspect("b"), Ping(seq_no=1, node="me"), source=at("a"))
    assert [message for message, _ in messages_of(scene.drain())] == [
        Ack(seq_no=1, payload=b"here"),
        suspect("b"),
        User(data=b"\x03event"),
    ]


def test_what_the_layer_above_queues_wakes_gossip_up() -> None:
    scene = Scene("a", "b", config=QUIET)
    scene.now_s += 1.0
    queue = scene.rules.new_queue(lambda: 3)
    queue.queue(b"\x03event")
    assert scene.rules.next_at() == -math.inf
    scene.rules.advance(scene.now_s)
    assert scene.rules.next_at() == -math.inf or scene.rules.next_at() <= scene.now_s + 0.2  # it has not been drawn


def test_user_messages_are_handed_up_and_sent_alone() -> None:
    scene = Scene("a")
    scene.hear(suspect("a"), User(data=b"\x06answer"))
    assert scene.notes.user == [b"\x06answer"]
    scene.rules.send_user(at("x"), b"\x05question")
    assert messages_of(scene.drain()) == [(User(data=b"\x05question"), at("x"))]


def test_a_checksum_goes_to_those_that_understand_it() -> None:
    scene = Scene("a")
    scene.hear(alive("b", vsn=bytes((1, 4, 2, 2, 5, 5))))
    scene.rules._mail.gossip(scene.now_s)
    assert {command.to: command.crc for command in scene.drain() if isinstance(command, SendPacket)} == {
        at("a"): True,
        at("b"): False,
    }
