"""The whole way of a task on real namespaces, driven by the stock docker client."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.lan import Lan
from deploy.yard_cluster import YardCluster
from tests.support.docker import COOL_DOWN_S, RACK_RANGES, WATCHED, Docker, addresses_of, eventually
from tests.support.docker_volumes import create_shared_volume, drain_volume, listed_volumes

pytestmark = pytest.mark.netns

SERVER = ("host", "python3", "-m", "http.server", "8000")


def rack_of_node(docker: Docker) -> dict[str, str]:
    return {
        node["ID"]: node["Spec"]["Labels"]["rack"]
        for node in docker.inspect("node", *docker("node", "ls", "-q").split())
    }


def in_its_rack(task: dict, racks: dict[str, str]) -> bool:
    pool = ipaddress.ip_network(RACK_RANGES[racks[task["NodeID"]]])
    return all(ipaddress.ip_address(address) in pool for address in addresses_of(task))


def http_status(netns: str, address: str) -> str:
    """What a GET from inside a namespace answers."""
    program = f"import urllib.request; print(urllib.request.urlopen('http://{address}:8000', timeout=5).status)"
    return subprocess.run(
        ["nsenter", f"--net={netns}", "/usr/bin/python3", "-c", program], capture_output=True, text=True, check=False
    ).stdout.strip()


def test_the_cluster_shows_its_nodes(docker: Docker) -> None:
    """Three nodes are ready and the manager's is the leader."""
    rows = [json.loads(line) for line in docker("node", "ls", "--format", "{{json .}}").splitlines()]
    assert sorted(row["Status"] for row in rows) == ["Ready"] * 3
    assert [row["ManagerStatus"] for row in rows if row["ManagerStatus"]] == ["Leader"]
    assert Counter(rack_of_node(docker).values()) == {"r1": 2, "r2": 1}


def test_a_service_gets_addresses_of_the_racks_it_landed_in(docker: Docker, lan: str, cluster: YardCluster) -> None:
    """Each task's address is of its node's pool, none is there twice, and tasks reach each other across hosts."""
    created = docker("service", "create", *WATCHED, "--name", "web", "--replicas", "6", "--network", lan, *SERVER)
    assert "Service " in created
    assert "converged" in created

    tasks, racks = docker.running("web"), rack_of_node(docker)
    addresses = [address for task in tasks for address in addresses_of(task)]
    assert len(tasks) == 6
    assert len(set(addresses)) == 6
    assert [task["ID"] for task in tasks if not in_its_rack(task, racks)] == []

    (network,) = docker.inspect("network", lan)
    shown = {container["IPv4Address"].partition("/")[0] for container in network["Containers"].values()}
    assert shown == set(addresses)

    here = next(task for task in tasks if racks[task["NodeID"]] == "r1")
    there = next(task for task in tasks if racks[task["NodeID"]] == "r2")
    namespace = f"/proc/{here['Status']['ContainerStatus']['PID']}/ns/net"
    command = ["nsenter", f"--net={namespace}", "ip", "-o", "link", "show", "eth0"]
    link = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"link/ether {network['Containers'][here['ID']]['MacAddress']} " in link
    for asker, task in ((namespace, there), (f"/run/netns/{cluster.lan.outside}", here)):
        address = addresses_of(task)[0]
        eventually(lambda asker=asker, address=address: http_status(asker, address) == "200", within_s=30)


def test_a_service_without_a_network_has_loopback_only(docker: Docker) -> None:
    """No `--network`: a namespace of its own with nothing but lo."""
    docker("service", "create", *WATCHED, "--name", "alone", "host", "sleep", "1d")
    (task,) = docker.running("alone")
    pid = task["Status"]["ContainerStatus"]["PID"]
    links = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-o", "link"], capture_output=True, text=True, check=True
    )
    assert [line.split(": ")[1] for line in links.stdout.splitlines()] == ["lo"]
    docker("service", "rm", "alone")


def test_a_task_knows_which_of_its_nodes_devices_it_got(docker: Docker) -> None:
    """Three nodes with two devices each: six tasks have one each, and its name in their environment; a seventh waits."""
    options = ("--generic-resource", "gpu=1", "--generic-resource", "ssd=2", "--log-driver", "none")
    docker("service", "create", "-d", "--name", "gpus", "--replicas", "7", *options, "host", "sleep", "1d")
    tasks = eventually(lambda: (running := docker.running("gpus")) and len(running) == 6 and running, within_s=60)
    claims = [(task["NodeID"], task["GenericResources"][0]["NamedResourceSpec"]["Value"]) for task in tasks]
    nodes = docker("node", "ls", "-q").split()
    assert sorted(claims) == sorted((node_id, name) for node_id in nodes for name in ("u1", "u2"))
    for task, (_, name) in zip(tasks, claims, strict=True):
        environment = Path(f"/proc/{task['Status']['ContainerStatus']['PID']}/environ").read_text().split("\0")
        assert {f"DOCKER_RESOURCE_GPU={name}", "DOCKER_RESOURCE_SSD=2"} <= set(environment)
    (node,) = docker.inspect("node", nodes[0])
    assert node["Description"]["Engine"]["Labels"] == {"disk": "ssd"}
    resources = node["Status"]["Resources"]
    assert [resources[part]["gpu"] for part in ("Total", "Reserved", "Free")] == [2, 2, 0]
    assert [resources[part]["ssd"] for part in ("Total", "Reserved", "Free")] == [5, 4, 1]
    docker("service", "rm", "gpus")


def test_tasks_share_a_cluster_volume_until_it_is_drained(docker: Docker, volumes_dir: Path) -> None:
    """Two tasks write where the volume's directory is, in its rack alone; then they have to leave it."""
    (volumes_dir / "data").mkdir()
    os.chmod(volumes_dir / "data", 0o1777)
    create_shared_volume(docker, "data", rack="r1")
    mount = ("--mount", "type=cluster,source=data,target=/tmp/data")
    write = ("sh", "-c", "touch /tmp/data/$(hostname) && exec sleep 1d")
    docker("service", "create", *WATCHED, "--name", "writers", "--replicas", "2", *mount, "host", *write)
    tasks, racks = docker.running("writers"), rack_of_node(docker)
    assert [racks[task["NodeID"]] for task in tasks] == ["r1", "r1"]
    written = {task["ID"][:12] for task in tasks}
    eventually(lambda: {path.name for path in (volumes_dir / "data").iterdir()} == written, within_s=10)
    assert [task["Volumes"][0]["Target"] for task in tasks] == ["/tmp/data"] * 2
    assert listed_volumes(docker)[0].startswith("data")

    drain_volume(docker, "data")
    reason = "no suitable node (cannot fulfill requested CSI volume mounts on 3 nodes)"
    eventually(
        lambda: [t["Status"].get("Err") for t in docker.tasks("writers", desired="running")] == [reason] * 2,
        within_s=30,
    )
    docker("service", "rm", "writers")
    eventually(lambda: docker.run("volume", "rm", "data").returncode == 0, within_s=30)
    assert (volumes_dir / "data").is_dir(), "what is in a volume stays where it is"


def test_a_dry_pool_makes_tasks_wait_and_say_why(docker: Docker, lan: str, cluster: YardCluster) -> None:
    """128 addresses: 128 of 200 tasks run, the rest names the pool, and others are not held up."""
    docker("service", "scale", "-d", "web=200")
    eventually(lambda: len(docker.running("web")) == 128, within_s=90, every_s=1)
    waiting = [task for task in docker.tasks("web", desired="running") if task["Status"]["State"] == "pending"]
    assert len(waiting) == 72
    reason = eventually(lambda: docker.tasks("web")[-1] and _reason(docker), within_s=10)
    assert "no address left in pool lan-r1" in reason
    assert "no address left in pool lan-r2" in reason

    answer = beeyard(cluster, "explain", "web", "--json")
    assert (answer["Waiting"], answer["Fitting"]) == (72, 0)
    assert [one["Text"] for one in answer["Relaxations"]] == [
        "72 addresses more in lan-r1: 2 nodes",
        "72 addresses more in lan-r2: 1 node",
        f"without network {lan}: 3 nodes",
    ]
    node_id = docker.running("web")[0]["NodeID"]
    after = beeyard(cluster, "whatif", "node-lost", node_id, "--json")
    on_node = [task["ID"] for task in docker.running("web") if task["NodeID"] == node_id]
    assert sorted(one["Task"] for one in after["Stuck"] if one["Service"] == "web") == sorted(on_node)
    assert [move for move in after["Moves"] if move["Service"] == "web"] == []

    docker("service", "create", *WATCHED, "--name", "aside", "--replicas", "2", "host", "sleep", "1d", timeout_s=30)
    docker("service", "rm", "aside")

    addresses = [address for task in docker.running("web") for address in addresses_of(task)]
    assert len(set(addresses)) == 128

    docker("service", "scale", "web=6")
    eventually(lambda: docker.used_addresses(lan) == 6, within_s=90)
    # As long as this manager was told; by default it takes longer than is waited here.
    eventually(lambda: _pools(docker, lan) == {"lan-r1": 64, "lan-r2": 64}, within_s=COOL_DOWN_S + 20, every_s=1)


def beeyard(cluster: YardCluster, command: str, *arguments: str) -> Any:
    """What a command on the manager's host answers."""
    whole = [sys.executable, "-m", "beeyard", command, *arguments, "--socket", cluster.api_socket]
    return json.loads(subprocess.run(whole, capture_output=True, text=True, check=True).stdout)


def _reason(docker: Docker) -> str:
    """What `service ps` says of the tasks that wait."""
    lines = docker(
        "service",
        "ps",
        "--no-trunc",
        "--filter",
        "desired-state=running",
        "--format",
        "{{.CurrentState}} {{.Error}}",
        "web",
    )
    return next((line for line in lines.splitlines() if line.startswith("Pending") and "pool" in line), "")


def _pools(docker: Docker, network: str) -> dict[str, int]:
    """Used plus free addresses of each pool, when none is cooling."""
    (shown,) = docker.inspect("network", network)
    pools = shown["Status"]["IPAM"]["Pools"]
    assert all(pool["Cooling"] == 0 for pool in pools.values()), pools
    assert sum(pool["Used"] for pool in pools.values()) == 6, pools
    return {name: pool["Used"] + pool["Free"] for name, pool in pools.items()}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("service", "create", "-d", "-p", "80:80", "host", "true"), "publish"),
        (("service", "create", "-d", "--mode", "global", "host", "true"), "global"),
        (("service", "create", "-d", "--secret", "x", "host", "true"), "secret"),
        (("secret", "ls"), "secret"),
        (("network", "create", "-d", "overlay", "x"), "overlay"),
        (("service", "create", "-d", "--constraint", "node.role=worker", "host", "true"), "constraint"),
        (("service", "create", "-d", "--name", "web", "host", "true"), "web already exists"),
        (("network", "rm", "lan"), "in use by service web"),
        (("network", "rm", "host"), "pre-defined"),
        (("node", "rm", "nosuch"), "node nosuch not found"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    docker: Docker, lan: str, arguments: tuple[str, ...], sentence: str
) -> None:
    """No field that a user sets is silently ignored."""
    result = docker.run(*arguments)
    assert result.returncode != 0
    assert sentence in result.stderr


def test_a_service_leaves_nothing_behind(docker: Docker, lan: str, cluster: YardCluster) -> None:
    """After removal no link of a task is left on any host and no address is used."""
    docker("service", "rm", "web")

    eventually(lambda: docker.used_addresses(lan) == 0, within_s=30)
    for number in (1, 2, 3):
        links = subprocess.run(
            [*Lan.enter(cluster.lan.host(number)), "ip", "-o", "link"], capture_output=True, text=True, check=True
        ).stdout
        assert "macvlan" not in links
