"""What alive, suspect and dead messages do to a member, and how this one speaks for itself."""

import pytest

from beeyard.discovery.gossip.message import Address, Alive, Dead, Message, Suspect
from beeyard.discovery.gossip.swim import LAN, VSN, Config
from beeyard.discovery.gossip.swim.beliefs import is_compatible, is_unicast
from tests.support.swim import Scene, alive, at, dead, messages_of, suspect

BEFORE = {
    "alive": [alive("a", 5)],
    "suspect": [alive("a", 5), suspect("a", 5, "y")],
    "dead": [alive("a", 5), dead("a", 5, "y")],
    "left": [alive("a", 5), dead("a", 5, "a")],
}


@pytest.mark.parametrize(
    ("before", "message", "after", "told", "passed_on"),
    [
        # The same or an older incarnation says nothing new of a member that is alive; a newer one does.
        ("alive", alive("a", 4), "alive", [], False),
        ("alive", alive("a", 5), "alive", [], False),
        ("alive", alive("a", 6), "alive", [], True),
        ("alive", alive("a", 6, meta=b"m"), "alive", ["update"], True),
        ("alive", suspect("a", 4), "alive", [], False),
        ("alive", suspect("a", 5), "suspect", [], True),
        ("alive", suspect("a", 6), "suspect", [], True),
        ("alive", dead("a", 4), "alive", [], False),
        ("alive", dead("a", 5), "dead", ["failed"], True),
        ("alive", dead("a", 5, "a"), "left", ["left"], True),
        # Suspicion is refuted by a greater incarnation alone; another accuser is news, the same one is not.
        ("suspect", alive("a", 5), "suspect", [], False),
        ("suspect", alive("a", 6), "alive", [], True),
        ("suspect", suspect("a", 5, "z"), "suspect", [], True),
        ("suspect", suspect("a", 5, "y"), "suspect", [], False),
        ("suspect", dead("a", 5), "dead", ["failed"], True),
        ("suspect", dead("a", 5, "a"), "left", ["left"], True),
        # The dead come back with a greater incarnation alone.
        ("dead", alive("a", 5), "dead", [], False),
        ("dead", alive("a", 6), "alive", ["join"], True),
        ("dead", suspect("a", 6), "dead", [], False),
        ("dead", dead("a", 6), "dead", [], False),
        ("left", alive("a", 5), "left", [], False),
        ("left", alive("a", 6), "alive", ["join"], True),
        ("left", suspect("a", 6), "left", [], False),
        ("left", dead("a", 6), "left", [], False),
    ],
)
def test_a_message_changes_a_belief_by_state_and_incarnation(
    before: str, message: Message, after: str, told: list[str], passed_on: bool
) -> None:
    scene = Scene("x", "y", "z")
    scene.hear(*BEFORE[before])
    scene.settle()
    scene.notes.told.clear()
    scene.hear(message)
    assert scene.state("a") == after
    assert scene.notes.told == [(what, "a") for what in told]
    assert (message in scene.said()) == passed_on


def test_a_stranger_joins_with_its_first_alive_message() -> None:
    scene = Scene("x")
    scene.hear(alive("new", 1, meta=b"tags"))
    assert scene.notes.told == [("join", "new")]
    assert scene.notes.records[0].meta == b"tags"
    assert scene.rules.n_alive == scene.rules.n_known == 3


@pytest.mark.parametrize("message", [suspect("who"), dead("who"), dead("who", by="who")])
def test_accusations_of_strangers_are_dropped(message: Message) -> None:
    scene = Scene("x")
    scene.hear(message)
    assert scene.state("who") == "unknown"
    assert scene.said() == []


@pytest.mark.parametrize(
    "message",
    [
        alive("", 1),
        alive("n" * 256, 1),
        alive("ä" * 128, 1),
        alive("a", 0),
        alive("a", 1, meta=b"m" * 513),
        alive("a", 1, address=Address("224.0.0.1", 7946)),
        alive("a", 1, address=Address("ff02::1", 7946)),
        alive("a", 1, address=Address("255.255.255.255", 7946)),
        alive("a", 1, address=Address("0.0.0.0", 7946)),
        alive("a", 1, address=Address("nowhere", 7946)),
        alive("a", 1, vsn=bytes((0, 5, 2, 2, 5, 5))),
        alive("a", 1, vsn=bytes((3, 5, 3, 2, 5, 5))),
        alive("a", 1, vsn=bytes((1, 5, 2, 6, 7, 7))),
    ],
)
def test_what_cannot_be_a_member_is_refused_and_counted(message: Alive) -> None:
    scene = Scene("x")
    scene.hear(message)
    assert scene.rules.n_known == 2
    assert scene.rules.counts.refused == 1
    assert scene.said() == []


def test_no_more_members_are_kept_than_allowed() -> None:
    scene = Scene("x", config=Config(members_max=10))
    scene.hear(*[alive(f"n{i}") for i in range(50)])
    assert scene.rules.n_known == 10
    assert scene.rules.counts.refused == 42
    assert scene.state("x") == "alive"


def test_members_of_another_cluster_stay_out() -> None:
    scene = Scene("x")
    scene.notes.unwelcome = ("b",)
    scene.hear(alive("a"), alive("b"))
    assert (scene.state("a"), scene.state("b")) == ("alive", "unknown")
    assert scene.rules.counts.unwelcome == 1


def test_a_missing_port_is_ones_own() -> None:
    scene = Scene()
    scene.hear(alive("a", 1, address=Address("10.1.1.1", 0)))
    record = scene.rules.member("a")
    assert record is not None
    assert record.address == Address("10.1.1.1", 7946)


def test_a_member_that_stops_to_say_its_versions_keeps_them() -> None:
    scene = Scene("a")
    scene.hear(alive("a", 2, vsn=b""))
    record = scene.rules.member("a")
    assert record is not None
    assert (record.incarnation, record.vsn) == (2, VSN)


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (VSN, True),
        (b"", True),
        (b"\x01\x05", True),
        (bytes((1, 5, 2, 2, 5, 4)), True),
        (bytes((1, 9, 2, 2, 9, 5)), True),
        (bytes((1, 5, 0, 2, 5, 5)), False),
        (bytes((1, 5, 6, 2, 5, 5)), False),
        (bytes((5, 1, 2, 2, 5, 5)), False),
        (bytes((1, 5, 2, 2, 4, 4)), False),
    ],
)
def test_versions_go_together_when_each_understands_the_other(theirs: bytes, expected: bool) -> None:
    assert is_compatible(theirs, VSN) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("10.0.0.1", True), ("127.0.0.1", True), ("fd00::1", True), ("239.1.2.3", False), ("::", False), ("", False)],
)
def test_packets_go_to_single_hosts_alone(host: str, expected: bool) -> None:
    assert is_unicast(Address(host, 1)) == expected


# --- addresses -----------------------------------------------------------------------------------------------------------


def test_another_address_under_a_living_name_is_a_conflict() -> None:
    scene = Scene("a", "b")
    scene.hear(alive("a", 9, address=Address("10.7.7.7", 1)))
    assert scene.notes.told == [("conflict", "a")]
    assert scene.notes.records[0].address == Address("10.7.7.7", 1)
    record = scene.rules.member("a")
    assert record is not None
    assert (record.address, record.incarnation) == (at("a"), 1)
    assert scene.said() == []


@pytest.mark.parametrize(
    ("end", "after_s", "config", "taken_over"),
    [
        (dead("a", 1, "a"), 0.0, LAN, True),
        (dead("a", 1, "b"), 1.0, LAN, False),
        (dead("a", 1, "b"), 29.0, LAN, False),
        (dead("a", 1, "b"), 31.0, LAN, True),  # it is kept for the rest of a round only
        (dead("a", 1, "b"), 9.0, Config(reclaim_s=10.0), False),
        (dead("a", 1, "b"), 11.0, Config(reclaim_s=10.0), True),
    ],
)
def test_a_name_is_free_again_after_leaving_and_a_while_after_death(
    end: Dead, after_s: float, config: Config, taken_over: bool
) -> None:
    scene = Scene("a", "b", config=config)
    scene.hear(end)
    scene.notes.told.clear()
    scene.now_s += after_s
    # Under the old incarnation: who is new there does not know of an earlier life.
    scene.hear(alive("a", 1, address=Address("10.7.7.7", 1)))
    assert scene.notes.told == [("join" if taken_over else "conflict", "a")]


def test_somebody_with_my_name_is_a_conflict_for_me_too() -> None:
    scene = Scene("a")
    scene.hear(alive("me", 5))
    assert scene.notes.told == [("conflict", "me")]
    assert scene.rules.incarnation == 1


# --- me ------------------------------------------------------------------------------------------------------------------

MINE = Address("10.9.9.9", 7946)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (suspect("me", 1), 2),
        (suspect("me", 7), 8),  # a later number than mine, from a life before
        (dead("me", 1), 2),
        (dead("me", 7, "me"), 8),
        (alive("me", 1, address=MINE), 1),  # an echo
        (alive("me", 1, address=MINE, meta=b"other"), 2),
        (alive("me", 4, address=MINE), 5),
        (suspect("me", 0), 1),
        (suspect("me", 0xFFFF_FFFE), 0xFFFF_FFFF),
        (dead("me", 0xFFFF_FFFF), 0xFFFF_FFFF),  # there is none greater
    ],
)
def test_what_is_said_of_me_is_refuted_with_a_greater_incarnation(message: Message, expected: int) -> None:
    scene = Scene("a", "b")
    scene.hear(message)
    assert scene.rules.incarnation == expected
    assert scene.state("me") == "alive"
    told = [m for m in scene.said() if isinstance(m, Alive) and m.node == "me"]
    assert bool(told) == (expected != 1)
    assert all(m.incarnation == expected for m in told)
    assert scene.rules.health == (expected != 1)


def test_an_accuser_is_answered_directly_and_at_once() -> None:
    """A frozen member that wakes up has tenths of a second before its accusers' time is up."""
    scene = Scene(*"abcdefgh")
    scene.hear(suspect("me", 1, by="a"))
    to = [to for message, to in messages_of(scene.drain()) if isinstance(message, Alive)]
    assert to == [at("a")]
    # Others that accuse me still have not heard of it: once each.
    scene.hear(suspect("me", 1, by="b"), suspect("me", 1, by="b"), suspect("me", 1, by="stranger"))
    to = [to for message, to in messages_of(scene.drain()) if isinstance(message, Alive)]
    assert to == [at("b")]


def test_meta_is_told_under_a_new_incarnation() -> None:
    scene = Scene("a")
    scene.notes.my_meta = b"new"
    scene.rules.update_meta(scene.now_s)
    assert scene.notes.told == [("update", "me")]
    assert alive("me", 2, address=MINE, meta=b"new") in scene.said()


def test_who_leaves_says_so_until_it_was_said_often_enough() -> None:
    scene = Scene("a", "b")
    scene.rules.leave(scene.now_s)
    assert scene.notes.told == [("left", "me")]
    assert not scene.rules.leave_told()
    said = [message for message, _ in messages_of(scene.until(scene.now_s + 3.0))]
    assert said.count(dead("me", 1, "me")) == 4  # 4 · ceil(log10(3 + 1))
    assert scene.rules.leave_told()


def test_who_has_left_does_not_come_back_by_what_others_say() -> None:
    scene = Scene("a", "b")
    scene.rules.leave(scene.now_s)
    scene.hear(suspect("me"), dead("me", 3), alive("me", 9, address=MINE))
    assert scene.state("me") == "left"
    assert scene.rules.incarnation == 1


def test_who_has_left_does_not_forget_itself() -> None:
    scene = Scene("a", "b")
    scene.rules.leave(scene.now_s)
    scene.until(scene.now_s + 100.0)
    scene.hear(alive("me", 9, address=Address("10.7.7.7", 7946)))
    assert scene.state("me") == "left"
    assert scene.rules.push_pull(scene.now_s, join=False).nodes


def test_alone_one_has_left_at_once() -> None:
    scene = Scene()
    scene.rules.leave(scene.now_s)
    assert scene.rules.leave_told()


# --- suspicion -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accusers", "expected_s"), [("x", 24.0), ("xy", 11.381), ("xyz", 4.0), ("xyzw", 4.0)])
def test_a_suspect_is_dead_when_its_time_is_up(accusers: str, expected_s: float) -> None:
    scene = Scene(*"axyzwv")
    begun_s = scene.now_s
    for accuser in accusers:
        scene.hear(suspect("a", 1, by=accuser))
    timed = scene.rules._context.roster.by_name["a"].suspicion
    assert timed is not None
    assert timed.due_s - begun_s == pytest.approx(expected_s, abs=0.002)
    scene.rules._context.timers.run(begun_s + expected_s + 0.01)
    assert scene.state("a") == "suspect"  # it has the last word
    scene.rules._context.timers.run(begun_s + expected_s + 0.27)
    assert scene.state("a") == "dead"
    assert dead("a", 1, "me") in scene.said()


@pytest.mark.parametrize("accuser", ["me", "x"])
def test_a_suspect_has_the_last_word_and_its_accusers_ask_for_it(accuser: str) -> None:
    scene = Scene(*"axyz", config=Config(probe_interval_s=1e6, suspicion_mult=1))  # nobody is probed
    member = scene.rules._context.roster.by_name["a"]
    scene.hear(suspect("a", 1, by=accuser))
    assert member.suspicion is not None
    member.suspicion.since_s = scene.now_s - member.suspicion.due_s + scene.now_s + 1.0  # to end in a second
    scene.rules._beliefs._set_timer(scene.now_s, member)
    scene.settle()
    scene.rules._context.timers.run(scene.now_s + 1.0)
    asked = messages_of(scene.drain())
    assert ((suspect("a", 1, by="me"), at("a")) in asked) == (accuser == "me")
    scene.hear(alive("a", 2))
    assert scene.state("a") == "alive"


def test_late_confirmations_end_a_suspicion_at_once() -> None:
    scene = Scene(*"axyzwv")
    scene.hear(suspect("a", 1, by="x"))
    begun_s = scene.now_s
    while scene.now_s < begun_s + 6.0:  # answered probes keep the others alive
        scene.until_probe()
    scene.hear(suspect("a", 1, by="y"), suspect("a", 1, by="z"))
    assert scene.state("a") == "suspect"  # not in the middle of a datagram, which may hold the refutation
    scene.until(scene.now_s + 0.24)
    assert scene.state("a") == "suspect"
    scene.until(scene.now_s + 0.02)
    assert scene.state("a") == "dead"


def test_a_refutation_stops_the_clock() -> None:
    scene = Scene(*"axyz")
    scene.hear(suspect("a", 1, by="x"), suspect("a", 1, by="y"), suspect("a", 1, by="z"), alive("a", 2))
    scene.rules._context.timers.run(scene.now_s + 60.0)
    assert ("failed", "a") not in scene.notes.told


def test_a_suspicion_counts_messages_of_its_own_incarnation_or_later() -> None:
    scene = Scene(*"axyz")
    scene.hear(alive("a", 3), suspect("a", 3, by="x"), Suspect(incarnation=2, node="a", from_node="y"))
    member = scene.rules._context.roster.by_name["a"]
    assert member.suspicion is not None
    assert member.suspicion.confirm("y")  # it had not been counted
