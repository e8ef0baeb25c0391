"""Blocking calls in threads."""

from __future__ import annotations

import threading

import pytest
import trio

from beeyard.runtime.real_thread import in_thread


async def test_a_job_runs_in_another_thread_and_gives_its_result() -> None:
    assert await in_thread(threading.get_ident) != threading.get_ident()


async def test_an_error_of_a_job_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("n1")

    with pytest.raises(KeyError, match="n1"):
        await in_thread(fail)


async def test_a_job_that_has_begun_is_finished_although_its_caller_is_cancelled() -> None:
    begun, go, done = trio.Event(), threading.Event(), []
    token = trio.lowlevel.current_trio_token()

    def job() -> None:
        token.run_sync_soon(begun.set)
        go.wait(60)
        done.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, job)
        await begun.wait()
        nursery.cancel_scope.cancel()
        go.set()
    assert done == [True]


async def test_nothing_is_begun_for_a_caller_that_is_cancelled_already() -> None:
    done: list[bool] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await in_thread(lambda: done.append(True))
    assert scope.cancelled_caught
    assert done == []
