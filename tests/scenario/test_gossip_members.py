"""Members of a gossip cluster find out about each other: joins, deaths, farewells, partitions."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.support.node_world import node_world, status_of


async def test_members_that_join_one_know_all(autojump_clock: MockClock) -> None:
    """Whoever joins anybody is known to everybody within seconds, with tags and address."""
    async with node_world() as gossip:
        nodes = [await gossip.start(f"n{number}", tags={"role": f"r{number}"}) for number in range(1, 6)]
        assert [status_of(node) for node in nodes] == [{node.me.name: "alive"} for node in nodes]
        began_s = trio.current_time()
        for node in nodes[1:]:
            await node.join([gossip.address("n1")])
        await gossip.agree({f"n{number}": "alive" for number in range(1, 6)})
        assert trio.current_time() - began_s < 2
        for node in nodes:
            assert [member.tags for member in node.members()] == [{"role": f"r{number}"} for number in range(1, 6)]
            assert [member.address for member in node.members()] == [gossip.address(f"n{n}") for n in range(1, 6)]
        assert gossip.n_seen("failed") == 0


async def test_a_member_that_dies_is_failed_for_all_and_comes_back(autojump_clock: MockClock) -> None:
    """A crash is seen within seconds by everybody; a new life under the old name counts at once."""
    async with node_world() as gossip:
        await gossip.start_all(5)
        everybody = {f"n{number}": "alive" for number in range(1, 6)}
        gossip.world.power_cut("n3")
        died_s = trio.current_time()
        await gossip.agree(everybody | {"n3": "failed"}, timeout_s=15)
        assert trio.current_time() - died_s > 2
        assert gossip.n_seen("failed", "n3") == 4
        again = await gossip.restart("n3")
        await again.join([gossip.address("n1")])
        await gossip.agree(everybody, timeout_s=5)
        assert gossip.n_seen("failed") == 4


async def test_a_process_that_is_gone_is_failed_sooner_than_a_host(autojump_clock: MockClock) -> None:
    """A host that refuses connections says more than silence does."""
    took_s = {}
    for how in ("crash", "power_cut"):
        async with node_world() as gossip:
            await gossip.start_all(5)
            await trio.sleep(10)
            getattr(gossip.world, how)("n3")
            died_s = trio.current_time()
            await gossip.until(lambda gossip=gossip: gossip.n_seen("failed", "n3") == 4, timeout_s=15)
            took_s[how] = trio.current_time() - died_s
    assert took_s["crash"] < took_s["power_cut"]


async def test_a_farewell_is_never_taken_for_a_failure(autojump_clock: MockClock) -> None:
    """Who leaves is seen to leave by everybody, and nothing else is seen; the name may come back."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(6)
        await nodes[3].leave()
        await gossip.agree({f"n{n}": "alive" for n in (1, 2, 3, 5, 6)} | {"n4": "left"})
        gossip.world.crash("n4")
        await trio.sleep(60)
        assert gossip.n_seen("failed") == 0
        assert gossip.n_seen("leave", "n4") >= 5
        again = await gossip.restart("n4")
        await again.join([gossip.address("n2")])
        await gossip.agree({f"n{number}": "alive" for number in range(1, 7)}, timeout_s=5)


async def test_a_failed_member_can_be_told_to_have_left_and_be_forgotten(autojump_clock: MockClock) -> None:
    """`force_leave` by anybody counts for all; with `prune` the name is gone."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(4)
        alive = {f"n{number}": "alive" for number in (1, 2)}
        gossip.world.power_cut("n3")
        gossip.world.power_cut("n4")
        await gossip.agree(alive | {"n3": "failed", "n4": "failed"})
        nodes[0].force_leave("n3")
        await gossip.agree(alive | {"n3": "left", "n4": "failed"})
        nodes[1].force_leave("n4", prune=True)
        await gossip.agree(alive | {"n3": "left"})


async def test_a_machine_that_stands_still_for_a_while_is_not_failed(autojump_clock: MockClock) -> None:
    """6 s are not enough to be believed dead among 20, and the one that slept accuses nobody."""
    async with node_world() as gossip:
        await gossip.start_all(20)
        await trio.sleep(5)
        gossip.world.pause("n7")
        await trio.sleep(6)
        gossip.world.resume("n7")
        await trio.sleep(30)
        assert gossip.n_seen("failed") == 0


async def test_loss_of_packets_fails_nobody(autojump_clock: MockClock) -> None:
    """With 40 % of all packets lost for 45 s TCP saves everybody; events still reach all."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(12)
        gossip.world.network.datagram_loss = 0.4
        await trio.sleep(30)
        nodes[0].send_event("deploy", b"7")
        await trio.sleep(15)
        assert gossip.n_seen("failed") == 0
        assert len({name for name, event in gossip.events if getattr(event, "payload", b"") == b"7"}) == 12


async def test_a_partition_of_any_length_heals(autojump_clock: MockClock) -> None:
    """Both sides give the others up, and take them back within a retry interval when the network does."""
    async with node_world() as gossip:
        await gossip.start_all(6)
        some, others = ["n1", "n2", "n3"], ["n4", "n5", "n6"]
        gossip.world.partition(some, others)
        await gossip.until(lambda: gossip.n_seen("failed") == 18, timeout_s=60)
        await trio.sleep(100)
        gossip.world.heal()
        await gossip.agree({f"n{number}": "alive" for number in range(1, 7)}, timeout_s=60)
