"""Requests to the kernel's route netlink as bytes, and its replies as data. Pure.

Each request asks for an acknowledgement or is a dump, as the `Netlink` port wants it; several may be concatenated.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from beeyard.runtime import netlink_format as nl

_ACK = nl.NLM_F_REQUEST | nl.NLM_F_ACK
_CREATE = _ACK | nl.NLM_F_CREATE | nl.NLM_F_EXCL
_DUMP = nl.NLM_F_REQUEST | nl.NLM_F_DUMP
_NO_STATISTICS = nl.u32(nl.IFLA_EXT_MASK, nl.RTEXT_FILTER_SKIP_STATS)
# Never let the kernel make up IPv6 addresses for a link: what a link answers for is granted, and nothing else.
_NO_OWN_ADDRESSES = nl.attribute(
    nl.IFLA_AF_SPEC,
    nl.attribute(nl.AF_INET6, nl.attribute(nl.IFLA_INET6_ADDR_GEN_MODE, bytes([nl.IN6_ADDR_GEN_MODE_NONE]))),
)
# Linux answers on each link for the addresses of all, and asks in the name of any. Values: ip-sysctl.rst of the kernel.
_ARP_FOR_ITSELF = nl.attribute(
    nl.IFLA_AF_SPEC,
    nl.attribute(
        nl.AF_INET,
        nl.attribute(
            nl.IFLA_INET_CONF, nl.u32(nl.IPV4_DEVCONF_ARP_ANNOUNCE, 2) + nl.u32(nl.IPV4_DEVCONF_ARP_IGNORE, 1)
        ),
    ),
)
_MACVLAN_MODE_NAMES = {number: name for name, number in nl.MACVLAN_MODES.items()}
_IPVLAN_MODE_NAMES = {number: name for name, number in nl.IPVLAN_MODES.items()}
_KINDS_WITH_DATA = ("macvlan", "ipvlan", "vlan")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A link as the kernel describes it to one namespace."""

    index: int
    name: str
    up: bool  # as an operator set it
    ethernet: bool
    loopback: bool
    mtu: int
    mac: str
    kind: str  # "macvlan", "vlan", "veth", …; "" for a physical device
    parent: int  # index of the link it sits on; 0: none
    parent_elsewhere: bool  # whether `parent` counts in another namespace
    master: int  # index of the bridge or bond it belongs to; 0: none
    mode: str = ""  # of a macvlan or ipvlan link, by its name
    vlan_id: int = 0  # of a VLAN sub-interface
    group: int = 0  # what its maker sorted it under


class AddressInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a link of one namespace has."""

    index: int
    ip: Address
    prefix_length: int

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix_length}"


def parse_address(text: str) -> tuple[Address, int]:
    """ "10.77.0.64/24" as address and prefix length, at a fifth of what `ipaddress.ip_interface` takes.

    Raises:
        ValueError: it is not an address with a prefix length.
    """
    host, _, length = text.partition("/")
    return ipaddress.ip_address(host), int(length)


def get_link(*, name: str = "", index: int = 0) -> bytes:
    """Describe one link, by its name or index."""
    which = nl.text(nl.IFLA_IFNAME, name) if name else b""
    return _link(nl.RTM_GETLINK, _ACK, index, 0, 0, _NO_STATISTICS + which)


def dump_links() -> bytes:
    """Describe every link of the namespace."""
    return _link(nl.RTM_GETLINK, _DUMP, 0, 0, 0, _NO_STATISTICS)


def create_macvlan(
    *, name: str, index: int, parent: int, netns_fd: int, mode: str, mac: str = "", mtu: int = 0
) -> bytes:
    """Create a macvlan link on a parent, straight in another namespace and with an index chosen by us.

    The index is what makes "eth0" work on every kernel: without one, kernels before 6.15 look for the new name in the
    *parent's* namespace too and refuse a name that the host uses itself.
    """
    attributes = _new_link(name, parent, mac, mtu) + nl.u32(nl.IFLA_NET_NS_FD, netns_fd)
    attributes += _kind("macvlan", nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES[mode]))
    return _link(nl.RTM_NEWLINK, _CREATE, index, 0, 0, attributes)


def create_ipvlan(
    *, name: str, index: int, parent: int, netns_fd: int, mode: str, flag: str = "", mtu: int = 0
) -> bytes:
    """Create an ipvlan link on a parent, in the same way. It has the parent's MAC address, whatever is asked.

    Mode and flag belong to the parent: the kernel gives them to every ipvlan link that sits on it already.
    Source: ipvlan_link_new in drivers/net/ipvlan/ipvlan_main.c.
    """
    data = nl.u16(nl.IFLA_IPVLAN_MODE, nl.IPVLAN_MODES[mode])
    data += nl.u16(nl.IFLA_IPVLAN_FLAGS, nl.IPVLAN_FLAGS[flag or "bridge"])
    attributes = _new_link(name, parent, "", mtu) + nl.u32(nl.IFLA_NET_NS_FD, netns_fd) + _kind("ipvlan", data)
    return _link(nl.RTM_NEWLINK, _CREATE, index, 0, 0, attributes)


def create_vlan(*, name: str, parent: int, vlan_id: int, group: int) -> bytes:
    """Create a VLAN sub-interface (802.1Q) beside its parent, down. The group marks it from its first moment on."""
    attributes = _new_link(name, parent, "", 0) + nl.u32(nl.IFLA_GROUP, group)
    attributes += _kind("vlan", nl.u16(nl.IFLA_VLAN_ID, vlan_id))
    return _link(nl.RTM_NEWLINK, _CREATE, 0, 0, 0, attributes)


def create_host_side(*, name: str, parent: int, group: int) -> bytes:
    """Create a macvlan link in bridge mode beside its parent, down, that neither asks nor answers by ARP."""
    attributes = _new_link(name, parent, "", 0) + nl.u32(nl.IFLA_GROUP, group)
    attributes += _kind("macvlan", nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["bridge"]))
    return _link(nl.RTM_NEWLINK, _CREATE, 0, nl.IFF_NOARP, nl.IFF_NOARP, attributes)


def doomed_macvlan(parent: int) -> bytes:
    """A creation that always fails, after the kernel has looked whether a macvlan link could sit on the parent.

    It asks for a list of senders in a mode that has none, which is checked last: EINVAL means the parent would do, EBUSY
    that something else receives its packets. No link exists at any time.
    Source: macvlan_common_newlink in drivers/net/macvlan.c.
    """
    data = nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["bridge"]) + nl.u32(nl.IFLA_MACVLAN_MACADDR_MODE, 0)
    return _link(nl.RTM_NEWLINK, _CREATE, 0, 0, 0, nl.u32(nl.IFLA_LINK, parent) + _kind("macvlan", data))


def orphan(kind: str) -> bytes:
    """A creation that always fails for want of a parent: EOPNOTSUPP when the kernel does not know the kind at all."""
    return _link(nl.RTM_NEWLINK, _CREATE, 0, 0, 0, _kind(kind, b""))


def forbid_own_addresses(index: int) -> bytes:
    """No link-local address of the kernel's own making on this link."""
    return _link(nl.RTM_SETLINK, _ACK, index, 0, 0, _NO_OWN_ADDRESSES)


def answer_for_own_addresses(index: int) -> bytes:
    """Have ARP on this link speak of its own addresses alone. Files of /proc/sys/net would take a hundred times as long."""
    return _link(nl.RTM_SETLINK, _ACK, index, 0, 0, _ARP_FOR_ITSELF)


def set_link_up(index: int, *, up: bool = True) -> bytes:
    """Take a link up or down."""
    return _link(nl.RTM_SETLINK, _ACK, index, nl.IFF_UP if up else 0, nl.IFF_UP, b"")


def describe_link(index: int, words: str) -> bytes:
    """Tell people what a link is for: its alias, which `ip link` shows."""
    return _link(nl.RTM_SETLINK, _ACK, index, 0, 0, nl.attribute(nl.IFLA_IFALIAS, words.encode()))


def set_mtu(index: int, mtu: int) -> bytes:
    """Change how large a packet a link carries."""
    return _link(nl.RTM_SETLINK, _ACK, index, 0, 0, nl.u32(nl.IFLA_MTU, mtu))


def delete_link(index: int) -> bytes:
    """Delete a link. It takes about 20 ms, so never for each task: for undoing a failure, and when the last user is gone."""
    return _link(nl.RTM_DELLINK, _ACK, index, 0, 0, b"")


def add_address(index: int, ip: Address, prefix_length: int) -> bytes:
    """Give a link an address, with its subnet's route.

    IPv6 duplicate address detection is left out (NODAD): the address was handed out centrally and is nobody else's, and
    the second that detection takes is a second in which the task could not bind to its address.
    """
    flags = nl.u32(nl.IFA_FLAGS, nl.IFA_F_NODAD) if ip.version == 6 else b""
    return _address(nl.RTM_NEWADDR, _CREATE, index, ip, prefix_length, flags)


def dump_addresses() -> bytes:
    """Every address of the namespace, both families."""
    return nl.message(nl.RTM_GETADDR, _DUMP, nl.ADDRESS_BODY.pack(nl.AF_UNSPEC, 0, 0, 0, 0))


def read_links(replies: Iterable[bytes]) -> list[LinkInfo]:
    """The links among the messages of a reply."""
    return [_read_link(m.payload) for m in _split_all(replies) if m.type == nl.RTM_NEWLINK]


def read_addresses(replies: Iterable[bytes]) -> list[AddressInfo]:
    """The addresses among the messages of a reply."""
    return [_read_address(m.payload) for m in _split_all(replies) if m.type == nl.RTM_NEWADDR]


def _split_all(replies: Iterable[bytes]) -> Iterable[nl.Message]:
    for reply in replies:
        yield from nl.split(reply)


def _read_link(payload: bytes) -> LinkInfo:
    _, arp_type, index, flags, _ = nl.LINK_BODY.unpack_from(payload)
    found = nl.attributes(payload, nl.LINK_BODY.size)
    info = nl.attributes(found.get(nl.IFLA_LINKINFO, b""))
    mac = found.get(nl.IFLA_ADDRESS, b"")
    parent = nl.as_u32(found[nl.IFLA_LINK]) if nl.IFLA_LINK in found else 0
    elsewhere = nl.IFLA_LINK_NETNSID in found
    kind = nl.as_text(info.get(nl.IFLA_INFO_KIND, b""))
    data = nl.attributes(info.get(nl.IFLA_INFO_DATA, b"")) if kind in _KINDS_WITH_DATA else {}
    return LinkInfo(
        index=index,
        name=nl.as_text(found.get(nl.IFLA_IFNAME, b"")),
        up=bool(flags & nl.IFF_UP),
        ethernet=arp_type == nl.ARPHRD_ETHER,
        loopback=bool(flags & nl.IFF_LOOPBACK),
        mtu=nl.as_u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found else 0,
        mac=nl.as_mac(mac) if len(mac) == 6 else "",
        kind=kind,
        # Some devices name themselves as their own parent.
        parent=parent if parent != index or elsewhere else 0,
        parent_elsewhere=elsewhere,
        master=nl.as_u32(found[nl.IFLA_MASTER]) if nl.IFLA_MASTER in found else 0,
        mode=_read_mode(kind, data),
        vlan_id=nl.as_u16(data[nl.IFLA_VLAN_ID]) if kind == "vlan" and nl.IFLA_VLAN_ID in data else 0,
        group=nl.as_u32(found[nl.IFLA_GROUP]) if nl.IFLA_GROUP in found else 0,
    )


def _read_mode(kind: str, data: dict[int, bytes]) -> str:
    if kind == "macvlan" and nl.IFLA_MACVLAN_MODE in data:
        return _MACVLAN_MODE_NAMES.get(nl.as_u32(data[nl.IFLA_MACVLAN_MODE]), "")
    if kind == "ipvlan" and nl.IFLA_IPVLAN_MODE in data:
        return _IPVLAN_MODE_NAMES.get(nl.as_u16(data[nl.IFLA_IPVLAN_MODE]), "")
    return ""


def _read_address(payload: bytes) -> AddressInfo:
    _, prefix_length, _, _, index = nl.ADDRESS_BODY.unpack_from(payload)
    found = nl.attributes(payload, nl.ADDRESS_BODY.size)
    # On a point-to-point link IFA_ADDRESS is the other end's, so the local one goes first; IPv6 often has no other.
    address = ipaddress.ip_address(found.get(nl.IFA_LOCAL) or found[nl.IFA_ADDRESS])
    return AddressInfo(index=index, ip=address, prefix_length=prefix_length)


def _link(kind: int, flags: int, index: int, link_flags: int, change: int, attributes: bytes) -> bytes:
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, 0, index, link_flags, change)
    return nl.message(kind, flags, body + attributes)


def _new_link(name: str, parent: int, mac: str, mtu: int) -> bytes:
    attributes = nl.text(nl.IFLA_IFNAME, name) + nl.u32(nl.IFLA_LINK, parent)
    if mac:
        attributes += nl.attribute(nl.IFLA_ADDRESS, nl.mac_bytes(mac))
    return attributes + nl.u32(nl.IFLA_MTU, mtu) if mtu else attributes


def _address(kind: int, flags: int, index: int, ip: Address, prefix_length: int, attributes: bytes) -> bytes:
    body = nl.ADDRESS_BODY.pack(_family(ip), prefix_length, 0, nl.RT_SCOPE_UNIVERSE, index)
    both = nl.attribute(nl.IFA_LOCAL, ip.packed) + nl.attribute(nl.IFA_ADDRESS, ip.packed)
    return nl.message(kind, flags, body + both + attributes)


def _kind(kind: str, data: bytes) -> bytes:
    info = nl.attribute(nl.IFLA_INFO_KIND, kind.encode())
    return nl.attribute(nl.IFLA_LINKINFO, info + (nl.attribute(nl.IFLA_INFO_DATA, data) if data else b""))


def _family(address: Address) -> int:
    return nl.AF_INET if address.version == 4 else nl.AF_INET6
