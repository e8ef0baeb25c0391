"""The byte layout of route netlink that both sides share: headers, attributes, numbers.

`netdrivers.codec` builds requests and reads replies with it, `runtime.real_netlink` moves them, `runtime.fake_kernel`
plays the kernel. Integers are in the machine's byte order. It is written by hand because a general codec costs too much
here: encoding one RTM_NEWLINK took pyroute2 131 µs of CPU and one RTM_NEWADDR 48 µs, where the whole attachment of a link
may take 1,500 µs. The tests compare every message with pyroute2's.

Source: Linux include/uapi/linux/netlink.h, rtnetlink.h, if_link.h, if_addr.h, neighbour.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

# struct nlmsghdr: length with header, type, flags, sequence number, port id.
HEADER = struct.Struct("=IHHII")
# struct ifinfomsg: family, padding, ARPHRD type, index, flags, which flags to change.
LINK_BODY = struct.Struct("=BxHiII")
# struct ifaddrmsg: family, prefix length, flags (old, 8 bits), scope, index.
ADDRESS_BODY = struct.Struct("=BBBBI")
# struct rtmsg: family, dst length, src length, tos, table, protocol, scope, type, flags.
ROUTE_BODY = struct.Struct("=BBBBBBBBI")
# struct ndmsg: family, padding, index, state, flags, type.
NEIGHBOUR_BODY = struct.Struct("=BxxxiHBB")
# struct nlattr: length with header, type.
ATTRIBUTE = struct.Struct("=HH")
U16 = struct.Struct("=H")
U32 = struct.Struct("=I")

NLMSG_ERROR = 2
NLMSG_DONE = 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30

NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_DUMP_INTR = 0x10  # in a reply: the list changed while it was being dumped
NLM_F_DUMP = 0x300  # in a get request: all of them
NLM_F_ACK_TLVS = 0x200  # in an error: attributes follow the header of the request
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400  # in a new request

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO = 1, 3, 4, 5, 10, 18
IFLA_IFALIAS, IFLA_AF_SPEC, IFLA_GROUP, IFLA_NET_NS_FD, IFLA_EXT_MASK, IFLA_LINK_NETNSID = 20, 26, 27, 28, 29, 37
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_MACVLAN_MODE, IFLA_MACVLAN_MACADDR_MODE = 1, 3
IFLA_IPVLAN_MODE, IFLA_IPVLAN_FLAGS = 1, 2  # 16 bits each
IFLA_VLAN_ID = 1  # 16 bits
IFLA_INET_CONF = 1
IFLA_INET6_ADDR_GEN_MODE = 8
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS = 1, 2, 8
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_TABLE = 1, 4, 5, 6, 7, 15
NDA_DST, NDA_LLADDR = 1, 2
NLMSGERR_ATTR_MSG = 1
# Top bits of an attribute's type: contains attributes / is big-endian.
NLA_TYPE_MASK = 0x3FFF

RTEXT_FILTER_SKIP_STATS = 8  # leaves the counters out of a link's description
IFF_UP, IFF_LOOPBACK, IFF_NOARP, IFF_LOWER_UP = 0x1, 0x8, 0x80, 0x10000
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
IFA_F_NODAD = 0x02
IN6_ADDR_GEN_MODE_NONE = 1
# Of IFLA_INET_CONF. Source: <linux/ip.h>
IPV4_DEVCONF_ARP_ANNOUNCE, IPV4_DEVCONF_ARP_IGNORE = 18, 19
RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RTN_UNICAST = 254, 4, 0, 253, 1
NUD_PERMANENT = 0x80  # a neighbour that nobody has to be asked about, and nobody can change but an operator
AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10
MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8, "source": 16}
IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}
IPVLAN_FLAGS = {"bridge": 0, "private": 1, "vepa": 2}


class RequestRefused(OSError):
    """The kernel refused a netlink request. `position` tells which, from 0, of those sent in one call."""

    position: int = 0


class Message(NamedTuple):
    """One netlink message, taken apart."""

    type: int
    flags: int
    sequence: int
    payload: bytes  # what follows the header


def message(kind: int, flags: int, payload: bytes, sequence: int = 0) -> bytes:
    """One message; its length is always a multiple of four here, as payloads are."""
    return HEADER.pack(HEADER.size + len(payload), kind, flags, sequence, 0) + payload


def split(data: bytes) -> Iterator[Message]:
    """The messages of a buffer, in order.

    Raises:
        ValueError: a length in it cannot be true.
    """
    at = 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise ValueError(f"{len(data) - at} bytes left, too few for a netlink header")
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
        if not HEADER.size <= length <= len(data) - at:
            raise ValueError(f"netlink message of {length} bytes where {len(data) - at} are left")
        yield Message(kind, flags, sequence, data[at + HEADER.size : at + length])
        at += length + 3 & ~3


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def u32(kind: int, value: int) -> bytes:
    """An attribute that holds a 32-bit number."""
    return ATTRIBUTE.pack(8, kind) + U32.pack(value)


def u16(kind: int, value: int) -> bytes:
    """An attribute that holds a 16-bit number."""
    return ATTRIBUTE.pack(6, kind) + U16.pack(value) + b"\0\0"


def text(kind: int, value: str) -> bytes:
    """An attribute that holds a zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes, at: int = 0) -> dict[int, bytes]:
    """The attributes from position `at` on; the last of a kind wins, as in the kernel. Garbage at the end is left out."""
    found = {}
    while len(data) - at >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if not ATTRIBUTE.size <= length <= len(data) - at:
            break
        found[kind & NLA_TYPE_MASK] = data[at + ATTRIBUTE.size : at + length]
        at += length + 3 & ~3
    return found


def as_text(value: bytes) -> str:
    """A string attribute's value without its terminating zero."""
    return value.rstrip(b"\0").decode(errors="replace")


def as_u16(value: bytes) -> int:
    """A 16-bit attribute's value."""
    number: int = U16.unpack_from(value)[0]
    return number


def as_u32(value: bytes) -> int:
    """A 32-bit attribute's value."""
    number: int = U32.unpack_from(value)[0]
    return number


def as_mac(value: bytes) -> str:
    """Six bytes in the usual spelling."""
    return value.hex(":")


def mac_bytes(mac: str) -> bytes:
    """The reverse of `as_mac`.

    Raises:
        ValueError: not six bytes in hexadecimal.
    """
    value = bytes.fromhex(mac.replace(":", "").replace("-", ""))
    if len(value) != 6:
        raise ValueError(f"{mac} is not a MAC address")
    return value
