"""Push/pull, coordinates, snapshots and hostile peers of one member's rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.discovery.gossip.message import (
    Ack,
    Dead,
    EventItem,
    EventsAt,
    JoinIntent,
    LeaveIntent,
    MergeState,
    Ping,
    PushPull,
    User,
    UserEvent,
)
from beeyard.discovery.gossip.serf.event import (
    UserEventCame,
)
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_serf,
)
from tests.support.serf_play import Play, a_query, a_remote, address_of

# --- push/pull ---


def test_push_pull_tells_clocks_members_and_events() -> None:
    """What the other one may have missed."""
    play = Play("b", "c")
    play.hear(LeaveIntent(l_time=5, node="c"))
    play.serf.handle(play.now_s, Dead(incarnation=1, node="c", from_node="c"), address_of("c"))
    play.hear(UserEvent(l_time=3, name="deploy", payload=b"x"))
    play.hear(a_query(l_time=8))
    state = decode_serf(play.serf.push_pull(play.now_s, join=False).user_state)
    assert state == MergeState(
        l_time=6,
        status_l_times={"a": 0, "b": 0, "c": 5},
        left_members=("c",),
        event_l_time=4,
        events=(EventsAt(l_time=3, events=(EventItem("deploy", b"x"),)),),
        query_l_time=9,
    )


def test_merge_brings_what_was_missed() -> None:
    """Events, clocks, and who joined or left when."""
    play = Play("b", "c")
    state = MergeState(
        l_time=20,
        status_l_times={"b": 7, "c": 8, "d": 9},
        left_members=("c",),
        event_l_time=5,
        events=(None, EventsAt(l_time=4, events=(EventItem("missed", b""),))),
        query_l_time=30,
    )
    play.serf.merge(play.now_s, a_remote(state, "b"), join=False)
    assert play.events() == [UserEventCame(l_time=4, name="missed")]
    assert [(m.name, m.status, m.status_l_time) for m in play.serf.members()] == [
        *(("a", "alive", 0), ("b", "alive", 6), ("c", "leaving", 8))
    ]
    figures = play.serf.figures()
    assert (figures["member_time"], figures["event_time"], figures["query_time"]) == (19.0, 4.0, 29.0)


def test_failed_member_that_others_know_to_have_left_has_left() -> None:
    """Though its status has no later time; the same said again changes nothing, so that times do not grow for ever."""
    play = Play("b", "c")
    play.hear(JoinIntent(l_time=8, node="c"))
    play.serf.handle(play.now_s, Dead(incarnation=1, node="c", from_node="b"), address_of("b"))
    for _ in range(3):
        state = MergeState(l_time=9, status_l_times={"c": 8}, left_members=("c",))
        play.serf.merge(play.now_s, a_remote(state, "b"), join=False)
    member = play.serf.member("c")
    assert member is not None
    assert (member.status, member.status_l_time) == ("left", 9)


def test_exchange_during_a_leave_does_not_make_it_a_failure() -> None:
    """Who hears of it there first, as from one of our kind or from a real agent, still takes it for a leave."""
    leaver_says = LeaveIntent(l_time=8, node="c")
    teller = Play("b", "c")
    teller.hear(leaver_says)
    ours = decode_serf(teller.serf.push_pull(teller.now_s, join=False).user_state)
    real = MergeState(l_time=9, status_l_times={"c": 8})
    assert isinstance(ours, MergeState)
    # What a real agent makes of it: a leave at the time given and 1.
    assert ours.left_members == ("c",)
    assert ours.status_l_times["c"] + 1 == leaver_says.l_time
    for state in (ours, real):
        for has_joined_at in (0, 7):
            play = Play("b", "c")
            play.hear(JoinIntent(l_time=has_joined_at, node="c"))
            play.serf.merge(play.now_s, a_remote(state, "b"), join=False)
            play.hear(leaver_says)
            play.serf.handle(play.now_s, Dead(incarnation=1, node="c", from_node="b"), address_of("b"))
            member = play.serf.member("c")
            assert member is not None
            assert (member.status, member.status_l_time) == ("left", 8)


def test_leave_that_was_taken_back_is_forgotten_by_exchange() -> None:
    """The word of the member itself may have been lost."""
    play = Play("b", "c")
    play.hear(LeaveIntent(l_time=8, node="c"))
    play.serf.merge(play.now_s, a_remote(MergeState(l_time=10, status_l_times={"c": 9}), "b"), join=False)
    member = play.serf.member("c")
    assert member is not None
    assert (member.status, member.status_l_time) == ("alive", 9)


OLD = MergeState(event_l_time=5, events=(EventsAt(l_time=4, events=(EventItem("old", b""),)),))


@pytest.mark.parametrize(
    ("joins", "has_heard", "waits_s", "is_told"),
    [(True, False, 0.0, False), (False, False, 0.0, True), (True, True, 0.0, True), (True, False, 61.0, True)],
)
def test_newcomer_is_not_told_what_was_before_it(joins: bool, has_heard: bool, waits_s: float, is_told: bool) -> None:
    """Who has been there, and comes back out of a partition, is told what it missed."""
    play = Play("b")
    if has_heard:
        play.hear(UserEvent(l_time=1, name="first"))
    play.serf.merge(play.now_s, a_remote(MergeState(), "b"), join=False)
    play.pass_time(waits_s)
    play.events()
    play.serf.merge(play.now_s, a_remote(OLD, "b"), join=joins)
    assert (UserEventCame(l_time=4, name="old") in play.events()) == is_told


@pytest.mark.parametrize("state", [b"", b"\x02", b"\x02\xc1", b"\x01\x80", b"\xff" * 100])
def test_unreadable_state_does_not_keep_members_out(state: bytes) -> None:
    """Memberlist's part counts all the same."""
    play = Play()
    remote = PushPull(nodes=a_remote(None, "b").nodes, user_state=state)
    play.serf.merge(play.now_s, remote, join=True)
    assert [member.name for member in play.serf.members()] == ["a", "b"]


# --- coordinates, snapshot ---


def test_pings_are_answered_with_the_place_and_their_answers_move_it() -> None:
    """The distance to a member that was pinged is known; to others not."""
    play = Play("b")
    play.serf.handle(play.now_s, Ping(seq_no=9, node="a", source=address_of("b"), source_node="b"), address_of("b"))
    (ack,) = play.packets(Ack)
    play.serf.out.clear()
    while not (pings := play.packets(Ping)):
        play.pass_time(0.05)
    play.serf.handle(play.now_s + 0.02, Ack(seq_no=pings[0].seq_no, payload=ack.payload), address_of("b"))
    here = play.serf.coordinate("a")
    assert here is not None
    assert any(here.vec)
    rtt_s = play.serf.rtt_s("a", "b")
    assert rtt_s is not None
    assert 0.0 < rtt_s < 0.1
    assert play.serf.rtt_s("a", "nobody") is None


def test_snapshot_of_one_life_leads_the_next_to_the_others() -> None:
    """It knows whom to join, and does not tell old events again."""
    play = Play(keeps_snapshot=True)
    for name in ("b", "c"):
        play.meet(name)
    play.serf.handle(play.now_s, Dead(incarnation=1, node="c", from_node="b"), address_of("b"))
    play.hear(UserEvent(l_time=30, name="old"))
    play.pass_time(1.0)
    for text in ("".join(play.serf.snapshot_lines), play.serf.compact_snapshot()):
        again = Play(snapshot=text)
        assert again.serf.previous() == {"b": address_of("b"), "c": address_of("c")}
        again.hear(UserEvent(l_time=30, name="old"))
        again.hear(UserEvent(l_time=31, name="new"))
        assert again.events() == [UserEventCame(l_time=31, name="new")]
    play.serf.leave(play.now_s)
    left = "".join(play.serf.snapshot_lines)
    assert Play(snapshot=left).serf.previous() == {}


# --- hostile peers ---


@settings(deadline=None)
@given(
    st.lists(
        st.binary(max_size=80) | st.builds(lambda k, d: bytes([k]) + d, st.integers(0, 10), st.binary(max_size=40))
    )
)
def test_nothing_in_a_user_message_raises(messages: list[bytes]) -> None:
    """Whatever comes is dropped and counted."""
    play = Play("b")
    for data in messages:
        play.serf.handle(play.now_s, User(data=data), address_of("b"))


def test_oversized_broadcast_is_told_here_but_not_passed_on() -> None:
    """It could never be sent, and would stay in the queue for ever."""
    play = Play("b")
    play.hear(UserEvent(l_time=3, name="big", payload=b"x" * 9000))
    assert len(play.events()) == 1
    assert play.broadcasts() == []
    assert play.serf.figures()["dropped_oversized"] == 1.0
