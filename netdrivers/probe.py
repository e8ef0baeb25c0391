"""Duplicate address detection: asking a LAN whether anybody has an address already, before it is used.

Theory of operation
-------------------
The host asks from the *parent* of the link to be, in its own namespace and with the parent's own MAC address, before anything
of the link exists. That works alike for macvlan and ipvlan l2 and for VLAN parents, changes no neighbour's memory (an ARP
probe names no sender, a solicitation comes from the unspecified address), and costs nothing when the answer is no.

An address is *taken* when within the wait a frame comes in that says so:

* ARP whose sender has the address, be it request or reply: somebody uses it;
* an ARP probe for it (no sender address): somebody else is about to use it;
* a neighbour advertisement for it, or a neighbour solicitation for it from the unspecified address: the same for IPv6.

Frames with the parent's own MAC do not count: some switches send back what they got. Router Linux machines that answer for
others (proxy ARP) keep quiet at probes. Waits are far shorter than the standards' (1 to 3 s), as LANs are today: a machine
that needs longer than 0.1 s to answer is not found.

Source: RFC 5227, section 2.1.1; RFC 4862, section 5.4; RFC 4861, sections 4.3 and 7.1.
"""

from __future__ import annotations

import errno
import ipaddress
import struct
from collections.abc import Mapping, Sequence
from functools import partial

import trio

from beeyard.core.errors import NetlinkError
from beeyard.core.model import AddressConflict
from beeyard.netdrivers import codec
from beeyard.netdrivers.announce import internet_checksum
from beeyard.runtime.host import Netlink
from beeyard.runtime.netlink_format import as_mac, mac_bytes

# One may be lost; RFC 5227 sends three over as many seconds.
PROBES = 2

_BROADCAST = b"\xff" * 6
_ARP, _IPV6 = b"\x08\x06", b"\x86\xdd"
_ICMPV6, _HOP_LIMIT = 58, 255
_SOLICITATION, _ADVERTISEMENT = 135, 136
_SOLICITED_NODE = ipaddress.IPv6Address("ff02::1:ff00:0").packed
_ALL_NODES_MAC = b"\x33\x33\0\0\0\x01"
_UNSPECIFIED4, _UNSPECIFIED6 = bytes(4), bytes(16)
# The parent is not fit for a link at all: attaching says so in better words.
_PARENT_UNFIT = (errno.ENODEV, errno.ENETDOWN, errno.ENXIO)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def conflicts(
    netlink: Netlink, wanted: Sequence[tuple[str, str]], wait_s: float
) -> list[tuple[AddressConflict, str]]:
    """What of some addresses somebody on the LAN has, with the parent it was found on, in the given order.

    All are probed at once. A parent that is missing, down or no Ethernet device gives none: whoever attaches the link finds
    that out, and says it better.

    Args:
        wanted: (parent interface, address with or without prefix length).
        wait_s: how long to listen; never longer.

    Raises:
        NetlinkError: the host cannot ask.
    """
    found: dict[tuple[str, str], str] = {}
    errors: list[NetlinkError] = []

    async def ask(parent: str, text: str, own_mac: bytes) -> None:
        try:
            mac = await _claimant(netlink, parent, text, own_mac, wait_s)
        except OSError as error:
            if error.errno not in _PARENT_UNFIT:
                advice = f"the LAN cannot be asked whether {text} is free: {error.strerror}"
                errors.append(NetlinkError(error.errno or 0, "probe", parent, advice))
        else:
            if mac:
                found[parent, text] = mac

    keys = [(parent, address.partition("/")[0]) for parent, address in wanted]
    macs = {parent: await _mac_of(netlink, parent) for parent in dict.fromkeys(parent for parent, _ in keys)}
    async with trio.open_nursery() as nursery:
        for parent, text in keys:
            if macs[parent]:
                nursery.start_soon(ask, parent, text, macs[parent])
    if errors:
        raise errors[0]
    return [(AddressConflict(address=key[1], mac=found[key]), key[0]) for key in keys if key in found]


async def _claimant(netlink: Netlink, parent: str, text: str, own_mac: bytes, wait_s: float) -> str:
    """The MAC address of who has an address; "" when nobody says so."""
    address = ipaddress.ip_address(text)
    frame = await netlink.ask(
        parent,
        [question(address, own_mac)],
        partial(claims, address=address, own_mac=own_mac),
        wait_s=wait_s,
        times=PROBES,
        groups=_groups(address),
    )
    return claimant(frame) if frame is not None else ""


async def _mac_of(netlink: Netlink, parent: str) -> bytes:
    try:
        (link,) = codec.read_links(await netlink.request(codec.get_link(name=parent)))
    except OSError:
        return b""
    return mac_bytes(link.mac) if link.up and link.ethernet and link.mac else b""


def question(address: Address, mac: bytes) -> bytes:
    """The Ethernet frame that asks for an address without telling anybody anything, from a link with this MAC."""
    if isinstance(address, ipaddress.IPv4Address):
        head = _BROADCAST + mac + _ARP + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
        return head + mac + _UNSPECIFIED4 + bytes(6) + address.packed
    target = _solicited_node(address)
    body = bytes(4) + address.packed
    pseudo_header = _UNSPECIFIED6 + target + struct.pack("!II", 4 + len(body), _ICMPV6)
    head = struct.pack("!BB", _SOLICITATION, 0)
    icmp = head + struct.pack("!H", internet_checksum(pseudo_header + head + bytes(2) + body)) + body
    packet = struct.pack("!IHBB", 6 << 28, len(icmp), _ICMPV6, _HOP_LIMIT) + _UNSPECIFIED6 + target + icmp
    return b"\x33\x33" + target[12:] + mac + _IPV6 + packet


def claims(frame: bytes, address: Address, own_mac: bytes) -> bool:
    """Whether a frame says that another machine has an address, or is about to take it.

    Checksums are not looked at: packets from the same machine may not have theirs yet, and nothing else can be asked for.
    """
    if isinstance(address, ipaddress.IPv4Address):
        if frame[12:22] not in _ARP_HEADS or len(frame) < 42:
            return False
        sender, target = frame[28:32], frame[38:42]
        taken = sender == address.packed or (frame[21] == 1 and sender == _UNSPECIFIED4 and target == address.packed)
    else:
        if len(frame) < 78 or frame[12:14] != _IPV6 or (frame[20], frame[21]) != (_ICMPV6, _HOP_LIMIT):
            return False
        probed = frame[54] == _SOLICITATION and frame[22:38] == _UNSPECIFIED6
        taken = frame[62:78] == address.packed and (frame[54] == _ADVERTISEMENT or probed)
    return taken and own_mac not in (frame[6:12], mac_bytes(claimant(frame)))


_ARP_HEADS: Mapping[bytes, None] = {
    _ARP + struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation): None for operation in (1, 2)
}


def claimant(frame: bytes) -> str:
    """The MAC address of the machine that such a frame is about: for ARP the one it names, else the one it came from."""
    return as_mac(frame[22:28] if frame[12:14] == _ARP else frame[6:12])


def _groups(address: Address) -> tuple[bytes, ...]:
    """The multicast MAC addresses at which answers and others' probes arrive."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    return _ALL_NODES_MAC, b"\x33\x33" + _solicited_node(address)[12:]


def _solicited_node(address: ipaddress.IPv6Address) -> bytes:
    """Source: RFC 4291, section 2.7.1."""
    return _SOLICITED_NODE[:13] + address.packed[13:]


__all__ = ["PROBES", "claimant", "claims", "conflicts", "question"]
