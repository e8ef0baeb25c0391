"""Steps that are tried until they work."""

from __future__ import annotations

import errno

import pytest
import structlog
import trio

from beeyard.agent.insist import FIRST_S, insist
from beeyard.core.errors import ExecutorError


@pytest.mark.parametrize(
    "error", [ExecutorError("stop", "its shim is busy"), OSError(errno.EMFILE, "Too many open files")]
)
async def test_whatever_this_machine_fails_at_is_tried_again(autojump_clock, error):
    """In its own words or in the kernel's: a task that is given up keeps its addresses."""
    failures = [error, error]

    async def step() -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()

    began_s = trio.current_time()
    await insist("stop", step, structlog.get_logger())
    assert failures == []
    assert trio.current_time() - began_s == pytest.approx(3 * FIRST_S)


async def test_a_defect_of_ours_is_not_tried_again(autojump_clock):
    async def step() -> None:
        await trio.lowlevel.checkpoint()
        raise AssertionError

    with pytest.raises(AssertionError):
        await insist("stop", step, structlog.get_logger())
