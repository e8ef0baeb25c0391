"""Nodes, tasks and networks as Docker shows them, and Docker's node and network JSON to the model."""

from typing import Any

import msgspec
import pytest

from beeyard.core.address_pool import PoolUsage
from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Cluster, IPAMConfig, NodeSpec, Task
from beeyard.core.pools import pools_of
from beeyard.core.states import Availability, Role, TaskState
from beeyard.manager.api.docker_network import read_network, show_network, show_network_in_full
from beeyard.manager.api.docker_node import read_node_spec, show_node
from beeyard.manager.api.docker_task import show_task
from beeyard.manager.api.docker_value import nanoseconds, time_of
from tests.support.builders import a_config_network, a_network, a_network_from, a_node, a_task, an_ipam

CLUSTER = Cluster(id="c1", manager_node_id="n1")


def a_grant(task_id: str, *addresses: str, pool_id: str = "p1", network_id: str = "net1") -> AddressGrant:
    return AddressGrant(
        id=f"g-{task_id}",
        hook="address",
        network_id=network_id,
        network_name="lan",
        pool_id=pool_id,
        pool_name="lan-r1",
        segment="default",
        driver="macvlan",
        parent="eth0",
        addresses=addresses,
    )


def a_placed_task(task_id: str, grant: AddressGrant, state: TaskState = TaskState.RUNNING) -> Task:
    task = a_task(task_id, state=state, node_id="n1")
    status = msgspec.structs.replace(task.status, pid=71, at_s=1_800_000_000.5)
    return msgspec.structs.replace(task, grants=(grant,), status=status)


def test_times_are_rfc_3339_and_durations_whole_nanoseconds() -> None:
    """Go refuses anything else, and with it the whole reply."""
    assert time_of(1_800_000_000.5) == "2027-01-15T08:00:00.500000Z"
    assert time_of(0) == "0001-01-01T00:00:00Z"
    assert nanoseconds(5.0) == 5_000_000_000
    assert type(nanoseconds(0.1)) is int


def test_the_managers_own_host_is_shown_as_leader() -> None:
    shown = show_node(a_node("n1"), CLUSTER, "10.0.0.1:2377")
    assert shown["ManagerStatus"] == {"Leader": True, "Reachability": "reachable", "Addr": "10.0.0.1:2377"}
    assert shown["Spec"]["Role"] == "manager"
    other = show_node(a_node("n2"), CLUSTER, "10.0.0.1:2377")
    assert "ManagerStatus" not in other
    assert other["Spec"]["Role"] == "worker"


def test_a_node_update_replaces_labels_and_availability_and_keeps_the_role() -> None:
    node = a_node("n1", labels={"old": "1"})
    body = {"Labels": {"rack": "r1"}, "Role": "manager", "Availability": "drain"}
    assert read_node_spec(body, node, CLUSTER) == NodeSpec(
        labels={"rack": "r1"}, role=Role.WORKER, availability=Availability.DRAIN
    )


@pytest.mark.parametrize(
    ("node_id", "role", "verb"), [("n2", "manager", "docker node promote"), ("n1", "worker", "docker node demote")]
)
def test_a_change_of_role_is_refused_by_name(node_id: str, role: str, verb: str) -> None:
    with pytest.raises(Unsupported, match=verb):
        read_node_spec({"Role": role, "Availability": "active"}, a_node(node_id), CLUSTER)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"Role": "worker", "Availability": "bad"}, 'invalid Availability: "bad"'),
        ({"Role": "king", "Availability": "active"}, 'invalid Role: "king"'),
        ({"Role": "worker", "Availability": "active", "Extra": 1}, "Extra"),
        # An update replaces all: a body that is empty by mistake must not wipe the labels.
        (None, 'invalid Role: "" is none of worker, manager'),
        ({}, 'invalid Role: ""'),
        ({"Role": "worker"}, 'invalid Availability: "" is none of active, pause, drain'),
        ({"Availability": "active"}, 'invalid Role: ""'),
        ({"Role": "worker", "Availability": "active", "Name": "a b"}, "invalid Name: 'a b': a name has at most 255"),
        ({"Role": "worker", "Availability": "active", "Name": "-a"}, "invalid Name: '-a'"),
        ({"Role": "worker", "Availability": "active", "Name": "a" * 256}, "invalid Name"),
        ({"Role": "worker", "Availability": "active", "Labels": {"": "x"}}, "invalid Labels: a name in it is empty"),
        ({"Role": "worker", "Availability": "active", "Labels": {"a\0": "x"}}, "invalid Labels: .*zero byte"),
    ],
)
def test_a_wrong_node_spec_is_refused_by_field(body: Any, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        read_node_spec(body, a_node("n2"), CLUSTER)


def test_a_running_task_shows_its_process_and_addresses() -> None:
    task = a_placed_task("t1", a_grant("t1", "10.77.0.64/24", "fd00::40/64"))
    shown = show_task(task, {"net1": a_network_from("racks")})
    assert shown["Status"]["ContainerStatus"] == {"ContainerID": "t1", "PID": 71, "ExitCode": -1}
    assert shown["NetworksAttachments"][0]["Addresses"] == ["10.77.0.64/24", "fd00::40/64"]
    assert shown["NetworksAttachments"][0]["Network"]["Spec"]["ConfigFrom"] == {"Network": "racks"}
    assert (shown["NodeID"], shown["Slot"], shown["DesiredState"]) == ("n1", 1, "running")


def test_a_task_whose_network_is_gone_is_still_shown() -> None:
    shown = show_task(a_placed_task("t1", a_grant("t1", "10.77.0.64/24")), {})
    assert shown["NetworksAttachments"][0]["Network"]["Spec"]["Name"] == "lan"


def test_a_planned_task_says_what_it_waits_for() -> None:
    shown = show_task(a_task("t1", message="created"), {}, waiting_for="planned on node yard2, waiting for addresses")
    assert shown["Status"]["State"] == "pending"
    assert shown["Status"]["Message"] == "planned on node yard2, waiting for addresses"
    assert "NodeID" not in shown
    assert "ContainerStatus" not in shown["Status"]


def test_a_network_shows_its_live_tasks_and_how_full_its_pools_are() -> None:
    config = a_config_network("p1", "lan-r1", config="racks", nodes="node.labels.rack==r1")
    network = a_network_from("racks")
    tasks = [
        a_placed_task("t1", a_grant("t1", "10.77.0.64/24", "fd00::40/64")),
        a_placed_task("t2", a_grant("t2", "10.77.0.65/24"), TaskState.FAILED),
        a_placed_task("t3", a_grant("t3", "10.88.0.65/24", network_id="net2", pool_id="p2")),
    ]
    usage = PoolUsage(total=64, used=1, cooling=2, free=61)
    shown = show_network_in_full(network, pools_of(network, [network, config]), tasks, {"p1": usage}.get)
    assert shown["Containers"] == {
        "t1": {
            "Name": "web.1.t1",
            "EndpointID": "g-t1",
            "MacAddress": "",
            "IPv4Address": "10.77.0.64/24",
            "IPv6Address": "fd00::40/64",
        }
    }
    pool = shown["Status"]["IPAM"]["Pools"]["lan-r1"]
    assert (pool["Total"], pool["Used"], pool["Cooling"], pool["Free"]) == (64, 1, 2, 61)
    assert (pool["Parent"], pool["Nodes"]) == ("eth0", "node.labels.rack==r1")
    assert shown["IPAM"]["Config"] == [{"Subnet": "10.77.0.0/24"}]


def test_addresses_of_a_removed_pool_are_not_counted_in_a_new_one_of_its_name() -> None:
    """Those that lie in the new one's range are used there; the others are the old one's, to their end."""
    config = a_config_network("p2", "lan-r1", config="racks", ipam=[an_ipam("10.77.0.0/24", "10.77.0.128/26")])
    network = a_network_from("racks")
    addresses = ("10.77.0.64/24", "10.77.0.65/24", "10.77.0.130/24")
    tasks = [a_placed_task(f"t{n}", a_grant(f"t{n}", address)) for n, address in enumerate(addresses)]
    usage = PoolUsage(total=64, used=1, cooling=2, free=61)
    shown = show_network_in_full(network, pools_of(network, [network, config]), tasks, {"p2": usage}.get)
    pools = shown["Status"]["IPAM"]["Pools"]
    assert (pools["lan-r1"]["Used"], "Removed" in pools["lan-r1"]) == (1, False)
    assert pools["lan-r1 (removed)"] == {"Removed": True, "Used": 2}


def test_a_pool_that_is_not_known_yet_shows_no_numbers() -> None:
    network = a_network()
    shown = show_network_in_full(network, pools_of(network, [network]), [], lambda _pool_id: None)
    assert "Free" not in shown["Status"]["IPAM"]["Pools"]["lan"]


def test_a_config_only_network_is_read_without_the_drivers_default() -> None:
    """The docker command says "bridge" when the user says nothing."""
    body = {
        "Name": "lan-r1",
        "Driver": "bridge",
        "ConfigOnly": True,
        "ConfigFrom": None,
        "IPAM": {"Driver": "default", "Options": {}, "Config": [{"Subnet": "10.77.0.0/24", "Gateway": "10.77.0.1"}]},
        "Options": {"parent": "eth0"},
        "Labels": {"beeyard.config": "racks"},
        "CheckDuplicate": True,
    }
    network = read_network(body, "id1")
    assert (network.driver, network.config_only, network.config_from) == ("", True, "")
    assert network.ipam == (IPAMConfig(subnet="10.77.0.0/24", gateway="10.77.0.1"),)
    assert network.options == {"parent": "eth0"}
    shown = show_network(network)
    assert (shown["Driver"], shown["ConfigOnly"], shown["Scope"]) == ("null", True, "swarm")


def test_both_families_are_shown() -> None:
    shown = show_network(a_network(ipam=(an_ipam(), an_ipam("fd00:1::/64"))))
    assert (shown["EnableIPv4"], shown["EnableIPv6"]) == (True, True)


def test_ipam_driver_and_its_options_are_read_and_shown() -> None:
    ipam = {"Driver": "corp-ipam", "Options": {"zone": "a"}}
    network = read_network({"Name": "lan", "Driver": "ipvlan", "IPAM": ipam}, "id1")
    assert (network.ipam_driver, network.ipam_options) == ("corp-ipam", {"zone": "a"})
    assert show_network(network)["IPAM"] == {**ipam, "Config": []}


@pytest.mark.parametrize(
    ("extra", "flag"),
    [
        ({"Ingress": True}, "--ingress"),
        ({"EnableIPv4": False}, "--ipv4=false"),
    ],
)
def test_what_networks_do_not_have_is_refused_by_the_flag(extra: dict[str, Any], flag: str) -> None:
    with pytest.raises(Unsupported, match=flag):
        read_network({"Name": "lan", "Driver": "macvlan", **extra}, "id1")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"Nonsense": 1}, "Nonsense"),
        ({"IPAM": {"Config": [{"X": 1}]}}, r"IPAM\.Config\[0\]\.X"),
        ({"Options": []}, "Opt"),
    ],
)
def test_what_is_no_field_of_a_network_is_refused(extra: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        read_network({"Name": "lan", "Driver": "macvlan", **extra}, "id1")
