"""What is remembered of a plugin that has nothing left, and for how long."""

from __future__ import annotations

from typing import cast

import trio
from trio.testing import MockClock

from beeyard.manager.config import IpamConfig
from beeyard.manager.ipam.desk import EXHAUSTED_S, Desk
from beeyard.manager.ipam.plugin import Plugin
from beeyard.runtime.host import Host


async def test_what_is_exhausted_is_asked_again_after_a_while_and_then_forgotten(autojump_clock: MockClock) -> None:
    """A thousand nodes that each were told once leave nothing behind."""
    config = IpamConfig()
    desk = Desk(Plugin(cast("Host", None), config, "p1"), config, lambda key: None)
    for number in range(1000):
        desk.note_exhausted("pool", f"n{number}", "no address left")
        await trio.sleep(0.1)
    assert len(desk._exhausted) <= EXHAUSTED_S / 0.1 + 1
    assert [desk.exhausted("pool", f"n{number}") for number in (0, 999)] == ["", "no address left"]
    desk.note_exhausted("pool", "n960", "still none")
    desk.note_exhausted("other", "n1", "no address left")
    assert desk.exhausted("pool", "n960") == "still none"
    await trio.sleep(EXHAUSTED_S)
    assert desk.exhausted("pool", "n960") == ""
