"""Messages about port links are those that pyroute2 makes, byte for byte where order allows it."""

from __future__ import annotations

import ipaddress
from typing import Any

from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from beeyard.netdrivers import codec_port
from beeyard.netdrivers.codec_port import End
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.link_groups import PORT_GROUP


def decoded(kind: type[Any], message: bytes) -> Any:
    """What another codec reads in it."""
    read = kind(message)
    read.decode()
    return read


def test_a_pair_is_created_with_both_ends_named_and_the_peer_elsewhere() -> None:
    here = End(name="byp7", index=1207959559, mac="02:be:e0:00:00:07")
    there = End(name="port0", index=1212858599, mac="02:be:e0:01:00:07")
    read = decoded(ifinfmsg, codec_port.create_veth(here, there, group=7, mtu=9000, netns_fd=33))
    assert (read["index"], read.get_attr("IFLA_IFNAME"), read.get_attr("IFLA_MTU")) == (1207959559, "byp7", 9000)
    assert (read.get_attr("IFLA_ADDRESS"), read.get_attr("IFLA_GROUP")) == ("02:be:e0:00:00:07", 7)
    info = read.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "veth"
    peer = info.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert (peer["index"], peer.get_attr("IFLA_IFNAME"), peer.get_attr("IFLA_MTU")) == (1212858599, "port0", 9000)
    assert (peer.get_attr("IFLA_ADDRESS"), peer.get_attr("IFLA_NET_NS_FD")) == ("02:be:e0:01:00:07", 33)


def test_a_rule_looks_into_a_table_for_one_source() -> None:
    for text, family, bits in (("169.254.192.1", nl.AF_INET, 32), ("fd62::1", nl.AF_INET6, 128)):
        message = codec_port.rule_from(ipaddress.ip_address(text), table=190, priority=1000)
        read = decoded(fibmsg, message)
        assert (read["family"], read["src_len"], read["table"], read["action"]) == (family, bits, 190, 1)
        assert (read.get_attr("FRA_SRC"), read.get_attr("FRA_PRIORITY")) == (text, 1000)
        assert nl.HEADER.unpack_from(message)[1] == codec_port.RTM_NEWRULE


def test_a_route_of_a_table_leads_through_the_gateway() -> None:
    message = codec_port.default_route(9, ipaddress.ip_address("169.254.192.0"), table=190)
    read = decoded(rtmsg, message)
    assert (read["table"], read["dst_len"], read.get_attr("RTA_OIF")) == (190, 0, 9)
    assert (read.get_attr("RTA_GATEWAY"), read.get_attr("RTA_PRIORITY")) == ("169.254.192.0", None)
    last = codec_port.default_route(9, ipaddress.ip_address("fd62::"), table=254, metric=0xFFFFFFFE)
    assert decoded(rtmsg, last).get_attr("RTA_PRIORITY") == 0xFFFFFFFE


def test_links_are_read_with_what_their_maker_wrote_on_them() -> None:
    alias = "beeyard aa port link of task t1"
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, nl.ARPHRD_ETHER, 5, nl.IFF_UP, 0) + nl.text(nl.IFLA_IFNAME, "byp7")
    body += nl.u32(nl.IFLA_GROUP, PORT_GROUP) + nl.text(nl.IFLA_IFALIAS, alias) + nl.u32(nl.IFLA_MTU, 1500)
    (link,) = codec_port.read_marked([nl.message(nl.RTM_NEWLINK, 0, body)])
    assert link == codec_port.Marked(index=5, name="byp7", group=PORT_GROUP, alias=alias, mtu=1500, up=True)
