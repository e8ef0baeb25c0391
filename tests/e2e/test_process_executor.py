"""The real process executor on the real kernel: the conformance suite, and what only a kernel can show."""

from __future__ import annotations

import pytest

from tests.support.executor_conformance import CHECKS, Check
from tests.support.process_machine import a_process_machine

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_process_executor_keeps_the_promise(check: Check) -> None:
    """Every promise of the conformance suite holds on the real kernel."""
    async with a_process_machine() as machine:
        await check(machine)
