"""Deadlines: order, cancelling, moving."""

import math

from beeyard.discovery.gossip.swim.timers import Timers


def test_timers_run_in_order_and_with_the_time_they_were_noticed() -> None:
    timers, ran = Timers(), []
    timers.at(2.0, lambda now_s: ran.append(("b", now_s)))
    timers.at(1.0, lambda now_s: ran.append(("a", now_s)))
    timers.at(2.0, lambda now_s: ran.append(("c", now_s)))
    timers.at(9.0, lambda now_s: ran.append(("d", now_s)))
    timers.run(2.5)
    assert ran == [("a", 2.5), ("b", 2.5), ("c", 2.5)]
    assert timers.next_at() == 9.0


def test_a_cancelled_timer_does_not_run_and_nothing_remains_of_many() -> None:
    timers, ran = Timers(), []
    kept = timers.at(5.0, lambda _: ran.append("kept"))
    for i in range(1000):
        timers.cancel(timers.at(6.0 + i, lambda _: ran.append("no")))
    assert len(timers._heap) < 100
    timers.run(10_000.0)
    assert ran == ["kept"]
    timers.cancel(kept)
    assert timers.next_at() == math.inf


def test_what_an_action_sets_for_now_runs_now() -> None:
    timers, ran = Timers(), []
    timers.at(1.0, lambda now_s: timers.at(now_s, lambda _: ran.append("second")) and None)
    timers.run(1.0)
    assert ran == ["second"]


def test_all_deadlines_can_be_moved() -> None:
    timers = Timers()
    timers.at(1.0, lambda _: None)
    timer = timers.at(2.0, lambda _: None)
    timers.delay(10.0)
    assert timers.next_at() == 11.0
    timers.run(11.0)
    assert timers.next_at() == 12.0
    timers.cancel(timer)
    assert timers.next_at() == math.inf


def test_what_is_overdue_can_be_put_off() -> None:
    timers, ran = Timers(), []
    for due_s in (3.0, 1.0, 2.0, 9.0):
        timers.at(due_s, lambda _, due_s=due_s: ran.append(due_s))
    timers.postpone(5.0)
    assert timers.next_at() == 5.0
    timers.run(5.0)
    assert sorted(ran) == [1.0, 2.0, 3.0]
    assert timers.next_at() == 9.0
