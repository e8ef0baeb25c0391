"""Every message against pyroute2, which was written by others from the same kernel headers."""

from __future__ import annotations

import ipaddress

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from beeyard.netdrivers import codec
from beeyard.runtime import netlink_format as nl

_ACK, _NEW, _DUMP = 0x5, 0x605, 0x301


def _decoded(kind, data):
    message = kind(data)
    message.decode()
    assert message["header"]["length"] == len(data)
    return message


def test_create_macvlan_says_all_that_was_asked():
    data = codec.create_macvlan(
        name="eth0", index=7, parent=2, netns_fd=9, mode="bridge", mac="02:42:0a:09:00:0a", mtu=1400
    )
    message = _decoded(ifinfmsg, data)
    assert (message["header"]["type"], message["header"]["flags"]) == (16, _NEW)
    assert message["index"] == 7
    expected = {"IFNAME": "eth0", "LINK": 2, "NET_NS_FD": 9, "ADDRESS": "02:42:0a:09:00:0a", "MTU": 1400}
    assert {name: message.get_attr(f"IFLA_{name}") for name in expected} == expected
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "macvlan"
    assert info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_MACVLAN_MODE") == "bridge"


def test_create_macvlan_leaves_mac_and_mtu_to_the_kernel_unless_asked():
    message = _decoded(ifinfmsg, codec.create_macvlan(name="e", index=7, parent=2, netns_fd=9, mode="vepa"))
    assert [message.get_attr("IFLA_ADDRESS"), message.get_attr("IFLA_MTU")] == [None, None]


def test_forbid_own_addresses_sets_the_generation_mode_none():
    message = _decoded(ifinfmsg, codec.forbid_own_addresses(7))
    inet6 = message.get_attr("IFLA_AF_SPEC").get_attr("AF_INET6")
    assert (message["header"]["type"], inet6.get_attr("IFLA_INET6_ADDR_GEN_MODE")) == (19, 1)


def test_answer_for_own_addresses_sets_arp_alone():
    (part,) = nl.split(codec.answer_for_own_addresses(7))
    (families,) = nl.attributes(part.payload[nl.LINK_BODY.size :]).values()
    settings = nl.attributes(nl.attributes(nl.attributes(families)[nl.AF_INET])[nl.IFLA_INET_CONF])
    assert nl.LINK_BODY.unpack_from(part.payload)[2:] == (7, 0, 0)
    assert {number: nl.as_u32(value) for number, value in settings.items()} == {18: 2, 19: 1}


@pytest.mark.parametrize(("up", "flags"), [(True, 1), (False, 0)])
def test_set_link_up_touches_that_flag_alone(up, flags):
    message = _decoded(ifinfmsg, codec.set_link_up(7, up=up))
    assert (message["header"]["type"], message["flags"], message["change"]) == (19, flags, 1)


@pytest.mark.parametrize(
    ("data", "kind", "flags", "index"),
    [
        (codec.get_link(index=7), 18, _ACK, 7),
        (codec.dump_links(), 18, _DUMP, 0),
        (codec.delete_link(7), 17, _ACK, 7),
    ],
)
def test_link_requests_have_type_flags_and_index(data, kind, flags, index):
    message = _decoded(ifinfmsg, data)
    assert (message["header"]["type"], message["header"]["flags"], message["index"]) == (kind, flags, index)


def test_get_link_by_name_names_it():
    assert _decoded(ifinfmsg, codec.get_link(name="eth0.10")).get_attr("IFLA_IFNAME") == "eth0.10"


@pytest.mark.parametrize(
    ("address", "length", "family", "flags"), [("10.9.0.10", 24, 2, None), ("fd00:9::10", 64, 10, 0x02)]
)
def test_add_address_skips_duplicate_detection_for_ipv6_alone(address, length, family, flags):
    message = _decoded(ifaddrmsg, codec.add_address(7, ipaddress.ip_address(address), length))
    assert (message["header"]["type"], message["header"]["flags"]) == (20, _NEW)
    assert (message["index"], message["family"], message["prefixlen"]) == (7, family, length)
    assert [message.get_attr("IFA_LOCAL"), message.get_attr("IFA_ADDRESS")] == [address, address]
    assert message.get_attr("IFA_FLAGS") == flags


@pytest.mark.parametrize(
    ("mode", "flag", "numbers"), [("l2", "", (0, 0)), ("l3", "vepa", (1, 2)), ("l3s", "private", (2, 1))]
)
def test_create_ipvlan_says_all_that_was_asked(mode, flag, numbers):
    data = codec.create_ipvlan(name="eth0", index=7, parent=2, netns_fd=9, mode=mode, flag=flag, mtu=1400)
    message = _decoded(ifinfmsg, data)
    assert (message["header"]["type"], message["header"]["flags"], message["index"]) == (16, _NEW, 7)
    expected = {"IFNAME": "eth0", "LINK": 2, "NET_NS_FD": 9, "ADDRESS": None, "MTU": 1400}
    assert {name: message.get_attr(f"IFLA_{name}") for name in expected} == expected
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "ipvlan"
    # pyroute2 knows no flags of ipvlan: the second attribute in if_link.h, 16 bits as the mode.
    assert info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_IPVLAN_MODE") == numbers[0]
    assert data.endswith(nl.u16(1, numbers[0]) + nl.u16(2, numbers[1]))


def test_create_vlan_is_marked_by_its_group():
    message = _decoded(ifinfmsg, codec.create_vlan(name="eth0.100", parent=2, vlan_id=100, group=3054))
    assert (message["header"]["type"], message["header"]["flags"], message["index"]) == (16, _NEW, 0)
    expected = {"IFNAME": "eth0.100", "LINK": 2, "GROUP": 3054}
    assert {name: message.get_attr(f"IFLA_{name}") for name in expected} == expected
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "vlan"
    assert info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_VLAN_ID") == 100


def test_create_host_side_speaks_no_arp():
    message = _decoded(ifinfmsg, codec.create_host_side(name="bee-eth0", parent=2, group=3054))
    assert (message["flags"], message["change"], message.get_attr("IFLA_GROUP")) == (0x80, 0x80, 3054)
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_MACVLAN_MODE") == "bridge"


def test_describe_link_and_set_mtu_touch_that_alone():
    message = _decoded(ifinfmsg, codec.describe_link(7, "of beeyard"))
    names = [name for name, _ in message["attrs"]]
    assert (message["header"]["type"], message["change"], names) == (19, 0, ["IFLA_IFALIAS"])
    assert message.get_attr("IFLA_IFALIAS") == "of beeyard"
    message = _decoded(ifinfmsg, codec.set_mtu(7, 1400))
    names = [name for name, _ in message["attrs"]]
    assert (message["header"]["type"], message["change"], names) == (19, 0, ["IFLA_MTU"])
    assert message.get_attr("IFLA_MTU") == 1400


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("macvlan", [("IFLA_MACVLAN_MODE", "passthru")], ("passthru", 0)),
        ("ipvlan", [("IFLA_IPVLAN_MODE", 1)], ("l3", 0)),
        ("vlan", [("IFLA_VLAN_ID", 100)], ("", 100)),
    ],
)
def test_read_links_reads_what_a_kind_has_of_its_own(kind, data, expected):
    message = ifinfmsg()
    message["index"] = 5
    info = {"attrs": [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": data})]}
    message["attrs"] = [("IFLA_IFNAME", "x"), ("IFLA_LINKINFO", info), ("IFLA_GROUP", 3054)]
    message["header"]["type"] = 16
    message.encode()
    (link,) = codec.read_links([bytes(message.data)])
    assert (link.kind, link.mode, link.vlan_id, link.group) == (kind, *expected, 3054)


def test_read_links_reads_what_pyroute2_writes():
    message = ifinfmsg()
    message["index"], message["flags"], message["ifi_type"] = 5, 0x11043, 1
    message["attrs"] = [
        ("IFLA_IFNAME", "mv0"),
        ("IFLA_MTU", 1450),
        ("IFLA_ADDRESS", "02:00:00:00:00:05"),
        ("IFLA_LINK", 2),
        ("IFLA_LINK_NETNSID", 0),
        ("IFLA_MASTER", 9),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "macvlan")]}),
    ]
    message["header"]["type"] = 16
    message.encode()
    assert codec.read_links([bytes(message.data)]) == [
        codec.LinkInfo(
            index=5,
            name="mv0",
            up=True,
            ethernet=True,
            loopback=False,
            mtu=1450,
            mac="02:00:00:00:00:05",
            kind="macvlan",
            parent=2,
            parent_elsewhere=True,
            master=9,
        )
    ]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([("IFA_ADDRESS", "10.9.0.10"), ("IFA_LOCAL", "10.9.0.10")], "10.9.0.10/24"),
        ([("IFA_ADDRESS", "10.9.0.99"), ("IFA_LOCAL", "10.9.0.10")], "10.9.0.10/24"),  # point to point
        ([("IFA_ADDRESS", "10.9.0.10")], "10.9.0.10/24"),
    ],
)
def test_read_addresses_gives_the_local_one(attributes, expected):
    message = ifaddrmsg()
    message["index"], message["family"], message["prefixlen"] = 5, 2, 24
    message["attrs"] = attributes
    message["header"]["type"] = 20
    message.encode()
    (found,) = codec.read_addresses([bytes(message.data)])
    assert (found.index, str(found)) == (5, expected)


@pytest.mark.parametrize("text", ["10.9.0.10", "10.9.0.10/", "10.9.0/24", "red/24"])
def test_parse_address_refuses_what_has_no_prefix_length(text):
    with pytest.raises(ValueError):
        codec.parse_address(text)
