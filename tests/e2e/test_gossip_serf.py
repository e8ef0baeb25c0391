"""Real Serf agents and members of ours in one cluster: both kinds believe the same after each step."""

from __future__ import annotations

import trio

from beeyard.discovery.gossip.serf.event import QueryAnswer, UserEventCame
from tests.support.mixed_cluster import MixedCluster, mixed_cluster

ALL_ALIVE = {"o1": "alive", "o2": "alive", "s1": "alive", "s2": "alive"}


async def test_a_plain_mixed_cluster() -> None:
    """Joins both ways, tags, events, questions, deaths and new lives, farewells."""
    async with mixed_cluster("127.73.0") as cluster:
        s1 = await cluster.start_real("s1", "-tag=role=web", "-event-handler=query:load=printf 0.5")
        s2 = await cluster.start_real("s2")
        o1 = await cluster.start_ours("o1", tags={"role": "agent"})
        o2 = await cluster.start_ours("o2")
        await cluster.join("o1", "s1")
        await cluster.join("s2", "o1")
        await cluster.join("o2", "s2")
        await cluster.agree(**ALL_ALIVE)
        assert cluster.seen_kinds("failed") == []

        await s2.set_tags({"rack": "r1"})
        o2.set_tags({"rack": "r2"})
        await cluster.until(lambda: {m.name: m.tags for m in o1.members()} == TAGS)
        await cluster.all_see("update", "o2")
        assert {name: tags for name, (_, tags) in (await s1.members()).items()} == TAGS

        await s1.event("deploy", b"1")
        o1.send_event("restart", b"2", coalesce=False)
        await cluster.all_see("event", "deploy")
        await cluster.all_see("event", "restart")
        heard = {(name, e.name, e.payload) for name, e in cluster.events if isinstance(e, UserEventCame)}
        assert heard == {(name, *event) for name in ("o1", "o2") for event in (("deploy", b"1"), ("restart", b"2"))}

        assert await s2.query("load") == {"s1": b"0.5", "o1": b"answer of o1", "o2": b"answer of o2"}
        answers = [event async for event in o2.query("load", timeout_s=2, relay_factor=2)]
        got = {event.from_node: event.payload for event in answers if isinstance(event, QueryAnswer)}
        assert got == {"s1": b"0.5", "o1": b"answer of o1", "o2": b"answer of o2"}

        # What answers to probes carry beside the coordinate does not keep an agent from reading it.
        with trio.fail_after(30):
            while not (await s1.call("get-coordinate", {"Node": "o1"}))["Ok"]:  # noqa: ASYNC110
                await trio.sleep(0.2)
        assert [line for line in s1.log if "coordinate" in line and "[DEBUG]" not in line] == []

        await _deaths_and_farewells(cluster)


TAGS = {"s1": {"role": "web"}, "s2": {"rack": "r1"}, "o1": {"role": "agent"}, "o2": {"rack": "r2"}}


async def _deaths_and_farewells(cluster: MixedCluster) -> None:
    cluster.kill("o2")
    cluster.kill("s2")
    await cluster.agree(o1="alive", s1="alive", o2="failed", s2="failed")
    await cluster.start_ours("o2")
    await cluster.join("o2", "s1")
    await cluster.start_real("s2")
    await cluster.join("s2", "o1")
    await cluster.agree(**ALL_ALIVE)

    cluster.seen.clear()
    await cluster.ours["o2"].leave()
    cluster.kill("o2")
    await cluster.real.pop("s2").leave()
    await cluster.agree(o1="alive", s1="alive", o2="left", s2="left")
    assert [seen for seen in cluster.seen_kinds("failed") if seen[2] == "o2" or seen[0] == "o1"] == []


async def test_a_name_that_is_taken() -> None:
    """The others vote, and who came second ends, whichever kind it is."""
    async with mixed_cluster("127.73.1") as cluster:
        for name in ("s1", "s2"):
            await cluster.start_real(name)
        await cluster.start_ours("o1")
        await cluster.start_ours("o2")
        for name in ("s2", "o1", "o2"):
            await cluster.join(name, "s1")
        await cluster.agree(**ALL_ALIVE)
        await cluster.start_ours("second", called="s2")
        await cluster.join("second", "s1")
        await cluster.until(lambda: cluster.ended == ["second"])
        second = await cluster.start_real("third", called="o2")
        await cluster.join("third", "o1")
        await cluster.until(lambda: second.process.poll() is not None)
        del cluster.real["third"]
        await cluster.agree(**ALL_ALIVE)
