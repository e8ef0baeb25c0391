"""Clocks, and what is remembered of user events and queries by their times."""

import pytest

from beeyard.core.errors import NotFound
from beeyard.discovery.gossip.message import NOWHERE, EventItem, Query, UserEvent
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.lamport import AHEAD_MAX, LamportClock
from beeyard.discovery.gossip.serf.questions import N_SEEN_MAX, OpenQuestions, SeenQueries
from beeyard.discovery.gossip.serf.user_events import BYTES_KEPT_MAX, N_KEPT_MAX, UserEvents


def an_event(l_time: int, name: str = "deploy", payload: bytes = b"") -> UserEvent:
    return UserEvent(l_time=l_time, name=name, payload=payload)


def a_query(l_time: int, query_id: int = 1, timeout_s: float = 1.0) -> Query:
    return Query(
        l_time=l_time, id=query_id, address=NOWHERE, source_node="b", name="q", timeout_ns=round(timeout_s * 1e9)
    )


@pytest.mark.parametrize(
    ("witnessed", "expected"),
    [(0, 1), (1, 2), (41, 42), (1 + AHEAD_MAX, 2 + AHEAD_MAX), (2 + AHEAD_MAX, 1), (2**64 - 1, 1)],
)
def test_clock_is_later_than_all_it_witnessed_and_never_wraps(witnessed: int, expected: int) -> None:
    """Serf's clock wraps to 0 at 2**64 - 1, after which nothing is news."""
    clock = LamportClock()
    clock.witness(witnessed)
    assert clock.time() == expected


def test_clock_does_not_go_back() -> None:
    """What is witnessed late changes nothing."""
    clock = LamportClock(10)
    clock.witness(5)
    assert (clock.time(), clock.increment()) == (10, 11)


def test_event_is_new_once_by_time_name_and_payload() -> None:
    """Two events of one time are two, the same one again is none."""
    events = UserEvents(512)
    told = [events.take(event) for event in (an_event(5), an_event(5, payload=b"x"), an_event(5, "b"), an_event(5))]
    assert told == [True, True, True, False]
    assert events.clock.time() == 6


@pytest.mark.parametrize(
    ("l_time", "is_new"), [(488, False), (489, True), (1000, True), (1001, True), (-1, False), (2**64 - 1, False)]
)
def test_event_older_than_the_ring_is_passed_over(l_time: int, is_new: bool) -> None:
    """512 times are remembered: an older event might have been told. A time that cannot be is none."""
    events = UserEvents(512)
    events.take(an_event(1000))
    assert events.take(an_event(l_time, "other")) == is_new


def test_events_before_joining_are_not_told() -> None:
    """What a cluster went through before is not news to a newcomer; what comes later is."""
    events = UserEvents(512)
    events.ignore_before(7)
    assert [events.take(an_event(l_time)) for l_time in (6, 7)] == [False, True]


def test_recent_events_come_oldest_first_and_without_holes() -> None:
    """This is what a push/pull carries; Serf takes a list without its 512 empty places."""
    events = UserEvents(4)
    for l_time in (9, 3, 8, 12, 11, 10):
        events.take(an_event(l_time))
    assert [(at.l_time, at.events) for at in events.recent()] == [
        (l_time, (EventItem("deploy", b""),)) for l_time in (9, 10, 11, 12)
    ]


@pytest.mark.parametrize(("n_events", "n_bytes"), [(N_KEPT_MAX + 50, 1), (200, 60_000)])
def test_flood_of_events_at_few_times_is_bounded_and_never_told_twice(n_events: int, n_bytes: int) -> None:
    """A peer that picks the times cannot fill memory, and what was forgotten does not become new again."""
    events = UserEvents(512)
    flood = [an_event(1 + number % 3, str(number), b"x" * n_bytes) for number in range(n_events)]
    for event in flood:
        events.take(event)
    kept = [item for at in events.recent() for item in at.events]
    assert len(kept) <= N_KEPT_MAX
    assert sum(len(item.payload) for item in kept) <= BYTES_KEPT_MAX
    assert not any(events.take(event) for event in flood[:100])


def test_query_is_new_once_by_time_and_id() -> None:
    """Two queries of one time are told apart by their ids."""
    seen = SeenQueries(512)
    assert [seen.take(a_query(*key)) for key in ((3, 1), (3, 2), (3, 1), (700, 1), (100, 9))] == [
        *(True, True, False, True, False)
    ]


def test_flood_of_queries_is_bounded() -> None:
    """Ids of one time are forgotten with that time, which is old from then on."""
    seen = SeenQueries(512)
    for number in range(N_SEEN_MAX + 1):
        seen.take(a_query(5, number))
    assert not seen.take(a_query(5, 0))
    assert seen.take(a_query(6, 0))


def test_open_question_ends_with_its_time_or_its_answer() -> None:
    """An answer that comes late has nobody to go to."""
    questions = OpenQuestions(SerfConfig())
    query_id, question = questions.ask(10.0, a_query(1, timeout_s=2.0))
    assert question.deadline_s == 12.0
    assert questions.peek(12.0, query_id) is question
    with pytest.raises(NotFound):
        questions.peek(12.5, query_id)
    other_id, _ = questions.ask(10.0, a_query(2))
    questions.close(other_id)
    with pytest.raises(NotFound):
        questions.peek(10.0, other_id)


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(-5.0, 10.0), (0.0, 10.0), (1e9, 310.0)])
def test_timeout_of_a_peer_is_kept_within_bounds(timeout_s: float, expected_s: float) -> None:
    """Nobody keeps a question open here for a year."""
    assert OpenQuestions(SerfConfig()).ask(10.0, a_query(1, timeout_s=timeout_s))[1].deadline_s == expected_s


def test_oldest_open_questions_give_way() -> None:
    """A flood of questions takes the memory of 1,024."""
    questions = OpenQuestions(SerfConfig(n_open_queries_max=3))
    ids = [questions.ask(10.0, a_query(number))[0] for number in range(5)]
    with pytest.raises(NotFound):
        questions.peek(10.0, ids[1])
    assert questions.peek(10.0, ids[2]).l_time == 2
