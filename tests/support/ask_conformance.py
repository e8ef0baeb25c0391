"""What `Netlink.ask` and the detection of duplicate addresses promise, on the real kernel and on the fake one alike."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
import trio

from beeyard.core.model import AddressConflict
from beeyard.netdrivers import attach, probe
from beeyard.runtime.fake_neighbours import advertisement, arp_probe, arp_reply
from beeyard.runtime.host import Netlink
from tests.support.grants import a_grant

# On an idle machine an answer takes a millisecond; the rest is for a busy one.
WAIT_S = 0.4
STRANGER = "02:00:00:00:00:99"
BROADCAST = b"\xff" * 6


class AskWorld(Protocol):
    """One host with link eth0 on a LAN, address 10.9.0.2, and a foreign machine on the same LAN."""

    @property
    def netlink(self) -> Netlink: ...

    @property
    def own_mac(self) -> str:
        """Of the host's eth0."""

    def create_netns(self) -> str: ...

    def set_parent_up(self, up: bool) -> None: ...

    def foreigner(self, *addresses: str) -> str:
        """A machine with these addresses is on the LAN from now on; gives its MAC address."""

    def shout(self, frame: bytes) -> None:
        """The LAN brings a frame to the host."""

    def frames_seen(self) -> list[bytes]:
        """What reached everybody on the LAN since the last call."""


async def conflicts(world: AskWorld, *addresses: str) -> list[AddressConflict]:
    """Who has what, as an agent asks on eth0."""
    wanted = [("eth0", address) for address in addresses]
    return [conflict for conflict, _ in await probe.conflicts(world.netlink, wanted, WAIT_S)]


async def meanwhile(world: AskWorld, frame: bytes, *addresses: str) -> list[AddressConflict]:
    """The same while the LAN brings a frame."""
    found: list[AddressConflict] = []

    async def ask() -> None:
        found.extend(await conflicts(world, *addresses))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(WAIT_S / 4)
        world.shout(frame)
    return found


async def a_free_address_is_free(world: AskWorld) -> None:
    """Nobody answers: that takes the whole wait and no longer, and asks as often as it should, naming no sender."""
    world.frames_seen()
    began_s = trio.current_time()
    assert await conflicts(world, "10.9.0.64/24", "fd00:9::64/64") == []
    assert WAIT_S * 0.9 < trio.current_time() - began_s < WAIT_S + 2
    asked = [f for f in world.frames_seen() if f[6:12].hex(":") == world.own_mac]
    arp = [f for f in asked if f[12:14] == b"\x08\x06"]
    assert [(f[28:32], ipaddress.ip_address(f[38:42])) for f in arp] == [
        (bytes(4), ipaddress.ip_address("10.9.0.64"))
    ] * probe.PROBES


async def an_address_in_use_is_found_with_its_mac(world: AskWorld) -> None:
    """Both families, and only what is in use."""
    mac = world.foreigner("10.9.0.64/24", "fd00:9::64/64")
    found = await conflicts(world, "10.9.0.64/24", "10.9.0.65/24", "fd00:9::64/64", "fd00:9::65/64")
    assert found == [AddressConflict(address="10.9.0.64", mac=mac), AddressConflict(address="fd00:9::64", mac=mac)]


async def anothers_probe_counts(world: AskWorld) -> None:
    """Somebody is about to take the address at the same time."""
    address = ipaddress.ip_address("10.9.0.64")
    found = await meanwhile(world, arp_probe(address.packed, STRANGER), "10.9.0.64/24")
    assert found == [AddressConflict(address="10.9.0.64", mac=STRANGER)]
    address6 = ipaddress.ip_address("fd00:9::64")
    found = await meanwhile(world, probe.question(address6, bytes.fromhex(STRANGER.replace(":", ""))), "fd00:9::64/64")
    assert found == [AddressConflict(address="fd00:9::64", mac=STRANGER)]


async def what_is_said_of_other_addresses_does_not_count(world: AskWorld) -> None:
    """Answers for and probes of other addresses, and somebody who only looks for a neighbour at the address."""
    own, other = (ipaddress.ip_address(a).packed for a in ("10.9.0.64", "10.9.0.65"))
    mac = bytes.fromhex(STRANGER.replace(":", ""))
    for frame in (
        arp_probe(other, STRANGER),
        arp_reply(other, STRANGER, to=BROADCAST, to_ip=own),
        BROADCAST + arp_probe(own, STRANGER)[6:28] + other + bytes(6) + own,  # a request by .65 for .64
        b"\x08\x06".join((BROADCAST + mac, b"\0\1\x08\0")),  # cut short
    ):
        assert await meanwhile(world, frame, "10.9.0.64/24") == []
    frame = advertisement(ipaddress.ip_address("fd00:9::65").packed, STRANGER)
    assert await meanwhile(world, frame, "fd00:9::64/64") == []


async def our_own_frames_do_not_count(world: AskWorld) -> None:
    """A switch that sends back what it got does not make an address taken."""
    address = ipaddress.ip_address("10.9.0.64")
    assert await meanwhile(world, arp_probe(address.packed, world.own_mac), "10.9.0.64/24") == []


async def a_task_of_this_host_does_not_count(world: AskWorld) -> None:
    """A link on the same parent that has the address, as the task's own predecessor may, is no stranger."""
    await attach(world.netlink, world.create_netns(), a_grant("10.9.0.64/24", "fd00:9::64/64"), "eth0")
    assert await conflicts(world, "10.9.0.64/24", "fd00:9::64/64") == []


async def a_parent_that_is_not_fit_is_left_to_the_driver(world: AskWorld) -> None:
    """Missing or down: no conflict and no error of ours; the port itself tells."""
    assert await probe.conflicts(world.netlink, [("nic7", "10.9.0.64/24")], WAIT_S) == []
    question = probe.question(ipaddress.ip_address("10.9.0.64"), bytes(6))
    with pytest.raises(OSError, match="such") as caught:
        await world.netlink.ask("nic7", [question], lambda frame: True, wait_s=WAIT_S)
    assert caught.value.errno == errno.ENODEV
    world.set_parent_up(False)
    assert await conflicts(world, "10.9.0.64/24") == []
    with pytest.raises(OSError, match="down") as caught:
        await world.netlink.ask("eth0", [question], lambda frame: True, wait_s=WAIT_S)
    assert caught.value.errno == errno.ENETDOWN


async def many_ask_at_once(world: AskWorld) -> None:
    """Each gets its own answer, within the time that one takes."""
    mac = world.foreigner("10.9.0.70/24")
    found: dict[int, list[AddressConflict]] = {}

    async def ask(number: int) -> None:
        found[number] = await conflicts(world, f"10.9.0.{number}/24")

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(40, 99):
            nursery.start_soon(ask, number)
    assert trio.current_time() - began_s < WAIT_S + 2
    assert {n: f for n, f in found.items() if f} == {70: [AddressConflict(address="10.9.0.70", mac=mac)]}


async def asking_can_be_cancelled(world: AskWorld) -> None:
    """Nothing is left open, and others go on."""
    mac = world.foreigner("10.9.0.70/24")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conflicts, world, "10.9.0.71/24", "fd00:9::71/64")
        await trio.sleep(WAIT_S / 8)
        nursery.cancel_scope.cancel()
    assert await conflicts(world, "10.9.0.70/24") == [AddressConflict(address="10.9.0.70", mac=mac)]


CASES: tuple[Callable[[AskWorld], Awaitable[None]], ...] = (
    a_free_address_is_free,
    an_address_in_use_is_found_with_its_mac,
    anothers_probe_counts,
    what_is_said_of_other_addresses_does_not_count,
    our_own_frames_do_not_count,
    a_task_of_this_host_does_not_count,
    a_parent_that_is_not_fit_is_left_to_the_driver,
    many_ask_at_once,
    asking_can_be_cancelled,
)
