"""What a search for peers sends and answers, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from beeyard.core.errors import PeerError
from beeyard.core.model import Link
from beeyard.discovery.gossip.message import Ack, Address, Ping
from beeyard.discovery.gossip.wire.codec import encode
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.peers import dns
from beeyard.discovery.peers.finder import Finder, Searcher
from beeyard.discovery.peers.known_peers import KnownPeers
from beeyard.discovery.peers.mdns import GROUP_IPV4, MDNS_PORT, Offer, Responder, browse, service_name
from beeyard.discovery.peers.own_addresses import OwnAddress, own_addresses
from beeyard.discovery.peers.probe import Prober
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime.host import Datagrams, Group, Host, Multicast
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts

QUESTION = dns.Question(service_name("yard"), dns.PTR)


@asynccontextmanager
async def responder_and_asker(own: Sequence[OwnAddress] | None = None) -> AsyncIterator[tuple[Host, Host]]:
    """A host whose responder offers 10.9.0.1:3388, and another host."""
    async with SimWorld(1, parts=FakeParts) as world:
        host, asker = world.host("n1"), world.host("n2")
        mine = await own_addresses(host) if own is None else own
        offer = Offer(service="yard", instance="n1", address=Address("10.9.0.1", 3388))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Responder(host, lambda: offer, lambda: mine).run)
            await trio.sleep(0.1)
            yield host, asker
            nursery.cancel_scope.cancel()


async def heard(socket: Datagrams, within_s: float = 1.0) -> dns.DnsMessage | None:
    """The next message, if one comes."""
    with trio.move_on_after(within_s):
        return dns.decode((await socket.receive())[0])
    return None


def query(*questions: dns.Question, number: int = 7) -> bytes:
    return dns.encode(dns.DnsMessage(id=number, questions=questions))


async def test_whoever_does_not_take_part_in_mdns_is_answered_alone_with_his_id_and_question(autojump_clock):
    """And a short time to live."""
    async with responder_and_asker() as (_, asker):
        socket = await asker.net.datagrams("udp://0.0.0.0:0")
        await socket.send((GROUP_IPV4, MDNS_PORT), query(QUESTION))
        answer = await heard(socket)
        assert answer is not None
        assert (answer.id, answer.questions) == (7, (QUESTION,))
        assert [record.kind for record in answer.records] == [dns.PTR, dns.SRV, dns.A, dns.TXT]
        assert {record.ttl_s for record in answer.records} == {10}


@pytest.mark.parametrize("unicast", [False, True])
async def test_a_responder_is_answered_in_the_group_unless_it_wants_it_alone(unicast, autojump_clock):
    """Without id and question."""
    async with responder_and_asker() as (_, asker):
        groups = [] if unicast else [Group(address=GROUP_IPV4)]
        socket = await asker.net.datagrams(f"udp://0.0.0.0:{MDNS_PORT}", multicast=Multicast(groups=groups))
        await socket.send((GROUP_IPV4, MDNS_PORT), query(QUESTION._replace(unicast=unicast)))
        answer = await heard(socket)
        while answer is not None and not answer.is_answer:  # the question itself comes back from the group
            answer = await heard(socket)
        assert answer is not None
        assert (answer.id, answer.questions, len(answer.records)) == (0, (), 4)


async def test_others_questions_garbage_and_answers_are_left_alone(autojump_clock):
    """Only then is the responder no reflector."""
    async with responder_and_asker() as (_, asker):
        socket = await asker.net.datagrams("udp://0.0.0.0:0")
        other = dns.Question(("_http", "_tcp", "local"), dns.PTR)
        answer = dns.DnsMessage(is_answer=True, questions=(QUESTION,))
        for data in (query(other), b"garbage", b"", dns.encode(answer)):
            await socket.send((GROUP_IPV4, MDNS_PORT), data)
        assert await heard(socket) is None
        await socket.send((GROUP_IPV4, MDNS_PORT), query(QUESTION))
        assert await heard(socket) is not None


async def test_a_stranger_from_another_network_is_not_answered(autojump_clock):
    """Its address may be that of a victim."""
    elsewhere = [OwnAddress(interface="eth0", address="172.16.0.1", prefix_length=24)]
    async with responder_and_asker(elsewhere) as (_, asker):
        socket = await asker.net.datagrams("udp://0.0.0.0:0")
        await socket.send(("10.9.0.1", MDNS_PORT), query(QUESTION))
        assert await heard(socket) is None


async def test_a_flood_of_questions_is_answered_in_part(autojump_clock):
    """And the responder goes on afterwards."""
    async with responder_and_asker() as (_, asker):
        socket = await asker.net.datagrams("udp://0.0.0.0:0", receive_buffer_bytes=1 << 22)
        for _ in range(500):
            await socket.send((GROUP_IPV4, MDNS_PORT), query(QUESTION))
        n_answers = 0
        while await heard(socket, 1.5) is not None:
            n_answers += 1
        assert 0 < n_answers <= 100
        await socket.send((GROUP_IPV4, MDNS_PORT), query(QUESTION))
        assert await heard(socket) is not None


async def test_a_port_that_somebody_keeps_for_himself_is_tried_again(autojump_clock):
    """Peers find this host once it is free."""
    async with SimWorld(1, parts=FakeParts) as world:
        host, asker = world.host("n1"), world.host("n2")
        owner = await host.net.datagrams(f"udp://0.0.0.0:{MDNS_PORT}")
        offer = Offer(service="yard", instance="n1", address=Address("10.9.0.1", 3388))
        mine = await own_addresses(host)
        found: list[tuple[str, Address]] = []

        async def look() -> list[tuple[str, Address]]:
            found.clear()
            await browse(asker, "yard", await own_addresses(asker), lambda *peer: found.append(peer), wait_s=1.0)
            return found

        async with trio.open_nursery() as nursery:
            nursery.start_soon(Responder(host, lambda: offer, lambda: mine).run)
            assert await look() == []
            await owner.aclose()
            await trio.sleep(61)
            assert await look() == [("n1", Address("10.9.0.1", 3388))]
            nursery.cancel_scope.cancel()


def on_a_small_network(machine: SimMachine) -> FakeParts:
    """Of 14 hosts, so that half an hour of scans is quick."""
    return FakeParts(machine, links=(Link(name="eth0", mtu=1500, up=True, addresses=(f"{machine.ip}/28",)),))


class Strangers:
    """`Company` of a host that is alone and whose every join is refused."""

    me = Address("10.9.0.1", 3388)

    def __init__(self) -> None:
        self.tried_at_s: list[float] = []

    def is_member(self, address: Address) -> bool:
        return False

    def has_company(self) -> bool:
        return False

    def is_first_in(self, own: Sequence[OwnAddress]) -> bool:
        return True

    async def changed(self) -> None:
        await trio.sleep_forever()

    async def join(self, addresses: Sequence[Address]) -> int:
        self.tried_at_s.append(trio.current_time())
        raise PeerError("nobody in it is welcome")


async def answer_pings(socket: Datagrams, seen: list[float]) -> None:
    """A memberlist that answers whoever asks, and nothing else."""
    codec = PacketCodec()
    while True:
        data, source = await socket.receive()
        (ping,) = codec.unpack(data)
        assert isinstance(ping, Ping)
        assert ping.node == ""
        seen.append(trio.current_time())
        await socket.send(source, codec.pack([encode(Ack(seq_no=ping.seq_no))]))


async def test_a_cluster_that_is_not_ours_is_asked_politely(autojump_clock):
    """It answers each scan; it is joined less and less often, and scans become rare."""
    async with SimWorld(1, parts=on_a_small_network) as world:
        host, other = world.host("n1"), world.host("n2")
        company, pings = Strangers(), []
        prober = Prober(host, PacketCodec)
        searcher = Searcher(host, prober, DiscoverySettings(mdns=""), 3388)
        finder = Finder(host, company, prober, searcher, KnownPeers(host.files, "/known", host.wall_now_s), [])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_pings, await other.net.datagrams("udp://0.0.0.0:3388"), pings)
            nursery.start_soon(finder.run)
            await trio.sleep(1800)
            nursery.cancel_scope.cancel()
        assert 5 <= len(company.tried_at_s) <= 13
        assert all(
            later - earlier >= 5.0 for earlier, later in zip(company.tried_at_s, company.tried_at_s[1:], strict=False)
        )
        assert company.tried_at_s[-1] - company.tried_at_s[-2] >= 300.0
        assert 20 <= len(pings) <= 80


async def test_a_scan_goes_out_slowly_enough_for_the_table_of_neighbours(autojump_clock):
    """A /24 in a tenth of a second; of more, less than 600 addresses in any 3 s."""
    async with SimWorld(1, parts=FakeParts) as world:
        host = world.host("n1")
        sent: list[float] = []
        watched = host.net.datagrams

        async def datagrams(address: str, **more: object) -> Datagrams:
            socket = await watched(address, **more)
            send = socket.send

            async def noted(to: tuple[str, int], data: bytes) -> bool:
                sent.append(trio.current_time())
                return await send(to, data)

            socket.send = noted
            return socket

        host.net.datagrams = datagrams
        own = [OwnAddress(interface="eth0", address="10.9.0.1", prefix_length=22)]
        await Prober(host, PacketCodec).scan(own, 3388, lambda address: None)
        assert len(sent) == 1021
        begun_s = sent[0]
        assert sum(at_s - begun_s <= 0.1 for at_s in sent) >= 254
        assert max(sum(0 <= at_s - first < 3.0 for at_s in sent) for first in sent) < 600
        assert sent[-1] - begun_s < 10.0


async def test_who_sends_an_answer_that_was_not_asked_for_is_nobody(autojump_clock):
    """Only an ack with the number of this question counts, whoever sends it."""
    async with SimWorld(1, parts=FakeParts) as world:
        host, other = world.host("n1"), world.host("n2")
        socket = await other.net.datagrams("udp://0.0.0.0:3388")
        found: list[Address] = []

        async def lie() -> None:
            codec = PacketCodec()
            while True:
                data, source = await socket.receive()
                (ping,) = codec.unpack(data)
                assert isinstance(ping, Ping)
                wrong = encode(Ack(seq_no=(ping.seq_no + 1) % 2**32))
                for answer in (b"", b"garbage", codec.pack([wrong]), codec.pack([encode(ping)])):
                    await socket.send(source, answer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lie)
            await Prober(host, PacketCodec).ask([Address("10.9.0.2", 3388)], found.append, wait_s=1.0)
            nursery.cancel_scope.cancel()
        assert found == []
