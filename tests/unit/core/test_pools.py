"""Which pools a network has, and what they say."""

from __future__ import annotations

import msgspec

from beeyard.core.model import HOST_NETWORK_ID, Network
from beeyard.core.pools import (
    own_pool,
    pools_of,
    segments,
    users_of,
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


def test_a_config_only_network_is_a_pool_by_itself() -> None:
    """As a network that draws from it would see it; another network is none."""
    config = a_config_network("c1", "lan-r1")
    pool = own_pool(config)
    assert pool is not None
    (drawn,) = pools_of(a_network_from(config.name), [config])
    assert pool == msgspec.structs.replace(drawn, network_id=config.id)
    assert own_pool(a_network()) is None
