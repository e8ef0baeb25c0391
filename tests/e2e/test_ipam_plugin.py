"""A real IPAM plugin, a process of its own, decides addresses; whatever it does costs its own network's tasks alone."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import COOL_DOWN_S, Docker, addresses_of, eventually
from tests.support.ipam_process import IpamProcess

pytestmark = pytest.mark.netns

ROUNDS = 25
RUNS = ("host", "sleep", "1d")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IpamProcess]:
    """The plugin's process."""
    plugin = IpamProcess(tmp_path_factory.mktemp("plugins"), "racks")
    plugin.start()
    try:
        yield plugin
    finally:
        plugin.kill()


@pytest.fixture(scope="module")
def cluster(plugin: IpamProcess) -> Iterator[YardCluster]:
    """Two nodes in rack r1, one in r2; a manager that waits 2 s for a plugin."""
    name = f"byi{os.getpid() % 10000}x"
    settings = {"ipam.plugin_sockets": str(plugin.socket.parent), "ipam.deadline_s": 2.0, "cool_down_s": COOL_DOWN_S}
    cluster = YardCluster(name, api_socket=f"/run/beeyard/{name}/docker.sock", manager_settings=settings)
    try:
        cluster.up(3)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def network(docker: Docker, plugin: IpamProcess) -> str:
    """A network of the plugin, and one of the cluster's own book beside it."""
    given = ("--subnet", "10.79.0.0/24", "--gateway", "10.79.0.1", "-o", "parent=eth0")
    docker(
        *("network", "create", "-d", "macvlan", "--scope", "swarm", *given),
        *("--ipam-driver", plugin.name, "--ipam-opt", "site=lab", "far"),
    )
    own = ("--subnet", "10.80.0.0/24", "-o", "parent=eth0", "own")
    docker("network", "create", "-d", "macvlan", "--scope", "swarm", *own)
    return "far"


def create(docker: Docker, name: str, network: str, replicas: int) -> None:
    docker("service", "create", "-d", "--name", name, "--network", network, "--replicas", str(replicas), *RUNS)


def errors(docker: Docker, service: str) -> str:
    """What `docker service ps` says."""
    return docker("service", "ps", "--no-trunc", "--format", "{{.Error}}", service)


def others_start_meanwhile(docker: Docker, name: str) -> None:
    """A service on the other network runs, whatever the plugin does."""
    create(docker, name, "own", 3)
    eventually(lambda: len(docker.running(name)) == 3, within_s=30)
    docker("service", "rm", name)


def test_a_missing_plugin_is_refused_at_once(docker: Docker) -> None:
    """`network create` says where it looked."""
    given = ("--subnet", "10.81.0.0/24", "-o", "parent=eth0", "nowhere")
    result = docker.run(*("network", "create", "-d", "macvlan", "--scope", "swarm", "--ipam-driver", "nosuch", *given))
    assert "IPAM plugin nosuch: no such plugin: looked for" in result.stderr
    assert "/etc/docker/plugins/nosuch.spec" in result.stderr


def test_the_plugin_decides_by_the_label_of_the_node(docker: Docker, network: str, plugin: IpamProcess) -> None:
    """Each task's address is of its node's rack, the plugin's books name its endpoint, and inspect shows the driver."""
    create(docker, "web", network, 6)
    eventually(lambda: len(docker.running("web")) == 6, within_s=30)
    nodes = docker.inspect("node", *docker("node", "ls", "-q").split())
    racks = {node["ID"]: node["Spec"]["Labels"]["rack"] for node in nodes}
    for task in docker.running("web"):
        (address,) = addresses_of(task)
        assert (int(address.rpartition(".")[2]) >= 128) is (racks[task["NodeID"]] == "r2")
    (shown,) = docker.inspect("network", network)
    assert (shown["IPAM"]["Driver"], shown["IPAM"]["Options"]) == (plugin.name, {"site": "lab"})
    theirs = plugin.addresses()
    ours = {c["IPv4Address"].partition("/")[0]: c["EndpointID"] for c in shown["Containers"].values()}
    assert {ip: who for ip, who in theirs.items() if ip != "10.79.0.1"} == ours


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("outside", "IPAM plugin racks: gave 192.0.2.99/24, which is not in 10.79.0.0/24"),
        ("twice", "which task "),
        ("error", "IPAM plugin racks: it refused IpamDriver.RequestAddress: database is locked"),
    ],
)
def test_a_lying_plugin_costs_its_own_tasks(
    docker: Docker, network: str, plugin: IpamProcess, fault: str, reason: str
) -> None:
    """They say what it did; when it is honest again they start."""
    plugin.behave(fault)
    create(docker, "lied", network, 2)
    eventually(lambda: reason in errors(docker, "lied"), within_s=20)
    others_start_meanwhile(docker, "meanwhile")
    plugin.behave()
    eventually(lambda: len(docker.running("lied")) == 2, within_s=40)
    docker("service", "rm", "lied")


def test_a_killed_plugin_costs_its_own_tasks(docker: Docker, network: str, plugin: IpamProcess) -> None:
    """kill -9: unreachable, others start; when it is back they do."""
    plugin.kill()
    create(docker, "killed", network, 2)
    reason = "IPAM plugin racks: cannot connect to unix://"
    eventually(lambda: reason in errors(docker, "killed"), within_s=20)
    assert reason in "".join(docker("info", "--format", "{{json .Warnings}}"))
    others_start_meanwhile(docker, "meanwhile")
    plugin.start()
    eventually(lambda: len(docker.running("killed")) == 2, within_s=40)
    docker("service", "rm", "killed")


def test_a_stopped_plugin_costs_its_own_tasks(docker: Docker, network: str, plugin: IpamProcess) -> None:
    """SIGSTOP: no answer in time, others start; it goes on, and they do."""
    plugin.stop()
    create(docker, "hung", network, 20)
    eventually(lambda: "IPAM plugin racks: no answer within 2 s" in errors(docker, "hung"), within_s=20)
    others_start_meanwhile(docker, "meanwhile")
    plugin.resume()
    eventually(lambda: len(docker.running("hung")) == 20, within_s=40)
    docker("service", "rm", "hung")


def test_rounds_leave_nothing_in_the_plugins_books(docker: Docker, network: str, plugin: IpamProcess) -> None:
    """Create, scale and remove while it is slow, killed and stopped; then all is removed, and it has everything back."""
    rng = random.Random(7)
    plugin.behave("slow")
    for number in range(ROUNDS):
        if number % 5 == 0:
            create(docker, f"r{number}", network, 3)
        elif number % 5 == 4:
            docker("service", "rm", f"r{number - 4}")
        else:
            docker("service", "scale", "-d", f"r{number - number % 5}={rng.randint(0, 6)}")
        if number in (7, 16):
            plugin.kill()
            plugin.start()
            plugin.behave("slow")
        if number in (4, 12):
            plugin.stop()
        if number in (6, 14):
            plugin.resume()
    plugin.behave()
    docker("service", "rm", "web")
    eventually(lambda: docker.run("network", "rm", network).returncode == 0, within_s=40)
    eventually(lambda: plugin.addresses() == {}, within_s=90, every_s=1)
