"""Which pools a network has, and the sentence for each thing a user can get wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.errors import Forbidden, InvalidSpec, Unsupported
from beeyard.core.model import HOST_NETWORK_ID, Network
from beeyard.core.pools import (
    config_networks,
    gateway_warning,
    own_pool,
    pools_of,
    segments,
    users_of,
    validate_network,
)
from tests.support.builders import a_config_network, a_network, a_network_from, an_ipam

R1 = a_config_network(
    "c1", "lan-r1", config="racks", nodes="node.labels.rack==r1", ipam=[an_ipam(ip_range="10.77.0.64/26")]
)
R2 = a_config_network(
    "c2", "lan-r2", config="racks", nodes="node.labels.rack==r2", options={"com.docker.network.driver.mtu": "9000"}
)


def test_direct_network_is_its_own_pool_for_all_nodes() -> None:
    network = a_network("net1", options={"macvlan_mode": "bridge"}, labels={"beeyard.segment": "b"})
    (pool,) = pools_of(network, [network])
    assert (pool.pool_id, pool.name, pool.network_id) == ("net1", "lan", "net1")
    assert (pool.parent, pool.nodes, pool.segment, pool.mtu, pool.mode) == ("eth0", "", "b", 0, "bridge")
    assert pool.spec().ipam == network.ipam


def test_config_from_takes_the_named_and_every_labelled_network_in_order_of_names() -> None:
    named = a_config_network("c0", "racks")
    others = [a_config_network("c9", "other"), a_network("net2", name="racks2", labels={})]
    lan = a_network_from("racks")
    pools = pools_of(lan, [R2, *others, named, R1, lan])
    assert [pool.name for pool in pools] == ["lan-r1", "lan-r2", "racks"]
    assert [pool.pool_id for pool in pools] == ["c1", "c2", "c0"]
    assert [pool.nodes for pool in pools] == ["node.labels.rack==r1", "node.labels.rack==r2", ""]
    assert [pool.mtu for pool in pools] == [0, 9000, 0]
    assert {pool.network_id for pool in pools} == {"net1"}


def test_config_only_and_host_networks_have_no_pools() -> None:
    assert pools_of(R1, [R1]) == []
    assert pools_of(Network(id=HOST_NETWORK_ID, name="host", driver="host"), []) == []


def test_users_of_a_config_network_are_those_that_name_it_or_its_label() -> None:
    by_name, by_label = a_network_from("lan-r1", "net2", name="b"), a_network_from("racks", name="a")
    networks = [R1, R2, by_name, by_label, a_network("net3", name="c")]
    assert users_of(R1, networks) == [by_label, by_name]
    assert users_of(R2, networks) == [by_label]
    assert users_of(by_name, networks) == []


def test_segments_are_one_unless_a_label_says_otherwise() -> None:
    site_b = a_config_network("c3", "b", segment="site-b")
    assert segments([R1, site_b, a_network_from("racks")]) == {"c1": "default", "c3": "site-b"}


@pytest.mark.parametrize(
    "network",
    [
        R1,
        R2,
        a_network(),
        a_network(ipam=[an_ipam(), an_ipam("fd00:1::/64", gateway="fd00:1::1")], enable_ipv6=True, internal=True),
        a_network(ipam=[an_ipam("10.1.0.0/31")]),
        a_network(name="9Lan_1.b-c" + "x" * 245),
        a_network(ipam=[an_ipam(gateway="10.77.0.1", aux={"printer": "10.77.0.9"})], parent="eth0.10"),
        a_network(labels={"beeyard.nodes": "node.labels.rack==r1, node.role!=manager", "owner": "me"}),
        msgspec.structs.replace(a_network(), scope=""),
        Network(id=HOST_NETWORK_ID, name="host", driver="host"),
    ],
)
def test_valid_network_is_accepted(network: Network) -> None:
    validate_network(network, [])


def test_config_from_is_accepted_when_a_config_network_has_the_name_or_the_label() -> None:
    validate_network(a_network_from("racks"), [R1])
    validate_network(a_network_from("lan-r1"), iter([R1]))
    assert config_networks("racks", [R2, R1]) == [R1, R2]


def an(subnet: str = "10.77.0.0/24", **more: Any) -> Network:
    return a_network(ipam=[an_ipam(subnet, **more)])


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (an("10.77.0"), "invalid subnet: '10.77.0' is not an address and a prefix length, such as 10.1.0.0/24"),
        (an("10.77.0.0"), "invalid subnet: '10.77.0.0' has no prefix length: such as 10.77.0.0/24"),
        (
            an("10.77.0.0/255.255.255.0"),
            "invalid subnet: '10.77.0.0/255.255.255.0' has no prefix length: such as 10.77.0.0/24",
        ),
        (
            an("10.77.0.5/24"),
            "invalid subnet: '10.77.0.5/24' has bits set behind its prefix: it should be 10.77.0.0/24",
        ),
        (an("10.77.0.0/33"), "invalid subnet: '10.77.0.0/33' is not an address"),
        (an("224.0.0.0/24"), "invalid subnet: 224.0.0.0/24 is not for hosts of a LAN"),
        (an("127.0.0.0/8"), "invalid subnet: 127.0.0.0/8 is not for hosts of a LAN"),
        (an("fe80::/64"), "invalid subnet: fe80::/64 is not for hosts of a LAN"),
        (
            an("255.255.255.0/24"),
            "invalid subnet: 255.255.255.0/24 is not for hosts of a LAN (240.0.0.0/4 is reserved)",
        ),
        (
            an("169.254.7.0/24"),
            "invalid subnet: 169.254.7.0/24 is not for hosts of a LAN (169.254.0.0/16 is link-local)",
        ),
        (an("126.0.0.0/7"), "invalid subnet: 126.0.0.0/7 is not for hosts of a LAN (127.0.0.0/8 is loopback)"),
        (an("::ffff:0:0/96"), "invalid subnet: ::ffff:0:0/96 is not for hosts of a LAN (::/8 is reserved)"),
        (an("ff02::/64"), "invalid subnet: ff02::/64 is not for hosts of a LAN (ff00::/8 is multicast)"),
        (an("0.0.0.0/0"), "invalid subnet: 0.0.0.0/0 is not for hosts of a LAN"),
        (an(ip_range="10.77.1.0/26"), "invalid ip-range: 10.77.1.0/26 is not within the subnet 10.77.0.0/24"),
        (
            an(ip_range="10.77.1.0/23"),
            "invalid ip-range: '10.77.1.0/23' has bits set behind its prefix: it should be 10.77.0.0/23",
        ),
        (an(ip_range="10.76.0.0/15"), "invalid ip-range: 10.76.0.0/15 is not within the subnet"),
        (an(ip_range="fd00::/64"), "invalid ip-range: fd00::/64 is not within the subnet"),
        (an(ip_range="10.77.0.0/32"), "invalid ip-range: 10.77.0.0/32 has no address left to hand out"),
        (an("10.1.0.4/32", gateway="10.1.0.4"), "invalid ip-range: 10.1.0.4/32 has no address left to hand out"),
        (an(gateway="10.78.0.1"), "invalid gateway: 10.78.0.1 is not within the subnet 10.77.0.0/24"),
        (an(gateway="fd00::1"), "invalid gateway: fd00::1 is not within the subnet 10.77.0.0/24"),
        (an(gateway="10.77.0.1/24"), "invalid gateway: '10.77.0.1/24' is not an address, such as 10.77.0.1"),
        (an(gateway="10.77.0.255"), "invalid gateway: 10.77.0.255 is the network or broadcast address of 10.77.0.0/24"),
        (an(aux={"nas": "10.78.0.1"}), "invalid aux-address nas: 10.78.0.1 is not within the subnet"),
        (an(gateway="10.77.0.1", aux={"nas": "10.77.0.1"}), "invalid aux-address nas: 10.77.0.1 is given twice"),
        (a_network(ipam=[]), "invalid subnet: it is missing: give --subnet, such as --subnet 10.1.0.0/24"),
        (a_network(ipam=[an_ipam(), an_ipam("10.1.0.0/24")]), "invalid subnet: 2 subnets of IPv4 were given"),
        (a_network(enable_ipv6=True), "invalid ipv6: --ipv6 needs a subnet of its own"),
        (a_network(name=" "), "invalid name: it is empty"),
        (a_network(name="a b"), "invalid name: 'a b': a name has at most 255 ASCII letters, digits"),
        (a_network(name="a/b"), "invalid name: 'a/b': a name"),
        (a_network(name="lan\n"), "invalid name: 'lan\\n': a name"),
        (a_network(name="-lan"), "invalid name: '-lan': a name"),
        (a_network(name="é"), "invalid name: 'é': a name"),
        (a_network(name="a" * 256), "invalid name: 'aaa"),
        (a_config_network("c1", "a b"), "invalid name: 'a b': a name"),
        (
            a_network(parent=""),
            "invalid option parent: it is missing: give -o parent=INTERFACE, the nodes' link to that LAN",
        ),
        (a_config_network("c1", "p", parent=""), "invalid option parent: it is missing"),
        (a_network(parent="lo"), "invalid option parent: 'lo' cannot be the name of an interface on a LAN"),
        (
            a_network(parent="an-interface-too-long"),
            "invalid option parent: 'an-interface-too-long' cannot be the name",
        ),
        (
            a_network(options={"com.docker.network.driver.mtu": "big"}),
            "mtu: 'big' is not a number of bytes from 68 to 65535",
        ),
        (
            a_network(options={"com.docker.network.driver.mtu": "67"}),
            "mtu: '67' is not a number of bytes from 68 to 65535",
        ),
        (
            a_network(ipam=[an_ipam("fd00::/64")], options={"com.docker.network.driver.mtu": "1000"}),
            "mtu: 1000 is too small for IPv6: at least 1280",
        ),
        (
            a_network(labels={"beeyard.nodes": "rack"}),
            "invalid label beeyard.nodes: invalid constraint: 'rack': expected one op",
        ),
        (
            a_network(labels={"beeyard.nodes": "node.rack==r1"}),
            "invalid label beeyard.nodes: 'node.rack==r1' matches no node",
        ),
        (a_network(labels={"beeyard.nodes": ""}), "invalid label beeyard.nodes: it is empty"),
        (a_network(labels={"beeyard.segment": " "}), "invalid label beeyard.segment: it is empty"),
        (
            a_network(labels={"beeyard.node": "x"}),
            "invalid label beeyard.node: no label of a network has this name: known are",
        ),
        (
            a_network(labels={"beeyard.config": "x"}),
            "invalid label beeyard.config: only a network made with --config-only",
        ),
        (
            msgspec.structs.replace(R1, config_from="x"),
            "invalid config-from: a configuration network cannot depend on another configuration network",
        ),
        (
            msgspec.structs.replace(R1, internal=True),
            "invalid internal: a configuration network has a subnet and options only",
        ),
        (
            a_network_from("nowhere"),
            "invalid config-from: no --config-only network is named nowhere or has the label beeyard",
        ),
        (a_network_from("plain"), "invalid config-from: network plain is not a configuration network"),
        (
            msgspec.structs.replace(a_network_from("racks"), ipam=(an_ipam(),)),
            "--subnet, --ip-range, --gateway or --aux-address cannot be given together with --config-from racks: say it in",
        ),
        (
            msgspec.structs.replace(a_network_from("racks"), options={"parent": "eth0"}),
            "invalid config-from: -o cannot be given together with --config-from racks",
        ),
        (
            msgspec.structs.replace(a_network_from("racks"), enable_ipv6=True),
            "invalid config-from: --ipv6 cannot be given together with --config-from racks",
        ),
        (
            msgspec.structs.replace(a_network_from("racks"), labels={"beeyard.nodes": "node.role==worker"}),
            "invalid config-from: --label beeyard.nodes cannot be given together with --config-from racks",
        ),
    ],
)
def test_wrong_value_is_refused_with_its_field_and_what_would_be_right(network: Network, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate_network(network, [R1, a_network("net9", name="plain")])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (a_network(driver="overlay"), "network driver overlay is not supported by beeyard: give -d macvlan"),
        (a_network(driver=""), "network driver bridge is not supported by beeyard: give -d macvlan"),
        (msgspec.structs.replace(R1, driver="ipvlan"), "network driver ipvlan is not supported"),
        (
            a_network(options={"macvlan_mode": "vepa"}),
            "macvlan_mode vepa is not supported by beeyard: the mode is bridge",
        ),
        (
            a_network(options={"foo": "1"}),
            "network option foo is not supported by beeyard: known are parent, macvlan_mode, com",
        ),
        (msgspec.structs.replace(a_network(), ipam_driver="null"), "IPAM driver null is not supported"),
        (msgspec.structs.replace(a_network(), attachable=True), "an attachable network is not supported"),
        (a_network(scope="local"), "network scope local is not supported"),
    ],
)
def test_docker_feature_that_is_not_there_is_refused_by_name(network: Network, sentence: str) -> None:
    with pytest.raises(Unsupported) as caught:
        validate_network(network, [])
    assert sentence in str(caught.value)


def test_second_host_network_is_refused() -> None:
    with pytest.raises(Forbidden, match='only one instance of "host" network is allowed'):
        validate_network(a_network("mine", driver="host"), [])


@pytest.mark.parametrize(
    ("network", "warning"),
    [
        (an(gateway="10.77.0.1"), ""),
        (
            an(gateway="10.77.0.70"),
            "gateway 10.77.0.70 of lan lies in the range of lan-r1, which will not hand it out; "
            "gateway 10.77.0.1 of lan-r1 lies in the range of lan, which will not hand it out",
        ),
        (
            a_network(ipam=[an_ipam(gateway="10.77.0.70", ip_range="10.77.0.8/29")]),
            "gateway 10.77.0.70 of lan lies in the range of lan-r1, which will not hand it out",
        ),
        (a_network(ipam=[an_ipam(gateway="10.77.0.70")], labels={"beeyard.segment": "elsewhere"}), ""),
        (a_network_from("racks"), ""),
    ],
)
def test_gateway_in_the_range_of_another_pool_is_told(network: Network, warning: str) -> None:
    r1 = a_config_network("c1", "lan-r1", ipam=[an_ipam(ip_range="10.77.0.64/26", gateway="10.77.0.1")])
    assert gateway_warning(network, [network, r1]) == warning


def test_a_config_only_network_is_a_pool_by_itself() -> None:
    """As a network that draws from it would see it; another network is none."""
    config = a_config_network("c1", "lan-r1")
    pool = own_pool(config)
    assert pool is not None
    (drawn,) = pools_of(a_network_from(config.name), [config])
    assert pool == msgspec.structs.replace(drawn, network_id=config.id)
    assert own_pool(a_network()) is None
