"""What the setting `discovery.profile` changes among members that find each other."""

from __future__ import annotations

import pytest
import trio

from beeyard.discovery.gossip.config import Profile
from beeyard.discovery.self_discovery import LEAVE_TIMEOUT_S
from beeyard.discovery.settings import DiscoverySettings
from tests.support.gossip_world import GossipWorld


async def _until_failed_s(profile: Profile) -> float:
    """How long it takes until all of four members have seen that a fifth has lost its power."""
    names = [f"n{number}" for number in range(1, 6)]
    async with GossipWorld(1) as world:
        for name in names:
            world.begin(name, settings=DiscoverySettings(profile=profile))
        await world.until_one(*names, within_s=10.0)
        await trio.sleep(60)
        world.partition(["n5"], names[:4])
        began_s = trio.current_time()
        await world.until_one(*names[:4], within_s=300.0)
        return trio.current_time() - began_s


async def test_members_are_as_patient_as_their_profile(autojump_clock):
    """A silent one counts as failed within seconds on a LAN, much later where the way is long."""
    lan_s, wan_s = [await _until_failed_s(profile) for profile in ("lan", "wan")]
    assert 4.0 < lan_s < 15.0
    assert wan_s > 3 * lan_s


# What must be said is said in rounds, and these are as far apart as the profile has them.
@pytest.mark.parametrize(("profile", "expected_s"), [("local", 1.4), ("lan", 2.2), ("wan", 4.0)])
async def test_a_member_of_any_profile_is_heard_when_it_leaves(profile, expected_s, autojump_clock):
    """In the time that a daemon takes for it, so that nobody takes it for failed."""
    names = ["n1", "n2", "n3"]
    async with GossipWorld(1) as world:
        for name in names:
            world.begin(name, settings=DiscoverySettings(profile=profile))
        await world.until_one(*names, within_s=10.0)
        began_s = trio.current_time()
        await world.members["n3"].discovery.leave()
        took_s = trio.current_time() - began_s
        assert took_s < LEAVE_TIMEOUT_S
        assert took_s == pytest.approx(expected_s, abs=0.35)
        statuses = {member.name: member.status for member in world.members["n1"].discovery.members()}
        assert statuses == {"n1": "alive", "n2": "alive", "n3": "left"}
