"""Requests about routes and neighbours against pyroute2, which was written by others from the same kernel headers."""

from __future__ import annotations

import ipaddress

import pytest
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from beeyard.netdrivers import codec_route

_ACK, _NEW, _REPLACE = 0x5, 0x605, 0x505


def _decoded(kind, data):
    message = kind(data)
    message.decode()
    assert message["header"]["length"] == len(data)
    return message


@pytest.mark.parametrize(("gateway", "family"), [("10.9.0.1", 2), ("fd00:9::1", 10)])
def test_add_default_route_goes_into_the_main_table(gateway, family):
    message = _decoded(rtmsg, codec_route.add_default_route(7, ipaddress.ip_address(gateway), 1024))
    assert (message["header"]["type"], message["header"]["flags"]) == (24, _NEW)
    assert (message["family"], message["dst_len"]) == (family, 0)
    assert (message["table"], message["type"], message["scope"]) == (254, 1, 0)
    values = [message.get_attr(name) for name in ("RTA_GATEWAY", "RTA_OIF", "RTA_PRIORITY")]
    assert values == [gateway, 7, 1024]


@pytest.mark.parametrize(("version", "family", "scope"), [(4, 2, 253), (6, 10, 0)])
def test_add_default_route_without_a_gateway_is_on_the_link(version, family, scope):
    message = _decoded(rtmsg, codec_route.add_default_route(7, None, 1025, version=version))
    assert (message["family"], message["dst_len"], message["scope"]) == (family, 0, scope)
    values = [message.get_attr(name) for name in ("RTA_GATEWAY", "RTA_OIF", "RTA_PRIORITY")]
    assert values == [None, 7, 1025]


@pytest.mark.parametrize(
    ("destination", "source", "gateway", "scope"),
    [
        ("10.9.0.10/32", "10.9.0.2", None, 253),
        ("10.9.0.10/32", None, "10.9.0.3", 0),
        ("fd00:9::10/128", "fd00:9::2", None, 0),
    ],
)
def test_set_route_replaces(destination, source, gateway, scope):
    network = ipaddress.ip_network(destination)
    data = codec_route.set_route(
        network,
        index=7,
        protocol=191,
        source=ipaddress.ip_address(source) if source else None,
        gateway=ipaddress.ip_address(gateway) if gateway else None,
        metric=5,
    )
    message = _decoded(rtmsg, data)
    assert (message["header"]["type"], message["header"]["flags"]) == (24, _REPLACE)
    assert (message["dst_len"], message["proto"], message["scope"]) == (network.prefixlen, 191, scope)
    names = ("RTA_DST", "RTA_OIF", "RTA_PREFSRC", "RTA_GATEWAY", "RTA_PRIORITY")
    expected = [str(network.network_address), 7, source, gateway, 5]
    assert [message.get_attr(name) for name in names] == expected


@pytest.mark.parametrize(("destination", "scope"), [("10.9.0.10/32", 255), ("fd00:9::10/128", 0)])
def test_delete_route_names_link_and_protocol(destination, scope):
    network = ipaddress.ip_network(destination)
    message = _decoded(rtmsg, codec_route.delete_route(network, index=7, protocol=191))
    assert (message["header"]["type"], message["header"]["flags"]) == (25, _ACK)
    assert (message["dst_len"], message["proto"], message["scope"]) == (network.prefixlen, 191, scope)
    names = ("RTA_DST", "RTA_OIF", "RTA_PRIORITY")
    assert [message.get_attr(name) for name in names] == [str(network.network_address), 7, None]


@pytest.mark.parametrize(("address", "family"), [("10.9.0.10", 2), ("fd00:9::10", 10)])
def test_neighbours_are_permanent(address, family):
    ip = ipaddress.ip_address(address)
    message = _decoded(ndmsg, codec_route.set_neighbour(7, ip, "02:00:00:00:00:0a"))
    assert (message["header"]["type"], message["header"]["flags"]) == (28, _REPLACE)
    assert (message["family"], message["ifindex"], message["state"]) == (family, 7, 0x80)
    assert [message.get_attr("NDA_DST"), message.get_attr("NDA_LLADDR")] == [address, "02:00:00:00:00:0a"]
    message = _decoded(ndmsg, codec_route.delete_neighbour(7, ip))
    assert (message["header"]["type"], message["family"], message["ifindex"]) == (29, family, 7)
    assert message.get_attr("NDA_DST") == address


def _a_route(**values) -> bytes:
    message = rtmsg()
    message["family"], message["table"], message["proto"], message["type"] = 2, 254, 191, 1
    attributes = values.pop("attrs")
    for name, value in values.items():
        message[name] = value
    message["attrs"] = attributes
    message["header"]["type"] = 24
    message.encode()
    return bytes(message.data)


def test_read_routes_reads_what_pyroute2_writes_and_skips_other_tables_and_types():
    replies = [
        _a_route(dst_len=32, attrs=[("RTA_DST", "10.9.0.10"), ("RTA_OIF", 7), ("RTA_TABLE", 254)]),
        _a_route(dst_len=0, attrs=[("RTA_GATEWAY", "10.9.0.1"), ("RTA_OIF", 2), ("RTA_PRIORITY", 100)]),
        _a_route(dst_len=32, table=255, attrs=[("RTA_DST", "10.9.0.11"), ("RTA_OIF", 7)]),
        _a_route(dst_len=32, table=0, attrs=[("RTA_DST", "10.9.0.11"), ("RTA_OIF", 7), ("RTA_TABLE", 1000)]),
        _a_route(dst_len=32, type=2, attrs=[("RTA_DST", "10.9.0.2"), ("RTA_OIF", 7)]),
    ]
    assert codec_route.read_routes(replies) == [
        codec_route.RouteInfo(destination=ipaddress.ip_network("10.9.0.10/32"), protocol=191, index=7),
        codec_route.RouteInfo(
            destination=ipaddress.ip_network("0.0.0.0/0"),
            protocol=191,
            index=2,
            gateway=ipaddress.ip_address("10.9.0.1"),
            metric=100,
        ),
    ]
