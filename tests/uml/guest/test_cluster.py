"""Real daemons on two namespaced hosts of a kernel that has all link kinds, driven by the docker client.

In each mode two tasks on two hosts exchange packets, or must not; and each thing that cannot work says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, addresses_of, eventually

# A kernel of one processor that shares two with everybody else.
WITHIN_S = 60.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """Two nodes."""
    cluster = YardCluster("byg", api_socket="/run/beeyard/byg/docker.sock")
    try:
        cluster.up(2)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def docker(cluster: YardCluster) -> Docker:
    """The stock client on that cluster."""
    return Docker(cluster.api_socket)


def create_network(docker: Docker, driver: str, *more: str, subnet: str = "", parent: str = "eth0") -> str:
    """A network of its own subnet; gives its name."""
    number = next(_numbers)
    name = f"net{number}"
    options = [flag for option in (f"parent={parent}", *more) for flag in ("-o", option) if option]
    docker(
        "network",
        "create",
        "-d",
        driver,
        "--scope",
        "swarm",
        "--subnet",
        subnet or f"10.88.{number}.0/24",
        *options,
        name,
    )
    return name


@contextlib.contextmanager
def a_service(docker: Docker, network: str, replicas: int = 2) -> Iterator[list[tuple[str, str, str]]]:
    """A service with a task on each node; gives (node, namespace, address) of each. Afterwards its links are gone."""
    name = f"on-{network}"
    docker(
        "service",
        "create",
        "-d",
        "--name",
        name,
        "--replicas",
        str(replicas),
        "--network",
        network,
        "host",
        "sleep",
        "1d",
    )
    try:
        tasks = eventually(
            lambda: (found := docker.running(name)) and len(found) == replicas and found, within_s=WITHIN_S
        )
        yield [
            (task["NodeID"], f"/proc/{task['Status']['ContainerStatus']['PID']}/ns/net", addresses_of(task)[0])
            for task in sorted(tasks, key=lambda task: task["NodeID"])
        ]
    finally:
        docker("service", "rm", name)
        eventually(lambda: docker.used_addresses(network) == 0, within_s=WITHIN_S)
        docker("network", "rm", network)


def reaches(netns: str, address: str, *, n_tries: int = 1) -> bool:
    """Whether a packet sent from a namespace to an address comes back."""
    command = ["nsenter", f"--net={netns}", "ping", "-n", "-c", "1", "-W", "2", address]
    return any(subprocess.run(command, capture_output=True, check=False).returncode == 0 for _ in range(n_tries))


def links_of(cluster: YardCluster, number: int) -> list[str]:
    """The links of a host by name."""
    return [path.split(":")[1].split("@")[0].strip() for path in ip(cluster, number, "-o", "link").splitlines()]


def ip(cluster: YardCluster, number: int, *arguments: str) -> str:
    """`ip` on a host."""
    command = ["ip", "-n", cluster.lan.host(number), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("ipvlan", ["ipvlan_mode=l2"]),
        ("ipvlan", ["ipvlan_mode=l2", "ipvlan_flag=private"]),
        ("ipvlan", ["ipvlan_mode=l3"]),
        ("ipvlan", ["ipvlan_mode=l3s"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_tasks_on_two_hosts_exchange_packets(docker: Docker, driver: str, options: list[str]) -> None:
    """Both ways; in the routed modes over the routes that the agents keep."""
    with a_service(docker, create_network(docker, driver, *options)) as ((one, here, address), (other, there, far)):
        assert one != other
        assert eventually(lambda: reaches(here, far), within_s=WITHIN_S)
        assert eventually(lambda: reaches(there, address), within_s=WITHIN_S)


def test_a_wrong_vlan_is_not_reached(docker: Docker, cluster: YardCluster) -> None:
    """Two VLANs with one subnet: each is a LAN of its own; its sub-interfaces come and go with the tasks."""
    networks = []
    for number, tag in ((100, "64"), (200, "128")):
        name = f"vlan{number}"
        docker(
            *("network", "create", "-d", "ipvlan", "--scope", "swarm", "--subnet", "10.99.0.0/24"),
            *(
                "--ip-range",
                f"10.99.0.{tag}/26",
                "-o",
                f"parent=eth0.{number}",
                "--label",
                f"beeyard.segment={number}",
                name,
            ),
        )
        networks.append(name)
    with a_service(docker, networks[0]) as hundred, a_service(docker, networks[1]) as two_hundred:
        (_, here, _), (_, _, same) = hundred
        (_, _, near), (_, _, wrong) = two_hundred
        assert eventually(lambda: reaches(here, same), within_s=WITHIN_S)
        assert not reaches(here, wrong)
        assert not reaches(here, near)
        for number in (1, 2):
            assert {"eth0.100", "eth0.200"} <= set(links_of(cluster, number))
    for number in (1, 2):
        eventually(lambda n=number: not {"eth0.100", "eth0.200"} & set(links_of(cluster, n)), within_s=WITHIN_S)


def test_a_vlan_that_is_there_is_used_and_stays(docker: Docker, cluster: YardCluster) -> None:
    """Whoever made it takes it away."""
    for number in (1, 2):
        ip(cluster, number, "link", "add", "link", "eth0", "name", "eth0.300", "type", "vlan", "id", "300")
        ip(cluster, number, "link", "set", "eth0.300", "up")
    with a_service(docker, create_network(docker, "macvlan", parent="eth0.300")) as ((_, here, _), (_, _, far)):
        assert eventually(lambda: reaches(here, far), within_s=WITHIN_S)
    for number in (1, 2):
        assert "eth0.300" in links_of(cluster, number)
        ip(cluster, number, "link", "delete", "eth0.300")


def waiting_reason(docker: Docker, network: str) -> str:
    """What `docker service ps` says of a service that cannot run on that network."""
    name = f"wait-{network}"
    docker("service", "create", "-d", "--name", name, "--network", network, "host", "sleep", "1d")
    try:
        shown = ("service", "ps", "--no-trunc", "--format", "{{.Error}}", name)
        return eventually(lambda: docker(*shown).strip(), within_s=WITHIN_S)
    finally:
        docker("service", "rm", name)


def test_macvlan_and_ipvlan_do_not_share_a_parent(docker: Docker) -> None:
    """The second waits, and says for what."""
    macvlan = create_network(docker, "macvlan")
    with a_service(docker, create_network(docker, "ipvlan")):
        assert "ipvlan" in waiting_reason(docker, macvlan)
    docker("network", "rm", macvlan)


def test_a_parent_that_no_node_has_is_named(docker: Docker) -> None:
    """The task waits and says for which interface."""
    for parent in ("eth7", "eth7.100"):
        network = create_network(docker, "ipvlan", parent=parent)
        assert "eth7" in waiting_reason(docker, network)
        docker("network", "rm", network)


def test_what_cannot_be_is_refused_when_it_is_created(docker: Docker) -> None:
    """`docker network create` says what would be right."""
    for options, sentence in (
        (["parent=eth0.4095"], "the number behind the dot is from 1 to 4094"),
        (["parent=eth0", "ipvlan_mode=l4"], "is not one of l2, l3, l3s"),
        (["parent=eth0", "ipvlan_flag=loud"], "is not one of bridge, private, vepa"),
        (["parent=eth0", "macvlan_mode=vepa"], "it is an option of macvlan"),
        ([], "give -o parent=INTERFACE"),
    ):
        flags = [flag for option in options for flag in ("-o", option)]
        create = ("network", "create", "-d", "ipvlan", "--scope", "swarm", "--subnet", "10.98.0.0/24")
        result = docker.run(*create, *flags, "wrong")
        assert result.returncode != 0
        assert sentence in result.stderr


def module_is_gone() -> bool:
    """Whether the kernel has no ipvlan any more; it keeps it while namespaces with such links are being taken down."""
    subprocess.run(["rmmod", "ipvlan"], check=False, capture_output=True)
    return "ipvlan " not in Path("/proc/modules").read_text()


def test_a_kernel_without_ipvlan_says_so(docker: Docker, cluster: YardCluster) -> None:
    """Without the module no node can serve such a network, and the task says so; with it again, it runs."""
    modules = Path("/usr/lib/modules") / os.uname().release
    target = modules.readlink()
    modules.unlink()
    network = create_network(docker, "ipvlan")
    try:
        eventually(module_is_gone, within_s=WITHIN_S)
        for number in (1, 2):  # what a kernel can do is looked at when an agent starts
            cluster.kill(f"agent{number}")
            cluster.start_agent(number)
        cluster.wait_for_nodes(2)
        assert "ipvlan" in waiting_reason(docker, network)
    finally:
        modules.symlink_to(target)
        docker("network", "rm", network)
