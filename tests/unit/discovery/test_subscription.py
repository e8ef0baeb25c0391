"""Events wait for slow readers, within bounds and without losing the last state."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import (
    Event,
    Member,
    MemberFailed,
    MemberJoin,
    QueryAnswer,
    UserEventCame,
)
from beeyard.discovery.gossip.subscription import WAITING_MAX, Answers, Subscription


def a_member(name: str) -> Member:
    return Member(name=name, address=Address("10.0.0.1", 7946))


def a_subscription() -> tuple[Subscription, list[Subscription]]:
    forgotten: list[Subscription] = []
    return Subscription(forgotten.append), forgotten


async def read_all(subscription: Subscription) -> list[Event]:
    """All that waits; closes it."""
    subscription.close()
    return [event async for event in subscription]


async def test_events_are_read_in_the_order_in_which_they_came() -> None:
    """Until it is closed; what waited then is still read."""
    subscription, forgotten = a_subscription()
    came: list[Event] = [
        MemberJoin(member=a_member("a")),
        UserEventCame(l_time=1, name="deploy"),
        MemberJoin(member=a_member("b")),
    ]
    for event in came:
        subscription.put_nowait(event)
    assert await read_all(subscription) == came
    subscription.close()
    assert forgotten == [subscription]


async def test_of_one_member_the_last_change_is_told() -> None:
    """A reader that was slow misses that somebody joined, not that he failed."""
    subscription, _ = a_subscription()
    subscription.put_nowait(MemberJoin(member=a_member("a")))
    subscription.put_nowait(MemberJoin(member=a_member("b")))
    failed = MemberFailed(member=a_member("a"))
    subscription.put_nowait(failed)
    assert await read_all(subscription) == [MemberJoin(member=a_member("b")), failed]


async def test_of_events_the_newest_are_kept() -> None:
    """However many come, memory is bounded; members are kept beside them, and what was dropped is counted."""
    subscription, _ = a_subscription()
    subscription.put_nowait(MemberJoin(member=a_member("a")))
    for number in range(WAITING_MAX + 5):
        subscription.put_nowait(UserEventCame(l_time=number, name="x"))
    got = await read_all(subscription)
    assert isinstance(got[0], MemberJoin)
    assert [event.l_time for event in got[1:] if isinstance(event, UserEventCame)] == list(range(5, WAITING_MAX + 5))
    assert subscription.n_dropped == 5


async def test_a_waiting_reader_is_woken(autojump_clock: MockClock) -> None:
    """By an event, and by the end."""
    subscription, _ = a_subscription()
    got: list[Event] = []
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            got.extend([event async for event in subscription])

        nursery.start_soon(read)
        await trio.sleep(1)
        subscription.put_nowait(UserEventCame(l_time=1, name="x"))
        await trio.sleep(1)
        subscription.close()
    assert [event.name for event in got if isinstance(event, UserEventCame)] == ["x"]


async def test_answers_end_with_the_question() -> None:
    """By its time, or because nobody wants more of them; the rules are told in the second case alone."""
    forgotten: list[int] = []
    answers = Answers(7, forgotten.append)
    answers.put_nowait(QueryAnswer(query_id=7, from_node="a"))
    answers.end()
    answers.close()
    assert [event async for event in answers] == [QueryAnswer(query_id=7, from_node="a")]
    assert forgotten == []
    given_up = Answers(8, forgotten.append)
    given_up.close()
    given_up.close()
    assert [event async for event in given_up] == []
    assert forgotten == [8]
