"""Pairs of links and rules of a simulated host, with Linux's answers. See `runtime.fake_requests`."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Mapping

from beeyard.runtime import netlink_format as nl
from beeyard.runtime.fake_links import FakeNamespace
from beeyard.runtime.fake_refuse import refuse

RTM_NEWRULE = 32
_FRA_SRC, _FRA_PRIORITY = 2, 6
_VETH_INFO_PEER = 1


def new_pair(
    namespace: FakeNamespace,
    name: str,
    index: int,
    found: Mapping[int, bytes],
    data: Mapping[int, bytes],
    draw_mac: Callable[[], str],
    fds: Mapping[int, FakeNamespace],
) -> None:
    """A veth pair, as `veth_newlink`: the peer first, then this end; none when either fails."""
    body = data.get(_VETH_INFO_PEER, bytes(nl.LINK_BODY.size))
    peer_found = nl.attributes(body, nl.LINK_BODY.size)
    target = namespace
    if nl.IFLA_NET_NS_FD in peer_found:
        there = fds.get(nl.as_u32(peer_found[nl.IFLA_NET_NS_FD]))
        target = there if there is not None else refuse(errno.EBADF)
    peer_name = nl.as_text(peer_found.get(nl.IFLA_IFNAME, b"veth0"))
    peer_index = nl.LINK_BODY.unpack_from(body)[2] if index else 0
    peer = target.add(peer_name, mac=_mac(peer_found) or draw_mac(), mtu=_mtu(peer_found), index=peer_index)
    try:
        link = namespace.add(name, mac=_mac(found) or draw_mac(), mtu=_mtu(found), index=index)
    except OSError:
        del target.links[peer.index]
        raise
    link.kind = peer.kind = "veth"
    link.peer, peer.peer = peer, link
    link.group = nl.as_u32(found[nl.IFLA_GROUP]) if nl.IFLA_GROUP in found else 0


def new_rule(namespace: FakeNamespace, part: nl.Message) -> None:
    """A rule by source, the only kind that is played here."""
    found = nl.attributes(part.payload, nl.ROUTE_BODY.size)
    if _FRA_SRC not in found:
        refuse(errno.EOPNOTSUPP)
    table = nl.ROUTE_BODY.unpack_from(part.payload)[4]
    priority = nl.as_u32(found[_FRA_PRIORITY]) if _FRA_PRIORITY in found else 0
    namespace.way.add_rule(priority, ipaddress.ip_address(found[_FRA_SRC]), table)


def _mac(found: Mapping[int, bytes]) -> str:
    return nl.as_mac(found[nl.IFLA_ADDRESS]) if nl.IFLA_ADDRESS in found else ""


def _mtu(found: Mapping[int, bytes]) -> int:
    return nl.as_u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found else 1500


__all__ = ["RTM_NEWRULE", "new_pair", "new_rule"]
