"""Queries, keys and names in one member's rules: messages in, commands and events out."""

from typing import Any

import pytest

from beeyard.core.errors import InvalidSpec, NotFound
from beeyard.discovery.gossip.message import (
    Address,
    ConflictResponse,
    JoinIntent,
    KeyResponse,
    Query,
    QueryResponse,
    Relay,
)
from beeyard.discovery.gossip.serf.event import (
    KeyringChanged,
    KeysDone,
    NameTaken,
    QueryAck,
    QueryAnswer,
    QueryAsked,
    QueryDone,
)
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.serf_codec import (
    NodeFilter,
    decode_serf,
    encode_filter,
    encode_serf,
)
from tests.support.serf_play import ME, STRANGER, Play, a_query, address_of

# --- queries ---


def test_query_is_asked_here_too_and_its_answers_come_to_who_asked() -> None:
    """Ack and answer of each member once, then the end."""
    play = Play("b", "c")
    query_id = play.serf.query(play.now_s, "uptime", b"?", ack=True)
    asked = [event for event in play.events() if isinstance(event, QueryAsked)]
    (query,) = play.broadcasts()
    assert isinstance(query, Query)
    assert (query.name, query.flags, query.address, query.source_node) == ("uptime", 1, ME, "a")
    play.serf.answer(play.now_s, asked[0].query_id, b"1 day")
    for name in ("b", "b", "c"):
        play.hear(QueryResponse(l_time=query.l_time, id=query.id, from_node=name, flags=1))
        play.hear(QueryResponse(l_time=query.l_time, id=query.id, from_node=name, payload=name.encode()))
    answers = [(e.from_node, e.payload) for e in play.serf.events if isinstance(e, QueryAnswer)]
    assert answers == [("a", b"1 day"), ("b", b"b"), ("c", b"c")]
    play.pass_time(3.3)
    assert [event for event in play.events() if isinstance(event, QueryDone)] == [
        QueryDone(query_id=query_id, n_acks=3, n_answers=3)
    ]


@pytest.mark.parametrize(
    "response",
    [
        QueryResponse(l_time=99, id=1, from_node="b"),
        QueryResponse(l_time=1, id=1, from_node="b"),
        QueryResponse(l_time=2**64 - 1, id=1, from_node="b", flags=1),
    ],
)
def test_answer_that_nobody_waits_for_is_dropped_and_counted(response: QueryResponse) -> None:
    """Of another time, another id, or after the end."""
    play = Play("b")
    play.serf.query(play.now_s, "q")
    play.events()
    play.hear(response)
    assert play.events() == []
    assert play.serf.figures()["dropped_response"] == 1.0


def test_invented_names_do_not_answer_for_ever() -> None:
    """Twice as many answers as members, and some, are believed."""
    play = Play("b")
    play.serf.query(play.now_s, "q")
    (query,) = play.broadcasts()
    assert isinstance(query, Query)
    for number in range(500):
        play.hear(QueryResponse(l_time=query.l_time, id=query.id, from_node=f"x{number}"))
    assert sum(isinstance(event, QueryAnswer) for event in play.events()) == 20


def test_closed_query_tells_nothing_more() -> None:
    """Neither answers nor an end."""
    play = Play("b")
    query_id = play.serf.query(play.now_s, "q", nodes=["b"])
    play.serf.close_query(query_id)
    play.pass_time(10.0)
    assert [event for event in play.events() if isinstance(event, QueryAck | QueryAnswer | QueryDone)] == []


def test_question_is_acknowledged_passed_on_and_answered_once() -> None:
    """Straight to who asked; the second answer is an error, and so is one after the time."""
    play = Play("b")
    query = a_query(flags=1, payload=b"?")
    play.hear(query)
    play.hear(query)
    assert play.sent() == [(address_of("b"), QueryResponse(l_time=5, id=77, from_node="a", flags=1))]
    assert play.broadcasts() == [query]
    (asked,) = play.events()
    assert isinstance(asked, QueryAsked)
    assert (asked.name, asked.payload, asked.source_node, asked.deadline_s) == ("q", b"?", "b", play.now_s + 3.0)
    with pytest.raises(InvalidSpec, match="1024 bytes"):
        play.serf.answer(play.now_s, asked.query_id, b"x" * 1024)
    play.serf.answer(play.now_s, asked.query_id, b"!")
    assert play.sent() == [(address_of("b"), QueryResponse(l_time=5, id=77, from_node="a", payload=b"!"))]
    with pytest.raises(NotFound):
        play.serf.answer(play.now_s, asked.query_id, b"!")


def test_question_for_others_is_passed_on_without_a_word() -> None:
    """No ack, no event; and with the flag against it not even that."""
    play = Play("b")
    others = (encode_filter(NodeFilter(names=("b",))),)
    play.hear(a_query(flags=1, filters=others))
    play.hear(a_query(l_time=6, flags=2, filters=others))
    assert play.sent() == play.events() == []
    assert [query.l_time for query in play.broadcasts() if isinstance(query, Query)] == [5]


def test_nobody_outside_the_cluster_is_sent_an_answer_or_a_relay() -> None:
    """A forged address would make each member shoot at it."""
    play = Play("b", "c")
    response = QueryResponse(l_time=1, id=1, from_node="c")
    play.hear(a_query("_serf_ping", flags=1, address=STRANGER))
    play.hear(Relay(destination=STRANGER, destination_node="b", inner=encode_serf(response)))
    play.hear(
        Relay(destination=address_of("b"), destination_node="b", inner=encode_serf(JoinIntent(l_time=1, node="c")))
    )
    assert play.sent() == []
    figures = play.serf.figures()
    assert (figures["dropped_stranger"], figures["dropped_relay"]) == (2.0, 1.0)
    play.hear(Relay(destination=address_of("b"), destination_node="b", inner=encode_serf(response)))
    assert play.sent() == [(address_of("b"), response)]


def test_answer_goes_through_others_too_on_request() -> None:
    """As many copies as asked for, each by another member; none when there are too few of them."""
    play = Play("b", "c", "d")
    play.hear(a_query("_serf_ping", flags=1, relay_factor=2))
    response = QueryResponse(l_time=5, id=77, from_node="a", flags=1)
    direct, *relays = play.sent()
    assert direct == (address_of("b"), response)
    assert {to for to, _ in relays} == {address_of("c"), address_of("d")}
    assert {message for _, message in relays} == {
        Relay(destination=address_of("b"), destination_node="b", inner=encode_serf(response))
    }
    play.hear(a_query("_serf_ping", l_time=6, flags=1, relay_factor=4))
    assert len(play.sent()) == 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"payload": b"x" * 1024}, "query"),
        ({"nodes": ["x" * 50] * 30}, "query"),
        ({"tags": {"role": "("}}, "expression"),
        ({"relay_factor": 256}, "relay_factor"),
        ({"timeout_s": 0.0}, "timeout"),
        ({"timeout_s": 301.0}, "timeout"),
    ],
)
def test_query_that_cannot_work_is_refused(options: dict[str, Any], field: str) -> None:
    """Before anybody is asked; names the field."""
    play = Play("b")
    with pytest.raises(InvalidSpec) as refused:
        play.serf.query(play.now_s, "q", **options)
    assert refused.value.field == field
    assert play.events() == play.broadcasts() == []


def test_internal_names_cannot_be_asked_by_the_application() -> None:
    """Nor does it hear of them."""
    play = Play("b")
    with pytest.raises(InvalidSpec, match="_serf_"):
        play.serf.query(play.now_s, "_serf_install-key")
    play.hear(a_query("_serf_unknown"))
    assert play.events() == play.sent() == []


@pytest.mark.parametrize(("n_members", "expected_s"), [(1, 3.2), (9, 3.2), (10, 6.4)])
def test_default_timeout_grows_with_the_logarithm_of_the_cluster(n_members: int, expected_s: float) -> None:
    """3.2 s below ten members, as measured of Serf's agent."""
    play = Play(*"bcdefghijk"[: n_members - 1])
    assert play.serf.default_query_timeout_s() == pytest.approx(expected_s)


# --- keys and names ---


def test_keys_are_changed_by_the_word_of_the_cluster() -> None:
    """The driver hears that there is something to write; all alive answer, and it is done at once."""
    keyring = Keyring([b"1" * 16], random_bytes=bytes)
    play = Play("b", keyring=keyring)
    query_id = play.serf.install_key(play.now_s, b"2" * 32)
    assert keyring.keys == (b"1" * 16, b"2" * 32)
    (query,) = play.broadcasts()
    assert isinstance(query, Query)
    good = encode_serf(KeyResponse(result=True))
    play.hear(QueryResponse(l_time=query.l_time, id=query.id, from_node="b", payload=good))
    assert play.events() == [KeyringChanged(), KeysDone(query_id=query_id, n_members=2, n_answers=2, n_good=2)]
    with pytest.raises(InvalidSpec, match="16, 24 or 32 bytes, not 3"):
        play.serf.use_key(play.now_s, b"abc")


def test_keys_are_done_when_the_time_is_up_though_some_are_silent() -> None:
    """n_good below n_members says that it did not work everywhere."""
    play = Play("b", keyring=Keyring([b"1" * 16], random_bytes=bytes))
    play.serf.list_keys(play.now_s)
    play.pass_time(3.3)
    (done,) = [event for event in play.events() if isinstance(event, KeysDone)]
    assert (done.n_members, done.n_answers, done.n_good) == (2, 1, 1)
    assert list(done.keys.values()) == list(done.primary_keys.values()) == [1]


def test_conflict_query_is_answered_with_what_is_known_of_the_name() -> None:
    """The one that it is about does not vote."""
    play = Play("b", "c")
    for l_time, name in ((5, "c"), (6, "unknown"), (7, "a")):
        play.hear(a_query("_serf_conflict", l_time=l_time, payload=name.encode()))
    answers = [decode_serf(m.payload) for _, m in play.sent() if isinstance(m, QueryResponse)]
    assert [a.member and a.member.address for a in answers if isinstance(a, ConflictResponse)] == [
        address_of("c"),
        None,
    ]


def test_rival_for_the_own_name_starts_one_vote_and_may_be_answered() -> None:
    """Each of its packets would start another; others are told of a conflict that is not theirs once."""
    play = Play("b")
    for _ in range(5):
        play.meet("a", address=Address("10.0.9.9", 7946))
        play.meet("b", address=Address("10.0.9.8", 7946))
    assert [m.name for m in play.broadcasts() if isinstance(m, Query)] == ["_serf_conflict"]
    taken = [event for event in play.events() if isinstance(event, NameTaken)]
    assert taken == [NameTaken(name="b", known=address_of("b"), other=Address("10.0.9.8", 7946))]
    play.hear(a_query("_serf_conflict", address=Address("10.0.9.8", 7946), payload=b"b"))
    assert len(play.sent()) == 1
    play.hear(a_query("q", l_time=6, flags=1, address=Address("10.0.9.8", 7946)))
    assert play.sent() == []


def test_the_last_member_may_ask_while_it_leaves() -> None:
    """It counts nobody as up then, and would have no time for answers."""
    play = Play()
    play.serf.leave(play.now_s)
    play.pass_time(6.0)
    assert play.serf._memberlist.n_alive == 0
    play.serf.query(play.now_s, "anybody?")
    assert play.serf.default_query_timeout_s() == pytest.approx(3.2)
