"""Several networks beside each other, links that exclude each other, and slots with addresses, through the docker command."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import WATCHED, Docker, addresses_of, eventually

pytestmark = pytest.mark.netns

MACVLAN = ("network", "create", "-d", "macvlan", "--scope", "swarm")


def inside(task: dict[str, Any], *command: str) -> subprocess.CompletedProcess[str]:
    """A command in a task's network namespace."""
    namespace = f"/proc/{task['Status']['ContainerStatus']['PID']}/ns/net"
    return subprocess.run(["nsenter", f"--net={namespace}", *command], capture_output=True, text=True, check=False)


def reaches(task: dict[str, Any], address: str) -> bool:
    return eventually(lambda: inside(task, "ping", "-c1", "-W1", address).returncode == 0, within_s=15)


def test_one_task_in_three_networks_of_one_parent(docker: Docker) -> None:
    """Both families, a subnet that overlaps on another segment, the same gateway: tasks of two hosts meet in each."""
    both = ("--subnet", "10.81.0.0/24", "--gateway", "10.81.0.1", "--subnet", "fd00:81::/64")
    docker(*MACVLAN, *both, "-o", "parent=eth0", "both")
    docker(*MACVLAN, "--subnet", "10.81.0.0/24", "--ip-range", "10.81.0.128/25", "--gateway", "10.81.0.1",
           "-o", "parent=eth0", "--label", "beeyard.segment=other", "other")  # fmt: skip
    docker(*MACVLAN, "--subnet", "10.82.0.0/24", "--internal", "-o", "parent=eth0", "inner")
    names = ("both", "other", "inner")
    docker("service", "create", *WATCHED, "--name", "three", "--replicas", "2", "--replicas-max-per-node", "1",
           *(word for name in names for word in ("--network", name)), "host", "sleep", "1d")  # fmt: skip
    one, two = docker.running("three")
    assert one["NodeID"] != two["NodeID"]
    addresses = addresses_of(two)
    assert len(addresses) == 4
    for address in addresses:
        assert reaches(one, address), address
    devices = [
        inside(one, "ip", "-o", "route", "get", address).stdout.split(" dev ")[1].split()[0] for address in addresses
    ]
    # Each link answers for its own addresses alone, or an address would be on two segments. The docker command sends
    # the subnets of a network in any order, so that the first address may be one of IPv6, for which ARP has no words.
    device, address = next(pair for pair in zip(devices, addresses, strict=True) if ":" not in pair[1])
    asked = inside(one, "arping", "-b", "-c", "2", "-w", "2", "-I", device, address)
    assert len(set(re.findall(r"\[([0-9A-Fa-f:]{17})\]", asked.stdout))) == 1, (asked.stdout, asked.stderr)
    # The docker command sorts networks by id; of the two overlapping subnets the one that came first is used.
    overlapping = {device for address, device in zip(addresses, devices, strict=True) if address.startswith("10.81.")}
    assert len(overlapping) == 1, devices
    macs = {c["MacAddress"] for name in names for c in docker.inspect("network", name)[0]["Containers"].values()}
    assert len(macs) == 6
    docker("service", "rm", "three")


def test_what_excludes_each_other_waits_and_says_so(docker: Docker) -> None:
    """A task that needs the parent for itself waits for those of another service; the kernel here need not know more."""
    docker(*MACVLAN, "--subnet", "10.83.0.0/24", "-o", "parent=eth0", "-o", "macvlan_mode=passthru", "alone")
    docker(
        "service", "create", *WATCHED, "--name", "many", "--replicas", "3", "--network", "inner", "host", "sleep", "1d"
    )
    docker("service", "create", "-d", "--name", "one", "--network", "alone", "host", "sleep", "1d")
    words = "parent interface eth0 for network alone is used by macvlan on 3 nodes"
    eventually(lambda: words in docker("service", "ps", "--no-trunc", "one"), within_s=20)
    docker("service", "rm", "one", "many")


def elsewhere(docker: Docker, service: str, node_id: str) -> list[dict[str, Any]]:
    return [task for task in docker.running(service) if task["NodeID"] != node_id]


def test_slots_keep_addresses_over_nodes_and_pools_change_in_use(docker: Docker, cluster: YardCluster) -> None:
    """Drained, a slot's task runs elsewhere with its address and MAC address; its pool is removed and shrunk meanwhile."""
    for name in ("pool-a", "pool-b"):
        docker("network", "create", "--config-only", "--subnet", "10.84.0.0/24", "--gateway", "10.84.0.1",
               "--ip-range", "10.84.0.64/26", "-o", "parent=eth0", "--label", "beeyard.config=pools", name)  # fmt: skip
    docker(*MACVLAN, "--config-from", "pools", "slots")
    labels = ("beeyard.addresses=10.84.0.10-10.84.0.11", "beeyard.on-isolation=fence", "beeyard.mac=per-slot")
    docker("service", "create", *WATCHED, "--name", "db", "--replicas", "2", "--network", "slots",
           *(word for label in labels for word in ("--label", label)), "host", "sleep", "1d")  # fmt: skip

    def places() -> list[tuple[int, list[str], str]]:
        containers = docker.inspect("network", "slots")[0]["Containers"]
        return sorted((t["Slot"], addresses_of(t), containers[t["ID"]]["MacAddress"]) for t in docker.running("db"))

    before = places()
    assert [(slot, addresses) for slot, addresses, _ in before] == [(1, ["10.84.0.10"]), (2, ["10.84.0.11"])]
    refused = docker.run("service", "scale", "-d", "db=3")
    assert "it has addresses for 2 replicas, and 3 are asked for" in refused.stdout + refused.stderr
    docker("network", "rm", "pool-a")
    node_id = docker.running("db")[0]["NodeID"]
    docker("node", "update", "--availability", "drain", node_id)
    eventually(
        lambda: places() == before and node_id not in {t["NodeID"] for t in docker.running("db")},
        within_s=40,
    )
    docker("node", "update", "--availability", "active", node_id)
    version = docker.inspect("network", "pool-b")[0]["Version"]["Index"]
    config = {"Subnet": "10.84.0.0/24", "IPRange": "10.84.0.128/26", "Gateway": "10.84.0.1"}
    ipam = {"IPAM": {"Config": [config]}}
    assert cluster.call("POST", f"/networks/pool-b/update?version={version}", ipam) == {"Warning": ""}
    docker("service", "create", *WATCHED, "--name", "new", "--network", "slots", "host", "sleep", "1d")
    assert addresses_of(docker.running("new")[0]) == ["10.84.0.128"]
    docker("service", "rm", "db", "new")
