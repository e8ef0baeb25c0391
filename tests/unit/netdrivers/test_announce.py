"""The frames field by field, as a receiver reads them."""

from __future__ import annotations

import ipaddress
import struct

from beeyard.netdrivers.announce import announcement, internet_checksum

_MAC = bytes.fromhex("02420a09000a")


def test_announcement_of_ipv4_is_an_arp_request_and_a_reply_about_itself():
    address = ipaddress.IPv4Address("10.9.0.10")
    frames = announcement(address, _MAC)
    assert [struct.unpack_from("!H", frame, 20)[0] for frame in frames] == [1, 2]
    for frame, target in zip(frames, (bytes(6), _MAC), strict=True):
        assert len(frame) == 42
        assert frame[:14] == b"\xff" * 6 + _MAC + b"\x08\x06"
        assert frame[14:20] == bytes.fromhex("000108000604")  # Ethernet, IPv4, 6 and 4 bytes
        assert frame[22:] == _MAC + address.packed + target + address.packed


def test_announcement_of_ipv6_is_one_overriding_advertisement_to_all_nodes():
    address = ipaddress.IPv6Address("fd00:9::10")
    (frame,) = announcement(address, _MAC)
    assert frame[:14] == bytes.fromhex("333300000001") + _MAC + b"\x86\xdd"
    version, length, next_header, hop_limit = struct.unpack_from("!IHBB", frame, 14)
    assert (version >> 28, length, next_header, hop_limit) == (6, 32, 58, 255)
    assert frame[22:54] == address.packed + ipaddress.IPv6Address("ff02::1").packed
    kind, code, _, flags = struct.unpack_from("!BBHI", frame, 54)
    assert (kind, code, flags) == (136, 0, 0x20000000)
    assert frame[62:78] == address.packed
    assert frame[78:] == bytes([2, 1]) + _MAC
    # A message with its checksum in place sums up to nothing.
    pseudo_header = frame[22:54] + struct.pack("!II", length, 58)
    assert internet_checksum(pseudo_header + frame[54:]) == 0


def test_internet_checksum_of_the_example_in_rfc_1071():
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
