"""Duplicate address detection on the fake kernel; `tests/e2e/test_probe.py` checks the same on the real one."""

from __future__ import annotations

import ipaddress

import pytest

from beeyard.core.errors import AddressTaken, NetlinkError
from beeyard.core.model import AddressConflict, Link
from beeyard.netdrivers import probe
from beeyard.netdrivers.announce import internet_checksum
from beeyard.runtime.fake_kernel import FakeKernel
from tests.support.ask_conformance import CASES, STRANGER
from tests.support.counting_netlink import CountingNetlink

MAC = bytes.fromhex("020000000001")


class FakeWorld:
    """A fake kernel, and who else is on its LAN."""

    def __init__(self) -> None:
        self.own_mac = "02:00:00:00:00:01"
        self.kernel = FakeKernel((Link(name="eth0", mac=self.own_mac, mtu=1500, up=True, addresses=("10.9.0.2/24",)),))
        self.netlink = self.kernel
        self.create_netns = self.kernel.create_netns
        self.shout = self.kernel.neighbours.hear

    def set_parent_up(self, up: bool) -> None:
        self.kernel.set_link_up("eth0", up)

    def foreigner(self, *addresses: str) -> str:
        there = {address.partition("/")[0]: STRANGER for address in addresses}
        self.kernel.neighbours.mac_of = there.get
        return STRANGER

    def frames_seen(self) -> list[bytes]:
        frames = [sent.frame for sent in self.kernel.frames]
        self.kernel.frames.clear()
        return frames


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_asking_on_the_fake_kernel(case, autojump_clock):
    """See the case's own docstring."""
    await case(FakeWorld())


def test_a_solicitation_is_as_the_standard_wants_it():
    """From nowhere to the solicited-node group, hop limit 255, a true checksum and no option. Source: RFC 4862, 5.4.2."""
    frame = probe.question(ipaddress.ip_address("fd00:9::12:3456"), MAC)
    assert frame[:14].hex() == "3333ff123456" + "020000000001" + "86dd"
    payload_length, next_header, hop_limit = int.from_bytes(frame[18:20], "big"), frame[20], frame[21]
    assert (payload_length, next_header, hop_limit, len(frame)) == (24, 58, 255, 54 + 24)
    assert ipaddress.ip_address(frame[22:38]) == ipaddress.ip_address("::")
    assert ipaddress.ip_address(frame[38:54]) == ipaddress.ip_address("ff02::1:ff12:3456")
    assert (frame[54], ipaddress.ip_address(frame[62:78])) == (135, ipaddress.ip_address("fd00:9::12:3456"))
    pseudo_header = frame[22:54] + (24).to_bytes(4, "big") + (58).to_bytes(4, "big")
    assert internet_checksum(pseudo_header + frame[54:]) == 0


async def test_a_host_that_cannot_ask_says_so(autojump_clock):
    """An error that is not the parent's fault refuses the task in words."""
    kernel = FakeWorld().kernel
    with pytest.raises(NetlinkError) as caught:
        await probe.conflicts(CountingNetlink(kernel, fail_at=2), [("eth0", "10.9.0.64/24")], 0.1)
    assert str(caught.value) == (
        "probe eth0: the LAN cannot be asked whether 10.9.0.64 is free: no buffer space available"
    )


def test_the_sentence_of_a_conflict():
    """It names address, parent and machine."""
    one = AddressConflict(address="10.77.0.64", mac=STRANGER)
    two = AddressConflict(address="fd77::64", mac=STRANGER)
    assert str(AddressTaken([(one, "eth0")])) == (
        f"address 10.77.0.64 is in use on eth0 by {STRANGER}: it is put aside"
    )
    assert str(AddressTaken([(one, "eth0"), (two, "eth0.10")])) == (
        f"address 10.77.0.64 is in use on eth0 by {STRANGER}, "
        f"address fd77::64 is in use on eth0.10 by {STRANGER}: they are put aside"
    )
