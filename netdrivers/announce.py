"""Frames that tell a LAN where an address lives now: gratuitous ARP and unsolicited neighbour advertisement. Pure.

Without them a neighbour that remembers the address' last holder keeps sending there, for minutes.
"""

from __future__ import annotations

import ipaddress
import struct

_BROADCAST = b"\xff" * 6
_ETHERTYPE_ARP, _ETHERTYPE_IPV6 = 0x0806, 0x86DD
_ARP_REQUEST, _ARP_REPLY = 1, 2
_ALL_NODES = ipaddress.IPv6Address("ff02::1")
_ICMPV6 = 58
_NEIGHBOUR_ADVERTISEMENT = 136
# Only "override" of router, solicited, override: take this address over whatever you remember.
_OVERRIDE = 0x20000000
_TARGET_LINK_ADDRESS = bytes([2, 1])  # option type, length in units of 8 bytes


def announcement(address: ipaddress.IPv4Address | ipaddress.IPv6Address, mac: bytes) -> list[bytes]:
    """The Ethernet frames that announce one address as living at `mac` (6 bytes)."""
    if isinstance(address, ipaddress.IPv4Address):
        # Both forms: RFC 5227 asks for the request, and some switches and hosts only heed the reply.
        return [gratuitous_arp(address, mac, _ARP_REQUEST), gratuitous_arp(address, mac, _ARP_REPLY)]
    return [unsolicited_advertisement(address, mac)]


def gratuitous_arp(address: ipaddress.IPv4Address, mac: bytes, operation: int) -> bytes:
    """A broadcast ARP frame whose sender and target are both the address.

    Source: RFC 826; RFC 5227, section 3: the request form has no target hardware address.
    """
    target = bytes(6) if operation == _ARP_REQUEST else mac
    header = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    arp = header + mac + address.packed + target + address.packed
    return _BROADCAST + mac + struct.pack("!H", _ETHERTYPE_ARP) + arp


def unsolicited_advertisement(address: ipaddress.IPv6Address, mac: bytes) -> bytes:
    """A neighbour advertisement to all nodes, with the override flag.

    Source: RFC 4861, sections 4.4 and 7.2.6; hop limit 255 as receivers demand.
    """
    body = struct.pack("!I", _OVERRIDE) + address.packed + _TARGET_LINK_ADDRESS + mac
    pseudo_header = address.packed + _ALL_NODES.packed + struct.pack("!II", 4 + len(body), _ICMPV6)
    head = struct.pack("!BB", _NEIGHBOUR_ADVERTISEMENT, 0)
    checksum = internet_checksum(pseudo_header + head + bytes(2) + body)
    icmp = head + struct.pack("!H", checksum) + body
    ipv6 = struct.pack("!IHBB", 6 << 28, len(icmp), _ICMPV6, 255) + address.packed + _ALL_NODES.packed
    multicast = b"\x33\x33" + _ALL_NODES.packed[12:]
    return multicast + mac + struct.pack("!H", _ETHERTYPE_IPV6) + ipv6 + icmp


def internet_checksum(data: bytes) -> int:
    """The ones' complement sum that ICMPv6 uses, 16 bits. Source: RFC 1071."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
