"""An agent that its manager asks whether it is there, because gossip doubts it."""

from __future__ import annotations

import trio

from beeyard.core.wire import Heartbeat, Probe
from tests.support.agent_machine import Machine


async def test_a_probe_is_answered_at_once_with_a_heartbeat(autojump_clock: object) -> None:
    """Beside those that are due, with a number of its own."""
    machine = Machine()
    await machine.make_member()
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        assert (await manager.welcome(nursery, heartbeat_s=50)).answers_probes
        await trio.sleep(120)
        before = [m.number for m in manager.of(Heartbeat)]
        await manager.say(Probe(), Probe())
        await trio.sleep(0.1)
        after = [m.number for m in manager.of(Heartbeat)]
        assert after == [*before, before[-1] + 1, before[-1] + 2]
