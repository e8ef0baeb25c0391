"""What a manager tells by gossip about where it is."""

from __future__ import annotations

import pytest

from beeyard.manager.config import ManagerConfig
from beeyard.manager.gossip import manager_gossip
from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_parts import FakeParts


@pytest.mark.parametrize(
    ("advertise", "listens_at", "told"),
    [
        ("", "tcp://0.0.0.0:2377", "10.9.0.1:2377"),
        ("", "tcp://[::]:2377", "10.9.0.1:2377"),
        ("", "tcp://10.9.0.1:2999", "10.9.0.1:2999"),
        ("tcp://m1:2377", "tcp://0.0.0.0:2377", "m1:2377"),
        ("tcp://[fd77::1]:2377", "tcp://[::]:2377", "[fd77::1]:2377"),
    ],
)
async def test_agents_are_told_an_address_that_they_can_use(advertise, listens_at, told, autojump_clock):
    """What is advertised, else what is listened on; instead of all interfaces the one that gossip goes by."""
    async with SimWorld(1, parts=FakeParts) as world:
        config = ManagerConfig(self_discovery_port=3388, advertise=advertise)
        world.machine("m1")

        async def run(host):
            gossip = manager_gossip(host, config, "a" * 50, listens_at)
            found.append(gossip)
            await gossip.run()

        found = []
        world.start("manager", run, machine="m1")
        await world.until(lambda: found and found[0]._node is not None, timeout_s=5.0)
        (member,) = found[0].members()
        assert member.name == "m1.manager"
        assert member.tags["manager"] == told
        assert found[0].managers() == [f"tcp://{told}"]
