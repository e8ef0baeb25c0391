"""What a gossip node offers to its daemon, and what it withstands."""

from __future__ import annotations

import itertools
import random

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.errors import HostError, NotFound, PeerError
from beeyard.discovery.gossip.driver import bind
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import QueryAck, QueryAnswer, QueryAsked, UserEventCame
from tests.support.node_world import PORT, NodeWorld, node_world, status_of

KEY, NEW_KEY = b"k" * 32, b"n" * 16


async def test_events_reach_everybody_once(autojump_clock: MockClock) -> None:
    """The sender too; those who join later do not hear them."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(5)
        nodes[2].send_event("deploy", b"42")
        await trio.sleep(5)
        late = await gossip.start("late")
        await late.join([gossip.address("n1")])
        await trio.sleep(60)
        heard = [(name, e.name, e.payload) for name, e in gossip.events if isinstance(e, UserEventCame)]
        assert sorted(heard) == [(f"n{number}", "deploy", b"42") for number in range(1, 6)]


async def test_larger_states_are_exchanged_more_rarely(autojump_clock: MockClock) -> None:
    """What goes over TCP counts, compressed and sealed, so that idle members send the same in clusters of all sizes."""
    intervals_s = []
    for n_bytes in (10, 400):
        async with node_world() as gossip:
            tags = {"x": "".join(random.Random(1).choices("0123456789abcdef", k=n_bytes))}
            nodes = await gossip.start_all(4, tags=tags)
            await trio.sleep(60)
            intervals_s.append({node.figures()["exchange_interval_s"] for node in nodes})
    assert intervals_s[0] == {30.0}
    assert all(40.0 < interval_s < 120.0 for interval_s in intervals_s[1])


async def test_a_question_is_answered_by_whom_it_is_for(autojump_clock: MockClock) -> None:
    """With acks first; filters by tag and name; an answer is given once; the wait ends by itself."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(3)
        nodes[1].set_tags({"role": "web"})
        await gossip.until(lambda: all(node.members()[1].tags == {"role": "web"} for node in nodes))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_answer_all, gossip)
            answers = nodes[0].query("uptime", b"?", ack=True, relay_factor=1)
            got = [event async for event in answers]
            assert {e.from_node for e in got if isinstance(e, QueryAck)} == {"n1", "n2", "n3"}
            assert {(e.from_node, e.payload) for e in got if isinstance(e, QueryAnswer)} == {
                ("n1", b"n1"),
                ("n2", b"n2"),
                ("n3", b"n3"),
            }
            only = [event async for event in nodes[2].query("uptime", tags={"role": "^w"}, timeout_s=2)]
            assert [event.from_node for event in only if isinstance(event, QueryAnswer)] == ["n2"]
            only = [event async for event in nodes[2].query("uptime", nodes=["n1"], timeout_s=2)]
            assert [event.from_node for event in only if isinstance(event, QueryAnswer)] == ["n1"]
            nursery.cancel_scope.cancel()
        closed = nodes[0].query("uptime")
        closed.close()
        assert [event async for event in closed] == []
        with pytest.raises(NotFound):
            nodes[0].answer(10**9, b"x")


async def _answer_all(gossip: NodeWorld) -> None:
    n_read = 0
    while True:
        for name, event in gossip.events[n_read:]:
            n_read += 1
            if isinstance(event, QueryAsked):
                gossip.nodes[name].answer(event.query_id, name.encode())
        await trio.sleep(0.01)


async def test_tags_and_coordinates_are_known_to_all(autojump_clock: MockClock) -> None:
    """A change of tags is an event; after some probes round trips are estimated about right."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(4)
        nodes[0].set_tags({"role": "manager"})
        await gossip.until(lambda: all(node.members()[0].tags == {"role": "manager"} for node in nodes), timeout_s=5)
        assert gossip.n_seen("update", "n1") == 4
        await trio.sleep(120)
        assert nodes[1].coordinate() is not None
        assert nodes[1].coordinate("nobody") is None
        rtt_s = nodes[1].rtt_s("n3")
        assert rtt_s is not None
        assert 0.0002 < rtt_s < 0.01


async def test_joining_says_why_it_did_not_work(autojump_clock: MockClock) -> None:
    """One that works is enough; names are resolved; each failure is in the sentence."""
    async with node_world() as gossip:
        await gossip.start("n1")
        two = await gossip.start("n2")
        gossip.world.machine("off")
        nowhere = [Address("off", PORT), Address("no-such-host", PORT)]
        with pytest.raises(PeerError, match=r"(?s)(connection refused.*no-such-host|no-such-host.*connection refused)"):
            await two.join(nowhere)
        assert await two.join([*nowhere, Address("n1", PORT)]) == 1
        assert await two.join([]) == 0


async def test_one_port_for_both_and_its_owner_is_told(autojump_clock: MockClock) -> None:
    """A second node on a machine cannot have the port; one that asks for any gets the same for UDP and TCP."""
    async with node_world() as gossip:
        host = gossip.world.host("n1")
        taken = await host.net.datagrams(f"udp://0.0.0.0:{PORT}")
        with pytest.raises(HostError, match="address already in use"):
            await bind(host, "0.0.0.0", PORT)
        datagrams, listener = await bind(host, "0.0.0.0", 0)
        assert listener.address.endswith(f":{datagrams.address[1]}")
        for resource in (taken, datagrams, listener):
            await resource.aclose()


async def test_a_cluster_with_keys_hears_nobody_without(autojump_clock: MockClock) -> None:
    """A plain member cannot join, and a member with the key can; nothing readable is on the wire."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(3, keys=[KEY])
        plain = await gossip.start("plain")
        with pytest.raises(PeerError):
            await plain.join([gossip.address("n1")])
        with pytest.raises(PeerError):
            await nodes[0].join([gossip.address("plain")])
        assert status_of(plain) == {"plain": "alive"}
        assert status_of(nodes[0]) == {"n1": "alive", "n2": "alive", "n3": "alive"}


async def test_keys_are_rotated_and_kept(autojump_clock: MockClock) -> None:
    """Install, use, remove, each by all; a member that starts again has the keys of its file."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(3, keys=[KEY], keyring_path="/var/lib/beeyard/keyring.json")
        for change in (nodes[0].install_key(NEW_KEY), nodes[1].use_key(NEW_KEY), nodes[2].remove_key(KEY)):
            report = await change
            assert (report.n_good, report.n_members) == (3, 3)
        report = await nodes[1].list_keys()
        assert list(report.keys.values()) == [3]
        assert list(report.primary_keys.values()) == [3]
        await trio.sleep(5)
        gossip.world.crash("n2")
        again = await gossip.restart("n2")
        assert again.keyring.keys == (NEW_KEY,)
        await again.join([gossip.address("n1")])
        await gossip.agree({"n1": "alive", "n2": "alive", "n3": "alive"})


async def test_encryption_is_turned_on_in_stages(autojump_clock: MockClock) -> None:
    """At each stage old and new members understand each other."""
    async with node_world() as gossip:
        stages = [
            {},
            {"keys": [KEY], "verify_incoming": False, "verify_outgoing": False},
            {"keys": [KEY], "verify_incoming": False},
            {"keys": [KEY]},
        ]
        for number, (old, new) in enumerate(itertools.pairwise(stages)):
            first = await gossip.start(f"old{number}", **old)
            second = await gossip.start(f"new{number}", **new)
            await second.join([gossip.address(f"old{number}")])
            await gossip.until(lambda pair=(first, second): [len(node.members()) for node in pair] == [2, 2])
            await trio.sleep(20)
        assert gossip.n_seen("failed") == 0


async def test_a_new_life_returns_to_the_members_of_the_old_one(autojump_clock: MockClock) -> None:
    """The snapshot is enough to find them; after a farewell it is not used."""
    async with node_world() as gossip:
        await gossip.start_all(3, snapshot_path="/var/lib/beeyard/gossip")
        everybody = {"n1": "alive", "n2": "alive", "n3": "alive"}
        await trio.sleep(2)
        gossip.world.crash("n3")
        await gossip.restart("n3")
        await gossip.agree(everybody)
        await gossip.nodes["n3"].leave()
        gossip.world.crash("n3")
        await gossip.restart("n3")
        await trio.sleep(60)
        assert status_of(gossip.nodes["n3"]) == {"n3": "alive"}


async def test_two_of_one_name_are_told_apart_by_the_others(autojump_clock: MockClock) -> None:
    """The newcomer ends, with a reason; the one that was there stays."""
    async with node_world() as gossip:
        await gossip.start_all(4)
        second = await gossip.start("second", called="n2")
        await second.join([gossip.address("n1")])
        await gossip.until(lambda: not gossip.world.alive("second"))
        assert gossip.world.exits[-1][1:] == ("second", "member with name n2 already exists")
        await trio.sleep(20)
        assert all(gossip.world.alive(f"n{number}") for number in range(1, 5))
        assert gossip.nodes["n1"].members()[1].address == gossip.address("n2")


async def test_garbage_and_silence_do_no_harm(autojump_clock: MockClock) -> None:
    """Noise in packets and streams, connect-and-close, and a crowd that says nothing: the cluster goes on."""
    async with node_world() as gossip:
        nodes = await gossip.start_all(3)
        stranger = gossip.world.host("stranger")
        noise = random.Random(7)
        socket = await stranger.net.datagrams("udp://0.0.0.0:0")
        for _ in range(500):
            socket.send_nowait(gossip.address("n1"), noise.randbytes(noise.randrange(200)))
        for _ in range(30):
            connection = await stranger.net.dial(f"tcp://{gossip.address('n1')}")
            await connection.stream.send_all(noise.randbytes(noise.randrange(1, 200)))
            await trio.aclose_forcefully(connection.stream)
        crowd = [await stranger.net.dial(f"tcp://{gossip.address('n1')}") for _ in range(200)]
        newcomer = await gossip.start("n4")
        assert await newcomer.join([gossip.address("n1")]) == 1
        await gossip.agree({f"n{number}": "alive" for number in range(1, 5)})
        figures = nodes[0].figures()
        assert figures["packets_refused"] > 300
        assert figures["streams_refused"] == 200 - 96
        await trio.sleep(20)
        assert gossip.n_seen("failed") == 0
        for connection in crowd:
            await connection.stream.aclose()
