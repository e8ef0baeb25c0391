"""Host-mode ports on real kernels: who asks a node's address reaches the task, and the task sees who asks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.lan import Lan
from deploy.yard_cluster import YardCluster
from tests.support.docker import WATCHED, Docker, eventually

pytestmark = pytest.mark.netns

# Says to each who asks, by TCP and UDP, IPv4 and IPv6, under which address it sees them and which of our tasks it is.
SERVER = """
import socket, sys, threading
port, name = int(sys.argv[1]), sys.argv[2]
def say(peer):
    return f"{peer[0].removeprefix('::ffff:')} {name}".encode()
def tcp():
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, peer = server.accept()
        connection.sendall(say(peer))
        connection.close()
def udp(family, anywhere):
    server = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind((anywhere, port))
    while True:
        _, peer = server.recvfrom(99)
        server.sendto(say(peer), peer)
threading.Thread(target=udp, args=(socket.AF_INET, "0.0.0.0")).start()
threading.Thread(target=udp, args=(socket.AF_INET6, "::")).start()
tcp()
"""
ASK = """
import socket, sys
kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
client = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
client.settimeout(3)
if kind == "udp":
    client.bind(("", int(sys.argv[4])))
client.connect((host, port))
if kind == "udp":
    client.send(b"?")
print(client.recv(99).decode())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    name = f"bpp{os.getpid() % 10000}x"
    cluster = YardCluster(
        name,
        api_socket=f"/run/beeyard/{name}/docker.sock",
        subnet6="fd77:b::/64",
        agent_settings={"describe_interval_s": 2.0},
    )
    try:
        cluster.up(2)
        yield cluster
    finally:
        cluster.down()


def ask(netns: str, host: str, port: int, *, kind: str = "tcp", from_port: int = 0) -> str:
    """What a server says to a client in a namespace; "" when there is no answer."""
    command = [*Lan.enter(netns), sys.executable, "-c", ASK, kind, host, str(port), str(from_port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip()


def create(docker: Docker, name: str, *options: str, target: int = 8000) -> None:
    docker(
        "service",
        "create",
        *WATCHED,
        "--name",
        name,
        "--stop-grace-period",
        "1s",
        *options,
        "host",
        "python3",
        "-c",
        SERVER,
        str(target),
        name,
    )


def host_of(cluster: YardCluster, docker: Docker, task: dict[str, Any]) -> int:
    """The number of the host on which a task runs."""
    (node,) = docker.inspect("node", task["NodeID"])
    return int(node["Description"]["Hostname"].removeprefix(cluster.name))


def published(task: dict[str, Any]) -> list[int]:
    return [port["PublishedPort"] for port in task["Status"]["PortStatus"].get("Ports", ())]


def rules(cluster: YardCluster, number: int) -> str:
    """What nftables has on a host."""
    command = [*Lan.enter(cluster.lan.host(number)), "nft", "list", "ruleset"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def port_links(cluster: YardCluster, number: int) -> list[str]:
    listed = subprocess.run(
        ["ip", "-n", cluster.lan.host(number), "-o", "link"], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r": (byp\d+)@", listed)


def setting(cluster: YardCluster, number: int, name: str) -> str:
    command = [*Lan.enter(cluster.lan.host(number)), "cat", f"/proc/sys/net/{name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_real_kernel_conforms() -> None:
    name = f"bpc{os.getpid() % 10000}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        command = [*Lan.enter(name), sys.executable, "-m", "tests.support.port_conformance"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for netns in (name, "bpc-one", "bpc-two"):
            subprocess.run(["ip", "netns", "del", netns], check=False, capture_output=True)


@pytest.fixture(scope="module")
def docker(cluster: YardCluster) -> Docker:
    return Docker(cluster.api_socket)


@pytest.fixture(scope="module")
def web(cluster: YardCluster, docker: Docker) -> dict[int, dict[str, Any]]:
    """A service with a macvlan link, TCP port 8080 and UDP port 8053 of each node; its tasks by host."""
    docker(
        *("network", "create", "-d", "macvlan", "--scope", "swarm", "--subnet", "10.77.0.0/24"),
        *("--ip-range", "10.77.0.64/26", "--gateway", "10.77.0.1", "-o", "parent=eth0", "lan"),
    )
    tcp, udp = "mode=host,target=8000,published=8080", "mode=host,target=8000,published=8053,protocol=udp"
    create(docker, "web", "--replicas", "2", "--network", "lan", "--publish", tcp, "-p", udp)
    return {host_of(cluster, docker, task): task for task in docker.running("web")}


def test_ports_of_nodes_lead_to_tasks_and_keep_the_clients_address(
    cluster: YardCluster, docker: Docker, web: dict[int, dict[str, Any]]
) -> None:
    outside, gateway, gateway6 = cluster.lan.outside, str(cluster.lan.subnet[1]), str(cluster.lan.subnet6[1])
    assert sorted(web) == [1, 2]
    assert "*:8080->8000/tcp" in docker("service", "ps", "--format", "{{.Ports}}", "web")
    for number in (1, 2):
        address, address6 = cluster.lan.address(number), str(cluster.lan.subnet6[10 + number])
        assert eventually(lambda a=address: ask(outside, a, 8080), within_s=20) == f"{gateway} web"
        assert ask(outside, address, 8053, kind="udp") == f"{gateway} web"
        assert ask(outside, address6, 8080) == f"{gateway6} web"
        assert ask(outside, address6, 8053, kind="udp") == f"{gateway6} web"
        # From the node itself.
        assert ask(cluster.lan.host(number), address, 8080) == f"{address} web"
        assert setting(cluster, number, "ipv4/conf/eth0/forwarding") == "1"
        assert setting(cluster, number, "ipv4/ip_forward") == "0"
    # Past the ports, from the LAN, as ever.
    own = web[1]["NetworksAttachments"][0]["Addresses"][0].partition("/")[0]
    assert ask(outside, own, 8000) == f"{gateway} web"


def test_a_third_replica_finds_no_node_with_the_port_free(docker: Docker, web: dict[int, dict[str, Any]]) -> None:
    docker("service", "scale", "-d", "web=3")

    def waiting() -> list[str]:
        pending = [task for task in docker.tasks("web") if task["Status"]["State"] == "pending"]
        return [task["Status"]["Err"] for task in pending if "Err" in task["Status"]]

    assert eventually(waiting, within_s=20) == ["no suitable node (host-mode port already in use on 2 nodes)"]
    docker("service", "scale", "-d", "web=2")


def test_a_port_is_chosen_for_a_task_without_any_network(cluster: YardCluster, docker: Docker) -> None:
    create(docker, "any", "--publish", "mode=host,target=8000")
    (task,) = docker.running("any")
    (port,) = published(task)
    assert 30000 <= port <= 32767
    address = cluster.lan.address(host_of(cluster, docker, task))
    answer = eventually(lambda: ask(cluster.lan.outside, address, port), within_s=20)
    assert answer == f"{cluster.lan.subnet[1]} any"
    docker("service", "rm", "any")


def test_ports_outlive_the_agent_move_with_an_update_and_go_with_the_task(
    cluster: YardCluster, docker: Docker, web: dict[int, dict[str, Any]]
) -> None:
    outside, answer, (one, two) = cluster.lan.outside, f"{cluster.lan.subnet[1]} web", map(cluster.lan.address, (1, 2))
    # The task with the chosen port may still be on its way out.
    eventually(lambda: len(port_links(cluster, 1) + port_links(cluster, 2)) == 2, within_s=30)
    before = rules(cluster, 2)
    cluster.kill("agent2", signal.SIGKILL)
    assert ask(outside, two, 8080) == answer
    cluster.start_agent(2)
    cluster.wait_for_nodes(2)
    assert ask(outside, two, 8080) == answer
    eventually(lambda: len(docker.running("web")) == 2, within_s=30)
    assert rules(cluster, 2) == before
    (table,) = re.findall(r"table inet (beeyard-\w+)", before)
    subprocess.run([*Lan.enter(cluster.lan.host(2)), "nft", "flush", "chain", "inet", table, "forward"], check=True)
    eventually(lambda: rules(cluster, 2) == before, within_s=30)

    # A client that kept sending reaches the new task.
    assert ask(outside, one, 8053, kind="udp", from_port=7777) == answer
    docker(
        *("service", "update", "--publish-rm", "mode=host,target=8000"),
        *("--publish-add", "mode=host,target=8000,published=9090", "web"),
    )
    assert eventually(lambda: ask(outside, one, 9090), within_s=30) == answer
    assert ask(outside, one, 8080) == ""
    (shown,) = docker.inspect("service", "web")
    assert {port["PublishedPort"] for port in shown["Endpoint"]["Ports"]} == {8053, 9090}
    assert eventually(lambda: ask(outside, one, 8053, kind="udp", from_port=7777), within_s=30) == answer

    docker("service", "rm", "web")
    for number in (1, 2):
        eventually(lambda n=number: port_links(cluster, n) == [], within_s=30)
        assert rules(cluster, number) == ""
        assert setting(cluster, number, "ipv4/conf/eth0/forwarding") == "0"


def test_a_port_that_something_else_has_is_not_given_away(cluster: YardCluster, docker: Docker) -> None:
    foreign = [
        subprocess.Popen([*Lan.enter(cluster.lan.host(number)), sys.executable, "-c", SERVER, "8081", "foreign"])
        for number in (1, 2)
    ]
    try:
        for number in (1, 2):
            address = cluster.lan.address(number)
            eventually(lambda a=address: ask(cluster.lan.outside, a, 8081), within_s=20)
        # Whether the agents have said so already or find out when they try the port: no task runs, and says why.
        options = ("-d", "--restart-delay", "1s", "--publish", "mode=host,target=8000,published=8081")
        create(docker, "late", *options)
        in_use = re.compile(
            r"port 8081/tcp of this node is in use by python\S* \(pid \d+\)|host-mode port already in use"
        )
        eventually(lambda: in_use.search(json.dumps(docker.tasks("late"))), within_s=30)
        assert docker.running("late") == []
    finally:
        for process in foreign:
            process.kill()
            process.wait()
    eventually(lambda: docker.running("late"), within_s=90, every_s=1)
    docker("service", "rm", "late")


def test_a_purge_takes_published_ports_away(cluster: YardCluster, docker: Docker) -> None:
    create(docker, "left", "--constraint", f"node.hostname=={cluster.name}2", "--publish", "mode=host,target=8000")
    cluster.kill("agent2", signal.SIGKILL)
    assert port_links(cluster, 2) != []
    state_dir = str(cluster.state / "agent2")
    command = [*Lan.enter(cluster.lan.host(2)), sys.executable, "-m", "beeyard", "join", "--purge"]
    subprocess.run([*command, "--state-dir", state_dir], check=True, capture_output=True)
    assert (rules(cluster, 2), setting(cluster, 2, "ipv4/conf/eth0/forwarding")) == ("", "0")
    eventually(lambda: port_links(cluster, 2) == [], within_s=10)
