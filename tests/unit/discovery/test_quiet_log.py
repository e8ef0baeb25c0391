"""Warnings that peers can cause are told a few times a minute."""

from __future__ import annotations

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from beeyard.discovery.gossip.quiet_log import WARNINGS_PER_MINUTE, QuietLog


async def test_a_flood_is_told_by_its_number(autojump_clock: MockClock) -> None:
    """The first of each kind in a minute, and how many were left out with the first of the next."""
    quiet = QuietLog()
    with capture_logs() as logs:
        for _ in range(1000):
            quiet.warn("a packet cannot be read", peer="10.0.0.1:7946")
        quiet.warn("something else")
        await trio.sleep(61)
        quiet.warn("a packet cannot be read", peer="10.0.0.2:7946")
    assert [log["event"] for log in logs].count("a packet cannot be read") == WARNINGS_PER_MINUTE + 1
    assert [log["event"] for log in logs].count("something else") == 1
    assert logs[-1]["left_out"] == 1000 - WARNINGS_PER_MINUTE
    assert quiet.n_warnings == 1002
