"""What is asked of the kernel to silence a namespace: against pyroute2's messages, and through every refusal."""

from __future__ import annotations

import errno
import ipaddress

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from beeyard.runtime import netlink_format as nl
from beeyard.runtime import silence


def a_link(index: int, kind: str = "", *, loopback: bool = False, data: bytes = b"") -> bytes:
    flags = nl.IFF_UP | (nl.IFF_LOOPBACK if loopback else 0)
    info = nl.attribute(nl.IFLA_INFO_KIND, kind.encode()) + nl.attribute(nl.IFLA_INFO_DATA, data)
    info = nl.attribute(nl.IFLA_LINKINFO, info) if kind else b""
    return nl.message(nl.RTM_NEWLINK, 0, nl.LINK_BODY.pack(0, 1, index, flags, 0) + info)


def an_address(index: int, text: str) -> bytes:
    ip = ipaddress.ip_interface(text)
    family = nl.AF_INET if ip.version == 4 else nl.AF_INET6
    # As Linux tells them: IPv6 addresses have no local part of their own.
    kind = nl.IFA_LOCAL if ip.version == 4 else nl.IFA_ADDRESS
    body = nl.ADDRESS_BODY.pack(family, ip.network.prefixlen, 0, 0, index)
    return nl.message(nl.RTM_NEWADDR, 0, body + nl.attribute(kind, ip.ip.packed))


def told(message: bytes) -> list[str]:
    """Requests in words, as pyroute2 reads them."""
    words = []
    for part in nl.split(message):
        assert part.flags == nl.NLM_F_REQUEST | nl.NLM_F_ACK
        decoded = (ifaddrmsg if part.type == nl.RTM_DELADDR else ifinfmsg)(
            nl.message(part.type, part.flags, part.payload)
        )
        decoded.decode()
        if part.type == nl.RTM_DELADDR:
            words.append(f"{decoded['index']}: no {decoded.get_attr('IFA_LOCAL')}/{decoded['prefixlen']}")
        elif part.type == nl.RTM_DELLINK:
            words.append(f"{decoded['index']}: deleted")
        elif part.type == nl.RTM_NEWLINK:
            info = decoded.get_attr("IFLA_LINKINFO")
            mode = info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_MACVLAN_MODE")
            words.append(f"{decoded['index']}: {info.get_attr('IFLA_INFO_KIND')} mode {mode}")
        else:
            assert (decoded["flags"], decoded["change"]) == (0, nl.IFF_UP)
            words.append(f"{decoded['index']}: down")
    return words


LINKS = [a_link(1, loopback=True), a_link(7, "macvlan"), a_link(8, "veth")]
ADDRESSES = [
    an_address(1, "127.0.0.1/8"),
    an_address(7, "10.9.0.10/24"),
    an_address(7, "fd00:9::10/64"),
    an_address(8, "10.9.1.1/16"),
]
ALL = ["7: macvlan mode source", "7: no 10.9.0.10/24", "7: no fd00:9::10/64", "8: down", "8: no 10.9.1.1/16"]


def begun() -> tuple[silence.Conversation, bytes]:
    """A conversation after both lists, and the message that follows."""
    conversation = silence.conversation()
    assert [part.type for part in nl.split(next(conversation))] == [nl.RTM_GETLINK]
    assert [part.type for part in nl.split(conversation.send(LINKS))] == [nl.RTM_GETADDR]
    return conversation, conversation.send(ADDRESSES)


def refused(number: int, position: int) -> nl.RequestRefused:
    error = nl.RequestRefused(number, "refused")
    error.position = position
    return error


def test_every_link_is_made_deaf_before_it_loses_its_addresses_and_the_loopback_stays():
    conversation, message = begun()
    assert told(message) == ALL
    with pytest.raises(StopIteration):
        conversation.send([])


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("position", range(len(ALL)))
def test_what_is_gone_already_is_skipped(number: int, position: int):
    """The conversation goes on after the request that came too late, and ends after the last."""
    conversation, _ = begun()
    if position == len(ALL) - 1:
        with pytest.raises(StopIteration):
            conversation.throw(refused(number, position))
    else:
        assert told(conversation.throw(refused(number, position))) == ALL[position + 1 :]


def test_any_other_refusal_is_the_callers():
    conversation, _ = begun()
    with pytest.raises(nl.RequestRefused, match="refused"):
        conversation.throw(refused(errno.EPERM, 1))


def test_an_empty_namespace_needs_no_request():
    conversation = silence.conversation()
    next(conversation)
    conversation.send(LINKS[:1])
    with pytest.raises(StopIteration):
        conversation.send(ADDRESSES[:1])


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("macvlan", nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["private"]), "7: macvlan mode source"),
        # It could not change its mode, and its parent shall be free for the next at once.
        ("macvlan", nl.u32(nl.IFLA_MACVLAN_MODE, nl.MACVLAN_MODES["passthru"]), "7: deleted"),
        # Its mode is that of its siblings too; the parent delivers by address alone.
        ("ipvlan", nl.u16(nl.IFLA_IPVLAN_MODE, nl.IPVLAN_MODES["l2"]), ""),
        ("ipvlan", nl.u16(nl.IFLA_IPVLAN_MODE, nl.IPVLAN_MODES["l3"]), ""),
    ],
)
def test_each_kind_and_mode_is_silenced_in_its_own_way(kind: str, data: bytes, expected: str):
    conversation = silence.conversation()
    next(conversation)
    conversation.send([a_link(7, kind, data=data)])
    message = conversation.send([an_address(7, "10.9.0.10/24")])
    assert told(message) == [*([expected] if expected else []), "7: no 10.9.0.10/24"]
