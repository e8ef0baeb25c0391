"""What `docker network create` accepts, and the sentence for each thing a user can get wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.errors import Forbidden, InvalidSpec, Unsupported
from beeyard.core.model import HOST_NETWORK_ID, Network
from beeyard.core.network_options import vlan_of
from beeyard.core.network_spec import validate_network
from beeyard.core.pools import config_networks
from tests.support.builders import a_config_network, a_network, a_network_from, an_ipam

R1 = a_config_network(
    "c1", "lan-r1", config="racks", nodes="node.labels.rack==r1", ipam=[an_ipam(ip_range="10.77.0.64/26")]
)
R2 = a_config_network(
    "c2", "lan-r2", config="racks", nodes="node.labels.rack==r2", options={"com.docker.network.driver.mtu": "9000"}
)


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
        (
            a_network(labels={"beeyard.nodes": "node.labels.==r1"}),
            "invalid label beeyard.nodes: invalid constraint: 'node.labels.==r1': key 'node.labels.' ends with its dot",
        ),
        (
            a_network(labels={"beeyard.nodes": "node.tags.dc==ams, node.rtt.db1<=5ms"}),
            "invalid label beeyard.nodes: 'node.rtt.db1<=5ms': which nodes a pool serves cannot depend on times",
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
        (
            a_network(driver="overlay"),
            "network driver overlay is not supported by beeyard: give -d macvlan or -d ipvlan",
        ),
        (a_network(driver=""), "network driver bridge is not supported by beeyard: give -d macvlan"),
        (msgspec.structs.replace(R1, driver="bridge"), "network driver bridge is not supported"),
        (
            a_network(options={"foo": "1"}),
            "network option foo is not supported by beeyard: known are parent, macvlan_mode, ipvlan_mode, ip",
        ),
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


def a_null(**more: Any) -> Network:
    return msgspec.structs.replace(a_network(ipam=[]), ipam_driver="null", **more)


@pytest.mark.parametrize(
    "network",
    [
        *(a_network(options={"macvlan_mode": mode}) for mode in ("", "bridge", "private", "vepa", "passthru")),
        *(a_network(driver="ipvlan", options={"ipvlan_mode": mode}) for mode in ("", "l2", "l3", "l3s")),
        *(a_network(driver="ipvlan", options={"ipvlan_flag": flag}) for flag in ("bridge", "private", "vepa")),
        a_network(driver="ipvlan", ipam=[an_ipam(gateway="10.77.0.1")]),
        a_network(options={"beeyard.host_access": "true", "macvlan_mode": "bridge"}),
        a_network(options={"beeyard.host_access": "false", "macvlan_mode": "vepa"}),
        a_network(parent="eth0.100"),
        a_network(parent="eth0.br"),
        a_null(),
        msgspec.structs.replace(a_network(ipam=[]), ipam_driver="corp-ipam", ipam_options={"zone": "a"}),
        msgspec.structs.replace(a_network(), ipam_driver="corp-ipam", enable_ipv6=True),
        a_config_network("c1", "p", options={"ipvlan_mode": "l3"}),
        msgspec.structs.replace(R1, driver="ipvlan"),
    ],
)
def test_every_driver_and_mode_is_accepted(network: Network) -> None:
    validate_network(network, [])


def l3(**more: Any) -> Network:
    return a_network(driver="ipvlan", options={"ipvlan_mode": "l3"}, **more)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (
            a_network(options={"macvlan_mode": "hub"}),
            "invalid option macvlan_mode: 'hub' is not one of bridge, private, vepa, passthru",
        ),
        (
            a_network(driver="ipvlan", options={"ipvlan_mode": "l4"}),
            "invalid option ipvlan_mode: 'l4' is not one of l2, l3, l3s",
        ),
        (
            a_network(options={"ipvlan_flag": "private"}),
            "invalid option ipvlan_flag: macvlan has none: it is an option of ipvlan",
        ),
        (
            a_network(options={"ipvlan_mode": "l2"}),
            "invalid option ipvlan_mode: macvlan has none: it is an option of ipvlan",
        ),
        (
            a_network(driver="ipvlan", options={"macvlan_mode": "bridge"}),
            "invalid option macvlan_mode: ipvlan has none: it is an option of macvlan",
        ),
        (
            a_config_network("c1", "p", options={"macvlan_mode": "vepa", "ipvlan_mode": "l3"}),
            "invalid option ipvlan_mode: macvlan has none: it is an option of ipvlan",
        ),
        (
            a_network(driver="ipvlan", options={"beeyard.host_access": "true"}),
            "invalid option beeyard.host_access: ipvlan has none: it is an option of macvlan",
        ),
        (
            a_network(options={"beeyard.host_access": "true", "macvlan_mode": "private"}),
            "invalid option beeyard.host_access: in mode private no link beside a task's reaches it: it goes with "
            "macvlan_mode bridge alone",
        ),
        (
            a_network(options={"beeyard.host_access": "true", "macvlan_mode": "passthru"}),
            "invalid option beeyard.host_access: in mode passthru",
        ),
        (
            a_network(options={"beeyard.host_access": "yes"}),
            "invalid option beeyard.host_access: 'yes' is not one of false, true",
        ),
        (
            l3(ipam=[an_ipam(gateway="10.77.0.1")]),
            "invalid gateway: 10.77.0.1 would be ignored: with ipvlan_mode l3 tasks send everything through their link: "
            "leave --gateway out",
        ),
        (
            a_network(parent="eth0.4095"),
            "invalid option parent: 'eth0.4095' is of no VLAN: the number behind the dot is from 1 to 4094",
        ),
        (a_network(parent="eth0.0"), "invalid option parent: 'eth0.0' is of no VLAN"),
        (a_network(parent="eth0.010"), "invalid option parent: 'eth0.010' is of no VLAN"),
        (
            msgspec.structs.replace(a_network(), ipam_driver="null"),
            "invalid ipam-driver: null gives no addresses, so --subnet, --ip-range, --gateway or --aux-address cannot be",
        ),
        (a_null(enable_ipv6=True), "invalid ipam-driver: null gives no addresses, so --ipv6 cannot be given"),
        (
            a_null(driver="ipvlan"),
            "invalid ipam-driver: network lan has the IPAM driver null, and an ipvlan link is told from its neighbours by "
            "its address: use macvlan",
        ),
        (a_null(ipam_options={"a": "b"}), "invalid ipam-opt a: the IPAM driver null has no options: leave it out"),
        (
            msgspec.structs.replace(a_network(), ipam_options={"zone": "a"}),
            "invalid ipam-opt zone: the IPAM driver default has no options: leave it out",
        ),
        (
            msgspec.structs.replace(a_network_from("racks"), ipam_driver="corp-ipam"),
            "invalid config-from: --ipam-driver cannot be given together with --config-from racks",
        ),
        (
            msgspec.structs.replace(a_network_from("racks"), ipam_options={"a": "b"}),
            "invalid config-from: --ipam-opt cannot be given together with --config-from racks",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(network: Network, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate_network(network, [R1])
    assert sentence in str(caught.value)


L3 = a_config_network("c3", "lan-l3", config="racks", options={"ipvlan_mode": "l3"})
NULL = msgspec.structs.replace(a_config_network("c4", "dhcp", config="racks", ipam=[]), ipam_driver="null")
LAN, FAST = a_network_from("racks"), a_network_from("racks", driver="ipvlan")


@pytest.mark.parametrize(
    ("network", "others", "sentence"),
    [
        (LAN, [L3], "invalid driver: configuration network lan-l3 is for -d ipvlan, network lan is -d macvlan"),
        (L3, [R1, LAN], "invalid driver: configuration network lan-l3 is for -d ipvlan, network lan is -d macvlan"),
        (
            FAST,
            [NULL],
            "invalid ipam-driver: configuration network dhcp has the IPAM driver null, and an ipvlan link is told",
        ),
        (
            LAN,
            [R1, NULL],
            "invalid ipam-driver: lan-r1 has default, dhcp has null: the pools of network lan must have the same",
        ),
        (
            NULL,
            [R1, LAN],
            "invalid ipam-driver: dhcp has null, lan-r1 has default: the pools of network lan must have the same",
        ),
    ],
)
def test_pool_that_its_network_cannot_use_is_refused(network: Network, others: list[Network], sentence: str) -> None:
    """Whichever of the two comes later."""
    with pytest.raises(InvalidSpec) as caught:
        validate_network(network, others)
    assert sentence in str(caught.value)


def test_pool_without_a_driver_of_its_own_serves_both() -> None:
    for user in (LAN, FAST):
        validate_network(user, [R1, R2])
        validate_network(R2, [R1, user])


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ("eth0.100", ("eth0.100", "eth0", 100)),
        ("eth0.10.20", ("eth0.10.20", "eth0.10", 20)),
        ("eth0", None),
        ("br.lan", None),
        ("br.lan.7", ("br.lan.7", "br.lan", 7)),
        (".100", None),
        ("eth0.", None),
        ("eth0.1x", None),
    ],
)
def test_a_vlan_is_known_by_its_name(parent: str, expected: tuple[str, str, int] | None) -> None:
    """By the manager that places tasks as by the agent that makes it; only one of a VLAN is within another."""
    vlan = vlan_of(parent)
    assert vlan == expected
    assert vlan is None or vlan.is_nested == (parent == "eth0.10.20")
