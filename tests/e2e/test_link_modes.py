"""Networks of other modes than the usual one, asked for with the stock client, on hosts that are namespaces."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.arp_watcher import arp_watcher
from tests.support.docker import WATCHED, Docker, addresses_of, eventually
from tests.support.netns import inside, ip

pytestmark = pytest.mark.netns

SERVER = ("host", "python3", "-m", "http.server", "8000")
PRIVATE, SEEN, ALONE = "10.77.0.128/28", "10.77.0.144/28", "10.77.0.160/28"
SPARE = "spare0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """Two nodes; the second has an interface without addresses beside its eth0."""
    name = f"byl{os.getpid() % 10000}x"
    cluster = YardCluster(
        name, api_socket=f"/run/beeyard/{name}/docker.sock", agent_settings={"describe_interval_s": 2.0}
    )
    try:
        cluster.up(2)
        host, outside = cluster.lan.host(2), cluster.lan.outside
        ip(f"link add {SPARE} netns {host} type veth peer name spare2 netns {outside}")
        ip(f"-n {outside} link set spare2 master lan0 up")
        ip(f"-n {host} link set {SPARE} addrgenmode none up")
        # On one LAN with eth0, it would answer for the address of eth0 too.
        with inside(f"/run/netns/{host}"), open(f"/proc/sys/net/ipv4/conf/{SPARE}/arp_ignore", "w") as setting:
            setting.write("1")
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def docker(cluster: YardCluster) -> Docker:
    return Docker(cluster.api_socket)


def a_network(docker: Docker, name: str, ip_range: str, *options: str, parent: str = "eth0") -> None:
    docker(
        *("network", "create", "-d", "macvlan", "--scope", "swarm", "--subnet", "10.77.0.0/24", "--ip-range", ip_range),
        *("--gateway", "10.77.0.1", "-o", f"parent={parent}"),
        *itertools.chain.from_iterable(("-o", option) for option in options),
        name,
    )


def fetches(netns: str, address: str) -> bool:
    """Whether a page from port 8000 of an address arrives in a namespace."""
    program = f"import urllib.request; urllib.request.urlopen('http://{address}:8000', timeout=2)"
    done = subprocess.run(
        ["nsenter", f"--net={netns}", "/usr/bin/python3", "-c", program], capture_output=True, check=False
    )
    return done.returncode == 0


def netns_of(task: dict) -> str:
    return f"/proc/{task['Status']['ContainerStatus']['PID']}/ns/net"


def host_of(cluster: YardCluster, docker: Docker, task: dict) -> str:
    """The namespace of the host that runs a task."""
    (node,) = docker.inspect("node", task["NodeID"])
    return f"/run/netns/{cluster.lan.host(int(node['Description']['Hostname'][-1]))}"


def test_private_keeps_tasks_of_one_host_apart(cluster: YardCluster, docker: Docker) -> None:
    """Four tasks on two hosts: each reaches those of the other host, and none of its own."""
    a_network(docker, "private", PRIVATE, "macvlan_mode=private")
    docker("service", "create", *WATCHED, "--name", "apart", "--replicas", "4", "--network", "private", *SERVER)
    tasks = docker.running("apart")
    assert len({task["NodeID"] for task in tasks}) == 2
    eventually(
        lambda: all(fetches(f"/run/netns/{cluster.lan.outside}", addresses_of(t)[0]) for t in tasks), within_s=30
    )
    first, *others = tasks
    for other in others:
        elsewhere = other["NodeID"] != first["NodeID"]
        assert fetches(netns_of(first), addresses_of(other)[0]) == elsewhere
    docker("service", "rm", "apart")


def test_host_access_is_for_the_networks_that_ask_for_it(cluster: YardCluster, docker: Docker) -> None:
    """A host reaches its own task and is reached by it; the LAN sees each address once; nothing stays behind."""
    a_network(docker, "seen", SEEN, "beeyard.host_access=true")
    with arp_watcher(cluster.lan, SEEN, "10.77.0.0/28") as watched:
        docker("service", "create", *WATCHED, "--name", "near", "--replicas", "2", "--network", "seen", *SERVER)
        for task in docker.running("near"):
            host, address = host_of(cluster, docker, task), addresses_of(task)[0]
            assert eventually(lambda host=host, address=address: fetches(host, address), within_s=30)
            name = os.path.basename(host)
            assert f"{address} dev bee-eth0" in ip(f"-n {name} route")
            own = next(line.split()[3] for line in ip(f"-n {name} -4 -o addr show dev eth0").splitlines()).split("/")[0]
            pinged = ["nsenter", f"--net={netns_of(task)}", "/usr/bin/python3", "-c", _REFUSED.format(own)]
            assert subprocess.run(pinged, capture_output=True, check=False).returncode == 0
        docker("service", "rm", "near")
        for number in (1, 2):
            host = cluster.lan.host(number)
            eventually(lambda host=host: "bee-" not in ip(f"-n {host} link"), within_s=30)
    assert watched["rounds"] > 0
    assert watched["conflicts"] == []


# A closed port says so: whoever hears that has reached the host.
_REFUSED = """
import socket, sys
try:
    socket.create_connection(("{}", 9), timeout=2)
except ConnectionRefusedError:
    sys.exit(0)
sys.exit(1)
"""


def test_passthru_is_for_one_task_and_never_cuts_a_host_off(cluster: YardCluster, docker: Docker) -> None:
    """On the spare interface one of two tasks runs; on eth0 none may, and the service says why."""
    a_network(docker, "alone", ALONE, "macvlan_mode=passthru", parent=SPARE)
    docker("service", "create", "-d", "--name", "one", "--replicas", "2", "--network", "alone", *SERVER)
    (task,) = eventually(lambda: docker.running("one"), within_s=90)  # once the agent has told of the interface
    assert eventually(lambda: fetches(f"/run/netns/{cluster.lan.outside}", addresses_of(task)[0]), within_s=30)
    spare = ip(f"-n {cluster.lan.host(2)} -o link show {SPARE}").split("link/ether ")[1].split()[0]
    inside = subprocess.run(
        ["nsenter", f"--net={netns_of(task)}", "ip", "-o", "link"], capture_output=True, text=True, check=True
    )
    assert f"link/ether {spare} " in inside.stdout
    assert len(docker.running("one")) == 1
    eventually(lambda: "passthru" in _says(docker, "one", "Pending"), within_s=60)
    docker("service", "rm", "one")

    a_network(docker, "greedy", "10.77.0.176/28", "macvlan_mode=passthru")
    docker("service", "create", "-d", "--name", "greedy", "--network", "greedy", *SERVER)
    said = eventually(lambda: _says(docker, "greedy", "Rejected"), within_s=30)
    assert "on it, which macvlan mode passthru would cut off" in said
    docker("service", "rm", "greedy")


def _says(docker: Docker, service: str, state: str) -> str:
    """What `service ps` says of the first task in a state."""
    shown = docker("service", "ps", "--no-trunc", "--format", "{{.CurrentState}} {{.Error}}", service)
    return next((line for line in shown.splitlines() if line.startswith(state)), "")
