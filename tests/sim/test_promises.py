"""The model of what users were promised: exact where it can be, and never more than was said."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.promises import ABSENT, Promise


def over() -> bool:
    """The manager is done with it."""
    return True


def pending() -> bool:
    """It lies in a socket."""
    return False


def a_service(replicas: int) -> Promise:
    """One that was created."""
    promise = Promise()
    promise.answered(promise.asked(replicas, over))
    return promise


def ask_in_vain(promise: Promise, outcome: int | None, is_over: Callable[[], bool]) -> None:
    """A request without an answer."""
    promise.asked(outcome, is_over)


def test_an_answer_is_a_promise() -> None:
    """Nothing else may be found."""
    promise = a_service(3)
    assert promise.possible == (3,)
    promise.answered(promise.asked(5, over))
    assert promise.possible == (5,)
    promise.answered(promise.asked(ABSENT, over))
    assert promise.possible == (ABSENT,)


def test_a_refusal_changes_nothing() -> None:
    """What was promised before still is, also when the same was asked for."""
    promise = a_service(3)
    promise.refused(promise.asked(5, over), absent=False)
    assert promise.possible == (3,)
    promise.refused(promise.asked(3, over), absent=False)
    assert promise.possible == (3,)


def test_a_request_without_an_answer_was_carried_out_or_not() -> None:
    """An answer to a later one says how it is now, if the earlier can have no effect any more."""
    promise = a_service(3)
    ask_in_vain(promise, ABSENT, over)
    assert promise.possible == (3, ABSENT)
    promise.answered(promise.asked(5, over))
    assert promise.possible == (5,)


def test_a_request_in_a_socket_may_follow_every_answer() -> None:
    """A removal that a paused manager has not read yet is carried out after the scaling that was answered."""
    promise = a_service(3)
    is_over = False
    ask_in_vain(promise, ABSENT, lambda: is_over)
    promise.answered(promise.asked(5, over))
    assert promise.possible == (5, ABSENT)
    assert promise.may_still_change
    is_over = True
    assert promise.possible == (5, ABSENT)  # it is over, and nobody knows how it went
    assert not promise.may_still_change
    promise.answered(promise.asked(6, over))
    assert promise.possible == (6,)


def test_what_is_missing_may_still_be_created() -> None:
    """A refusal because there is no such service does not count a creation out that is still under way."""
    promise = Promise()
    ask_in_vain(promise, 4, pending)
    promise.refused(promise.asked(ABSENT, over), absent=True)
    assert promise.possible == (ABSENT, 4)
