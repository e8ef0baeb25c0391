"""Hosts of a LAN find each other, whatever they know beforehand."""

from __future__ import annotations

import functools

import msgspec
import pytest
import trio

from beeyard.core.errors import InvalidSpec
from beeyard.core.model import Link
from beeyard.discovery.gossip.config import GossipConfig
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.peers.known_peers import KnownPeer
from beeyard.discovery.self_discovery import LEAVE_TIMEOUT_S
from beeyard.discovery.settings import DiscoverySettings
from beeyard.runtime.sim_parts import FakeParts
from tests.support.gossip_world import STATE_DIR, GossipWorld

THEIRS = "b" * 50
LISTED = pytest.RaisesExc(InvalidSpec, match=r"10\.9\.0\.1 on eth0, 172\.16\.0\.3 on eth1; name one")
NAMED = pytest.RaisesExc(InvalidSpec, match=r"discovery.keyring_file: .*/etc/beeyard/keyring.json")
NOTHING = DiscoverySettings(mdns="", scan=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", ["mdns", "scan"])
async def test_hosts_that_start_together_with_empty_disks_are_one_cluster(seed, way, autojump_clock):
    """By multicast alone, and where nothing passes it on by asking each address."""
    settings = DiscoverySettings(mdns="beeyard", scan=way == "scan")
    async with GossipWorld(seed) as world:
        world.network.multicast = way == "mdns"
        for name in ("n1", "n2", "n3"):
            world.begin(name, settings=settings)
        await world.until_one("n1", "n2", "n3", within_s=3.0)


async def test_many_hosts_that_start_together_are_one_cluster(autojump_clock):
    """Not several that found each other first."""
    async with GossipWorld(1) as world:
        world.network.multicast = False
        names = [f"n{number:02}" for number in range(16)]
        for name in names:
            world.begin(name)
        await world.until_one(*names, within_s=3.0)


async def test_the_first_peer_waits_for_as_long_as_it_takes(autojump_clock):
    """And is found at once by the second."""
    async with GossipWorld(1) as world:
        world.network.multicast = False
        first = world.begin("n1")
        await trio.sleep(240)
        assert first.seen() == ["n1"]
        world.begin("n2")
        await world.until_one("n1", "n2", within_s=3.0)


async def test_known_peers_are_found_without_looking_for_them(autojump_clock):
    """After a power cut of the whole room, with neither multicast nor a scan."""
    names = ("n1", "n2", "n3")
    async with GossipWorld(1) as world:
        for name in names:
            world.begin(name, given=[Address("n1", 3388)], settings=NOTHING)
        await world.until_one(*names, within_s=3.0)
        await trio.sleep(5)  # they are written when changes have come to rest
        for name in names:
            world.power_cut(name)
        await trio.sleep(60)
        again = []
        for name in names:
            world.network.power_on(world.machines[name].net)
            again.append(world.begin(f"{name} again", machine=name, called=name, settings=NOTHING))
        await world.until(lambda: all(member.seen() == list(names) for member in again), timeout_s=1.0, every_s=0.01)


async def test_a_failed_peer_is_remembered_with_its_age_and_found_when_it_is_back(autojump_clock):
    """By a host that starts while it is gone."""
    async with GossipWorld(1) as world:
        for name in ("n1", "n2"):
            world.begin(name, given=[Address("n1", 3388)], settings=NOTHING)
        await world.until_one("n1", "n2", within_s=3.0)
        await trio.sleep(5)
        world.crash("n1")
        await world.until(lambda: world.members["n2"].seen() == ["n2"], timeout_s=60)
        failed_at_s = world.machines["n2"].wall_now_s()
        await trio.sleep(5)
        data = await world.host("n2").files.read(f"{STATE_DIR}/n2/known-peers")
        (peer,) = msgspec.json.decode(data, type=list[KnownPeer])
        assert (peer.name, peer.port) == ("n1", 3388)
        assert abs(peer.gone_at_s - failed_at_s) < 5
        world.crash("n2")
        world.restart("n2")
        await trio.sleep(100)
        world.restart("n1")
        await world.until_one("n1", "n2", within_s=31.0)


async def test_given_peers_are_joined_by_name_and_those_that_do_not_exist_are_asked_again(autojump_clock):
    """The one that comes later is found within the longest pause."""
    given = [Address("nobody.example", 3388), Address("n2", 3388)]
    async with GossipWorld(1) as world:
        world.begin("n1", given=given, settings=NOTHING)
        await trio.sleep(240)
        world.begin("n2", settings=NOTHING)
        await world.until_one("n1", "n2", within_s=31.0)


async def test_two_clusters_on_one_lan_stay_apart(autojump_clock):
    """Though they find each other, again and again; and a wrong join merges nothing."""
    async with GossipWorld(1) as world:
        for name in ("a1", "a2", "a3"):
            world.begin(name)
        for name in ("b1", "b2"):
            world.begin(name, cluster=THEIRS, given=[Address("a1", 3388)])
        await world.until_one("a1", "a2", "a3", within_s=5.0)
        await world.until_one("b1", "b2", within_s=5.0)
        for _ in range(20):
            await trio.sleep(5)
            assert world.are_one("a1", "a2", "a3")
            assert world.are_one("b1", "b2")
        for member in world.members.values():
            assert {seen.name[0] for seen in member.discovery.node.members()} == {member.name[0]}


async def test_a_plain_serf_agent_is_carried_along_and_not_shown(autojump_clock):
    """It has no cluster, and nothing is believed of what it says."""
    async with GossipWorld(1) as world:
        tags = {"role": "manager", "manager": "10.6.6.6:2377"}
        node = GossipNode(world.host("plain"), GossipConfig(name="plain", port=3388, tags=tags))
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            for name in ("n1", "n2"):
                world.begin(name)
            await world.until_one("n1", "n2", within_s=5.0)
            await world.until(lambda: len(node.members()) == 3, timeout_s=5.0)
            discovery = world.members["n1"].discovery
            assert [member.name for member in discovery.node.members()] == ["n1", "n2", "plain"]
            assert discovery.managers() == []
            nursery.cancel_scope.cancel()


def two_links(machine):
    """A kernel of a host on two networks; only the first leads anywhere."""
    links = (
        Link(name="eth0", mtu=1500, up=True, addresses=(f"{machine.ip}/16",)),
        Link(name="eth1", mtu=1500, up=True, addresses=("172.16.0.3/24",)),
    )
    return FakeParts(machine, links=links)


async def test_of_several_addresses_the_one_is_advertised_that_leads_to_a_peer(autojump_clock):
    """Whether it is given or found by asking."""
    parts = {"n1": FakeParts, "n2": two_links, "n3": two_links}
    async with GossipWorld(1, parts=lambda machine: parts[machine.name](machine)) as world:
        world.network.multicast = False
        world.begin("n1")
        world.begin("n2", given=[Address("n1", 3388)], settings=NOTHING)
        await trio.sleep(1)
        world.begin("n3")
        await world.until_one("n1", "n2", "n3", within_s=8.0)
        for name in ("n2", "n3"):
            assert world.members[name].discovery.me == Address(world.machines[name].ip, 3388)


async def test_several_addresses_and_nobody_there_is_an_error_that_lists_them(autojump_clock):
    """Unless one is named."""
    async with GossipWorld(1, parts=two_links) as world:
        world.network.multicast = False
        named = world.begin("n2", advertise="172.16.0.3:4000")
        await trio.sleep(1)
        assert named.discovery.me == Address("172.16.0.3", 4000)
        world.crash("n2")
    with pytest.RaisesGroup(LISTED, flatten_subgroups=True):
        async with GossipWorld(1, parts=two_links) as world:
            world.network.multicast = False
            world.begin("n1")
            await trio.sleep(30)


async def test_a_second_daemon_of_a_host_takes_another_port_and_joins_the_first(autojump_clock):
    """And both have company when others come."""
    async with GossipWorld(1) as world:
        world.network.multicast = False
        world.begin("agent", machine="n1", settings=NOTHING)
        await trio.sleep(1)
        manager = world.begin("manager", machine="n1", settings=NOTHING)
        await world.until_one("agent", "manager", within_s=2.0)
        assert manager.discovery.me == Address(world.machines["n1"].ip, 3389)
        world.begin("n2")
        await world.until_one("agent", "manager", "n2", within_s=3.0)


async def test_another_daemon_of_the_same_host_is_no_company(autojump_clock):
    """The two go on searching for others as one alone does."""
    async with GossipWorld(1) as world:
        world.network.multicast = False
        world.begin("agent", machine="n1")
        world.begin("manager", machine="n1")
        await world.until_one("agent", "manager", within_s=3.0)
        await trio.sleep(12)  # the first search is over
        world.begin("n2", settings=NOTHING)
        await world.until_one("agent", "manager", "n2", within_s=16.0)


async def test_parts_that_never_met_find_each_other_when_the_network_lets_them(autojump_clock):
    """Within a round, although both have company."""
    names = ("n1", "n2", "n3", "n4")
    async with GossipWorld(1) as world:
        world.network.multicast = False
        for name in names:
            world.machine(name)
        world.partition(["n1", "n2"], ["n3", "n4"])
        for name in names:
            world.begin(name)
        await world.until(lambda: world.are_one("n1", "n2") and world.are_one("n3", "n4"), timeout_s=3.0)
        await trio.sleep(100)
        world.heal()
        await world.until_one(*names, within_s=70.0)


async def test_lost_packets_do_not_keep_hosts_apart(autojump_clock):
    """A third of them."""
    async with GossipWorld(1) as world:
        world.network.multicast = False
        world.network.datagram_loss = 0.3
        for name in ("n1", "n2", "n3", "n4"):
            world.begin(name)
        await world.until_one("n1", "n2", "n3", "n4", within_s=70.0)


async def test_a_member_that_leaves_is_seen_to_have_left(autojump_clock):
    """And is not waited for."""
    async with GossipWorld(1) as world:
        for name in ("n1", "n2", "n3"):
            world.begin(name)
        await world.until_one("n1", "n2", "n3", within_s=3.0)
        seen = functools.partial(statuses_of, world.members["n1"], "n3")
        await world.members["n3"].discovery.leave()
        world.crash("n3")
        await world.until(lambda: seen() == "left", timeout_s=5.0)
        await trio.sleep(60)
        assert seen() == "left"


async def test_many_hear_a_leave_to_its_end(autojump_clock):
    """The farewell is not cut off by whoever wants to stop."""
    async with GossipWorld(1) as world:
        names = [f"n{number}" for number in range(1, 17)]
        for name in names:
            world.begin(name)
        await world.until_one(*names, within_s=10.0)
        before_s = trio.current_time()
        await world.members["n3"].discovery.leave()
        assert trio.current_time() - before_s < LEAVE_TIMEOUT_S
        assert {statuses_of(world.members[name], "n3") for name in names} == {"left"}


def statuses_of(member, name):
    return next(seen.status for seen in member.discovery.node.members() if seen.name == name)


async def test_a_lone_member_leaves_at_once(autojump_clock):
    """There is nobody to tell."""
    async with GossipWorld(1) as world:
        member = world.begin("n1")
        await trio.sleep(5)
        before_s = trio.current_time()
        await member.discovery.leave()
        assert trio.current_time() == before_s


async def test_changes_wake_whoever_waits_for_them(autojump_clock):
    """One that joins, one that fails."""
    async with GossipWorld(1) as world:
        member = world.begin("n1")
        await trio.sleep(5)
        world.begin("n2")
        with trio.fail_after(5):
            while member.seen() != ["n1", "n2"]:
                await member.discovery.changed()
        world.crash("n2")
        with trio.fail_after(60):
            while member.seen() != ["n1"]:
                await member.discovery.changed()


@pytest.mark.parametrize("fault", ["missing", "garbage", "a directory"])
async def test_a_keyring_that_cannot_be_read_is_an_error_that_names_it(fault, autojump_clock):
    """It must not gossip in the clear instead."""
    settings = DiscoverySettings(keyring_file="/etc/beeyard/keyring.json")
    with pytest.RaisesGroup(NAMED, flatten_subgroups=True):
        async with GossipWorld(1) as world:
            if fault == "garbage":
                await world.host("n1").files.replace("/etc/beeyard/keyring.json", b"[")
            if fault == "a directory":
                await world.host("n1").files.replace("/etc/beeyard/keyring.json/keys", b"[]")
            world.begin("n1", settings=settings)
            await trio.sleep(5)


async def test_members_with_one_key_find_each_other_and_nobody_else(autojump_clock):
    """Also by the scan, whose pings are encrypted."""
    settings = DiscoverySettings(keyring_file="/etc/beeyard/keyring.json", mdns="")
    async with GossipWorld(1) as world:
        for name in ("n1", "n2"):
            await world.host(name).files.replace("/etc/beeyard/keyring.json", b'["AAAAAAAAAAAAAAAAAAAAAA=="]')
            world.begin(name, settings=settings)
        stranger = world.begin("n3")
        await world.until_one("n1", "n2", within_s=3.0)
        await trio.sleep(120)
        assert stranger.seen() == ["n3"]
        assert world.are_one("n1", "n2")


KEYED = {"keyring_file": "/etc/beeyard/keyring.json", "mdns": ""}
ROUNDS = (
    DiscoverySettings(mdns=""),
    DiscoverySettings(**KEYED, verify_incoming=False, verify_outgoing=False),
    DiscoverySettings(**KEYED, verify_incoming=False),
    DiscoverySettings(**KEYED),
)


@pytest.mark.parametrize("number", range(3))
async def test_members_of_two_rounds_of_a_change_to_encryption_are_one_cluster(number, autojump_clock):
    """Whichever of them is asked by the other's scan."""
    async with GossipWorld(1) as world:
        rounds = {"n1": ROUNDS[number], "n2": ROUNDS[number + 1], "n3": ROUNDS[number + 1], "n4": ROUNDS[number]}
        for name, settings in rounds.items():
            await world.host(name).files.replace("/etc/beeyard/keyring.json", b'["AAAAAAAAAAAAAAAAAAAAAA=="]')
            world.begin(name, settings=settings)
        await world.until_one(*rounds, within_s=3.0)
        await trio.sleep(60)
        assert world.are_one(*rounds)


async def test_a_round_that_is_left_out_parts_the_members(autojump_clock):
    """Plain ones and those that encrypt: what the rounds are for."""
    async with GossipWorld(1) as world:
        for name, settings in (("n1", ROUNDS[0]), ("n2", ROUNDS[2])):
            await world.host(name).files.replace("/etc/beeyard/keyring.json", b'["AAAAAAAAAAAAAAAAAAAAAA=="]')
            world.begin(name, settings=settings)
        await trio.sleep(120)
        assert (world.are_one("n1"), world.are_one("n2")) == (True, True)


async def test_a_member_whose_name_another_one_has_rests_and_comes_back(autojump_clock):
    """The daemon around it does not end, and is a member again when the other one is gone."""
    async with GossipWorld(1) as world:
        for name in ("n1", "n2", "n3"):
            world.begin(name)
        await world.until_one("n1", "n2", "n3", within_s=3.0)
        world.begin("second", called="n3")
        second = world.machine("second").ip
        await trio.sleep(40)  # they have voted
        assert world.alive("second")
        assert not world.machines["second"].net.datagrams.get(3388), "it rests"
        assert world.are_one("n1", "n2", "n3")
        world.crash("n3")
        await world.until(lambda: address_of(world.members["n1"], "n3") == second, timeout_s=400.0)
        assert world.members["second"].seen() == ["n1", "n2", "n3"]


async def test_a_defect_met_in_gossip_ends_gossip_for_a_while_and_not_the_daemon(autojump_clock):
    """Any packet of the LAN may be what meets it."""

    def meet_a_defect(*_: object) -> None:
        raise RuntimeError("a defect")

    async with GossipWorld(1) as world:
        for name in ("n1", "n2"):
            world.begin(name)
        await world.until_one("n1", "n2", within_s=3.0)
        node = world.members["n2"].discovery.node
        node._serf.handle = meet_a_defect
        await world.until(lambda: world.members["n1"].seen() == ["n1"], timeout_s=60.0)
        assert world.alive("n2")
        await world.until_one("n1", "n2", within_s=100.0)


def address_of(member, name):
    return next(
        (seen.address.host for seen in member.discovery.members() if seen.name == name and seen.status == "alive"), ""
    )
