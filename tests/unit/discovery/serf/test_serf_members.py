"""Members, intents, leaving and user events of one member's rules: messages in, commands and events out."""

import random
from collections.abc import Mapping

import pytest

from beeyard.core.errors import InvalidSpec, NotFound
from beeyard.discovery.gossip.command import Exchange, SendPacket
from beeyard.discovery.gossip.message import (
    Dead,
    JoinIntent,
    LeaveIntent,
    User,
    UserEvent,
)
from beeyard.discovery.gossip.serf.event import (
    LeaveDone,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    UserEventCame,
)
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire import codec
from beeyard.discovery.gossip.wire.serf_codec import (
    decode_serf,
    decode_tags,
)
from tests.support.serf_play import ME, STRANGER, Play, address_of

# --- members ---


def test_member_is_alive_and_alone_from_the_start() -> None:
    """It tells of itself, as of everyone."""
    serf = Serf(1.0, name="a", address=ME, tags={"x": "y"}, rng=random.Random(1))
    (joined,) = serf.events
    assert isinstance(joined, MemberJoin)
    assert serf.members() == [serf.me] == [joined.member]
    assert (serf.me.tags, serf.me.status, serf.state) == ({"x": "y"}, "alive", "alive")


def test_member_without_a_name_or_with_too_many_tags_is_refused() -> None:
    """Before anything is sent; the error says how large they were."""
    for name in ("", "x" * 129):
        with pytest.raises(InvalidSpec, match=f"name: of a member has 1 to 128 bytes, not {len(name)}"):
            Serf(1.0, name=name, address=ME, tags={}, rng=random.Random(1))
    with pytest.raises(InvalidSpec, match="512 bytes when encoded, not 60"):
        Serf(1.0, name="a", address=ME, tags={"x": "y" * 600}, rng=random.Random(1))


def test_changed_tags_are_told_under_a_new_incarnation() -> None:
    """Memberlist's alive carries them; the same ones again are nothing new."""
    play = Play("b")
    play.serf.set_tags(play.now_s, {"role": "db"})
    play.serf.set_tags(play.now_s, {"role": "db"})
    assert play.serf.me.tags == {"role": "db"}
    assert len(play.events()) == 1
    record = play.serf.push_pull(play.now_s, join=False).nodes[0]
    assert (decode_tags(record.meta), record.incarnation) == ({"role": "db"}, 2)


def test_unwelcome_member_is_not_taken_in() -> None:
    """The owner decides by name and tags as decoded; the member itself is always in."""
    asked: list[tuple[str, dict[str, str]]] = []

    def is_welcome(name: str, tags: Mapping[str, str]) -> bool:
        asked.append((name, dict(tags)))
        return tags.get("cluster") == "one"

    play = Play(is_welcome=is_welcome)
    play.meet("b", {"cluster": "two"})
    play.meet("c", {"cluster": "one"})
    assert [member.name for member in play.serf.members()] == ["a", "c"]
    assert asked == [("b", {"cluster": "two"}), ("c", {"cluster": "one"})]


# --- intents ---


def test_news_is_passed_on_once() -> None:
    """The same bytes, and nothing that was known."""
    play = Play("b")
    for l_time in (5, 5, 4, 6):
        play.hear(JoinIntent(l_time=l_time, node="b"))
    assert play.broadcasts() == [JoinIntent(l_time=6, node="b"), JoinIntent(l_time=5, node="b")]


def test_member_that_is_told_to_have_left_says_that_it_is_there() -> None:
    """Later than what was said; not again for what is older than that."""
    play = Play("b")
    play.hear(LeaveIntent(l_time=40, node="a", prune=True))
    play.hear(LeaveIntent(l_time=40, node="a"))
    play.hear(LeaveIntent(l_time=30, node="a"))
    assert play.broadcasts() == [JoinIntent(l_time=41, node="a")]
    assert play.serf.me.status == "alive"


def test_absurd_time_is_nobodys_time() -> None:
    """It neither moves the clock nor makes anybody leave."""
    play = Play("b")
    play.hear(LeaveIntent(l_time=2**64 - 1, node="a"))
    play.hear(LeaveIntent(l_time=2**64 - 1, node="b"))
    play.hear(UserEvent(l_time=2**64 - 1, name="last"))
    assert play.broadcasts() == []
    assert [member.status for member in play.serf.members()] == ["alive", "alive"]
    assert play.events() == []
    play.hear(UserEvent(l_time=1, name="next"))
    assert play.events() == [UserEventCame(l_time=1, name="next")]


def test_joining_is_told_after_the_exchange() -> None:
    """And soon another member is asked what this one has missed."""
    play = Play("b")
    play.serf.joined(play.now_s)
    assert play.broadcasts() == [JoinIntent(l_time=1, node="a")]
    play.serf.out.clear()
    play.pass_time(1.7)
    assert Exchange(to=address_of("b")) in play.serf.out


def test_join_asks_for_an_exchange() -> None:
    """Whoever is there need not be known."""
    play = Play()
    play.serf.join(play.now_s, STRANGER)
    assert play.serf.out == [Exchange(to=STRANGER, join=True)]


# --- leaving ---


def test_leave_tells_the_intent_first_and_the_death_only_after_it() -> None:
    """Not one packet has memberlist's word before the intent has been sent as often as it should be."""
    play = Play("b", "c", "d")
    play.serf.leave(play.now_s)
    order: list[str] = []
    while play.serf.state != "left":
        play.pass_time(0.05)
        for command in play.serf.out:
            for part in command.parts if isinstance(command, SendPacket) else ():
                message = codec.decode(part)
                if isinstance(message, Dead):
                    order.append("dead")
                elif isinstance(message, User) and isinstance(decode_serf(message.data), LeaveIntent):
                    order.append("intent")
        play.serf.out.clear()
    assert order.count("intent") >= 4 + 3  # by gossip, and each directly
    assert order[: order.count("intent")] == ["intent"] * order.count("intent")
    assert order.count("dead") >= 4
    assert sum(isinstance(event, LeaveDone) for event in play.serf.events) == 1
    assert play.now_s - 10.0 < 5.0


def test_leave_of_a_member_alone_is_done_at_once() -> None:
    """There is nobody to tell; a second leave is none."""
    play = Play()
    play.serf.leave(play.now_s)
    play.serf.leave(play.now_s)
    assert [type(event) for event in play.events()].count(LeaveDone) == 1
    assert play.serf.state == "left"


def test_leave_ends_though_nothing_can_be_sent() -> None:
    """Both broadcasts have five seconds."""
    play = Play("b")
    play.serf.leave(play.now_s)
    play.serf._context.broadcasts.forget()
    play.pass_time(13.0)
    assert play.serf.state == "left"


def test_death_by_its_own_word_is_a_leave_though_no_intent_came() -> None:
    """Here Serf says failed. Somebody else's word of a death is a failure."""
    play = Play("b", "c")
    play.serf.handle(play.now_s, Dead(incarnation=1, node="b", from_node="b"), address_of("b"))
    play.serf.handle(play.now_s, Dead(incarnation=1, node="c", from_node="b"), address_of("b"))
    assert [(type(event), event.member.name) for event in play.events() if hasattr(event, "member")] == [
        (MemberLeave, "b"),
        (MemberFailed, "c"),
    ]


def test_failed_member_is_declared_to_have_left() -> None:
    """Everyone is told, with prune if asked; a stranger and the member itself are errors."""
    play = Play("b", "c")
    play.serf.handle(play.now_s, Dead(incarnation=1, node="b", from_node="c"), address_of("c"))
    play.settle()
    play.serf.force_leave(play.now_s, "b", prune=True)
    assert [type(event) for event in play.events()] == [MemberLeave, MemberReap]
    assert play.broadcasts() == [LeaveIntent(l_time=1, node="b", prune=True)]
    with pytest.raises(NotFound):
        play.serf.force_leave(play.now_s, "nobody")
    with pytest.raises(InvalidSpec, match="itself"):
        play.serf.force_leave(play.now_s, "a")


# --- user events ---


def test_user_event_is_told_here_and_to_all_once() -> None:
    """Own ones come back from others, and are not told again."""
    play = Play("b")
    play.serf.send_event(play.now_s, "deploy", b"v2", coalesce=True)
    told = UserEvent(l_time=1, name="deploy", payload=b"v2", coalesce=True)
    assert play.events() == [UserEventCame(l_time=1, name="deploy", payload=b"v2", coalesce=True)]
    assert play.broadcasts() == [told]
    play.hear(told)
    assert play.events() == []
    play.hear(UserEvent(l_time=9, name="other"))
    assert play.events() == [UserEventCame(l_time=9, name="other")]
    play.serf.send_event(play.now_s, "third")
    assert play.events() == [UserEventCame(l_time=10, name="third")]


@pytest.mark.parametrize(
    ("name", "payload", "sentence"),
    [("", b"x", "name is empty"), ("x", b"x" * 512, "512 bytes"), ("x" * 513, b"", "512 bytes")],
)
def test_user_event_without_a_name_or_too_large_is_refused(name: str, payload: bytes, sentence: str) -> None:
    """And has no effect."""
    play = Play("b")
    with pytest.raises(InvalidSpec, match=sentence):
        play.serf.send_event(play.now_s, name, payload)
    assert play.events() == play.broadcasts() == []
