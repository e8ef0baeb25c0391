"""The file of known peers."""

from __future__ import annotations

import random

import msgspec
import pytest

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import Member, MemberStatus
from beeyard.discovery.peers.known_peers import FORGET_AFTER_S, PEERS_MAX, KnownPeers
from beeyard.runtime.sim_disk import SimDisk, SimFiles
from beeyard.runtime.sim_life import Life, PauseSwitch

PATH = "/var/lib/beeyard/agent/known-peers"


class Yard:
    """A disk, a clock, and what is known on them."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.now_s = 1_700_000_000.0

    def files(self) -> SimFiles:
        return SimFiles(self.disk, Life("n1", PauseSwitch()))

    async def known(self) -> KnownPeers:
        known = KnownPeers(self.files(), PATH, lambda: self.now_s)
        await known.load()
        return known


def member(name: str, status: MemberStatus = "alive", host: str = "") -> Member:
    return Member(name=name, address=Address(host or f"10.0.0.{name[1:]}", 3388), status=status)


def hosts(known: KnownPeers) -> list[str]:
    return [address.host for address in known.addresses()]


async def test_peers_outlive_the_daemon_and_the_failed_come_last():
    """Of the failed the one that lived longest comes first."""
    yard = Yard()
    known = await yard.known()
    await known.note([member("n1"), member("n2", "failed"), member("n3", "left"), member("n4")])
    yard.now_s += 60
    await known.note([member("n4", "failed")])
    again = await yard.known()
    assert hosts(again) == ["10.0.0.1", "10.0.0.4", "10.0.0.2", "10.0.0.3"]
    assert [peer.gone_at_s - 1_700_000_000.0 for peer in again.peers() if peer.gone_at_s] == [0.0, 0.0, 60.0]


async def test_a_peer_that_is_back_counts_as_alive_and_one_that_moved_is_at_its_new_address():
    """By its name."""
    yard = Yard()
    known = await yard.known()
    await known.note([member("n2", "failed")])
    await known.note([member("n2", "alive", "10.0.0.99")])
    assert [(peer.host, peer.gone_at_s) for peer in known.peers()] == [("10.0.0.99", 0.0)]


async def test_the_age_of_a_failure_is_that_of_its_beginning():
    """However often it is told, and over a restart."""
    yard = Yard()
    await (await yard.known()).note([member("n2", "failed")])
    yard.now_s += FORGET_AFTER_S - 10
    known = await yard.known()
    await known.note([member("n2", "failed"), member("n3")])
    assert hosts(known) == ["10.0.0.3", "10.0.0.2"]
    yard.now_s += 20
    await known.note([member("n3")])
    assert hosts(known) == ["10.0.0.3"]


async def test_the_file_stays_small():
    """Those that are alive are kept rather than those that failed."""
    yard = Yard()
    known = await yard.known()
    await known.note([member(f"n{number}", "failed" if number % 2 else "alive") for number in range(2 * PEERS_MAX)])
    assert len(known.peers()) == PEERS_MAX
    assert not any(peer.gone_at_s for peer in known.peers())


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0" * 100, b"[1]", b'{"name": "n1"}', b'[{"name": "n1"}]', b"\xff\xfe", b'[{"name":"n1","host":"h"'],
)
async def test_garbage_counts_as_nobody_and_is_written_over(garbage):
    """It costs a search, never the start."""
    yard = Yard()
    await yard.files().replace(PATH, garbage)
    known = await yard.known()
    assert known.addresses() == []
    await known.note([member("n2")])
    assert hosts(await yard.known()) == ["10.0.0.2"]


async def test_peers_that_cannot_be_reached_by_anybody_are_left_out():
    """A port or a host that is none."""
    yard = Yard()
    peers = [
        {"name": "n1", "host": "h", "port": 0},
        {"name": "n2", "host": "", "port": 1},
        {"name": "n3", "host": "h", "port": 1},
    ]
    await yard.files().replace(PATH, msgspec.json.encode(peers))
    assert (await yard.known()).addresses() == [Address("h", 1)]


async def test_a_full_disk_costs_the_memory_of_it_alone():
    """What is known goes on being known, and is written when there is room."""
    yard = Yard()
    known = await yard.known()
    yard.disk.full = True
    await known.note([member("n2")])
    assert hosts(known) == ["10.0.0.2"]
    yard.disk.full = False
    await known.note([member("n2")])
    assert hosts(await yard.known()) == ["10.0.0.2"]


async def test_a_power_cut_leaves_the_old_file_or_the_new_one():
    """Never a part of one."""
    yard = Yard()
    await (await yard.known()).note([member("n2")])
    yard.disk.power_cut()
    assert hosts(await yard.known()) == ["10.0.0.2"]
