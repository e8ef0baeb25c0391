"""Real daemons on two namespaced hosts of a kernel that has all link kinds, driven by the docker client.

In each mode two tasks on two hosts exchange packets, or must not; and each thing that cannot work says so. What can run
side by side is started at once, and looked at by one test after the other, in their order here.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, addresses_of, eventually
from tests.support.worked_example import Reader

# A kernel of one processor that shares two with everybody else.
WITHIN_S = 90.0
# (node, namespace, address) of each task of a service, by node.
Tasks = list[tuple[str, str, str]]
# An ipvlan parent has one mode and one flag: each that runs beside the others has a parent of its own.
SIDE_BY_SIDE = {
    "l2": ("ipvlan", "eth0.11", "ipvlan_mode=l2"),
    "private": ("ipvlan", "eth0.12", "ipvlan_mode=l2", "ipvlan_flag=private"),
    "l3": ("ipvlan", "eth0", "ipvlan_mode=l3"),
    "there": ("macvlan", "eth0.300"),
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> YardCluster:
    """Two nodes, both with a VLAN that is there already. Their kernel ends with these tests, and takes all with it."""
    # An agent starts slowly here: not long enough to be taken for dead.
    cluster = YardCluster("byg", api_socket="/run/beeyard/byg/docker.sock", manager_settings={"heartbeat_s": 12.0})
    cluster.up(2)
    for number in (1, 2):
        ip(cluster, number, "link", "add", "link", "eth0", "name", "eth0.300", "type", "vlan", "id", "300")
        ip(cluster, number, "link", "set", "eth0.300", "up")
    return cluster


@pytest.fixture(scope="module")
def docker(cluster: YardCluster) -> Docker:
    """The stock client on that cluster."""
    return Docker(cluster.api_socket)


@pytest.fixture(scope="module")
def running(docker: Docker) -> dict[str, Tasks]:
    """A service with a task on each node for each of `SIDE_BY_SIDE`, and for two VLANs with one subnet."""
    for name, (driver, parent, *options) in SIDE_BY_SIDE.items():
        create_network(docker, driver, *options, parent=parent, name=name)
    for tag, first in ((100, 64), (200, 128)):
        more = ("--ip-range", f"10.99.0.{first}/26", "--label", f"beeyard.segment={tag}")
        create_network(docker, "ipvlan", parent=f"eth0.{tag}", name=f"vlan{tag}", subnet="10.99.0.0/24", more=more)
    names = [*SIDE_BY_SIDE, "vlan100", "vlan200"]
    for name in names:
        create_service(docker, name)
    return {name: tasks_of(docker, name) for name in names}


def create_network(
    docker: Docker,
    driver: str,
    *options: str,
    parent: str = "eth0",
    name: str = "",
    subnet: str = "",
    more: tuple[str, ...] = (),
) -> str:
    """A network, of a subnet of its own when none is told; gives its name."""
    number = next(_numbers)
    name = name or f"net{number}"
    flags = [flag for option in (f"parent={parent}", *options) for flag in ("-o", option)]
    subnet = subnet or f"10.88.{number}.0/24"
    docker("network", "create", "-d", driver, "--scope", "swarm", "--subnet", subnet, *more, *flags, name)
    return name


def create_service(docker: Docker, network: str) -> None:
    """A service called after its network."""
    docker(
        *("service", "create", "-d", "--name", network, "--replicas", "2", "--network", network),
        *("host", "sleep", "1d"),
    )


def tasks_of(docker: Docker, name: str) -> Tasks:
    """The tasks of a service, once both run."""
    tasks = eventually(lambda: len(found := docker.running(name)) == 2 and found, within_s=WITHIN_S)
    return [
        (task["NodeID"], f"/proc/{task['Status']['ContainerStatus']['PID']}/ns/net", addresses_of(task)[0])
        for task in sorted(tasks, key=lambda task: task["NodeID"])
    ]


def remove(docker: Docker, *names: str) -> None:
    """Remove services and their networks, and return when their links are gone."""
    docker("service", "rm", *names)
    for name in names:
        eventually(lambda name=name: docker.used_addresses(name) == 0, within_s=WITHIN_S)
    docker("network", "rm", *names)


def reaches(netns: str, address: str, *, wait_s: int = 2) -> bool:
    """Whether a packet sent from a namespace to an address comes back."""
    command = ["nsenter", f"--net={netns}", "ping", "-n", "-c", "1", "-W", str(wait_s), address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def links_of(cluster: YardCluster, number: int) -> list[str]:
    """The links of a host by name."""
    return [path.split(":")[1].split("@")[0].strip() for path in ip(cluster, number, "-o", "link").splitlines()]


def ip(cluster: YardCluster, number: int, *arguments: str) -> str:
    """`ip` on a host."""
    command = ["ip", "-n", cluster.lan.host(number), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exchange_packets(tasks: Tasks) -> None:
    """Two tasks are on two nodes and reach each other both ways."""
    (one, here, address), (other, there, far) = tasks
    assert one != other
    assert eventually(lambda: reaches(here, far), within_s=WITHIN_S)
    assert eventually(lambda: reaches(there, address), within_s=WITHIN_S)


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_tasks_on_two_hosts_exchange_packets(running: dict[str, Tasks], name: str) -> None:
    """Both ways; in the routed mode over the routes that the agents keep."""
    exchange_packets(running[name])


def test_a_wrong_vlan_is_not_reached(running: dict[str, Tasks], cluster: YardCluster) -> None:
    """Two VLANs with one subnet: each is a LAN of its own."""
    (_, here, _), (_, _, same) = running["vlan100"]
    (_, _, near), (_, _, wrong) = running["vlan200"]
    assert eventually(lambda: reaches(here, same), within_s=WITHIN_S)
    assert not reaches(here, wrong)
    assert not reaches(here, near)
    for number in (1, 2):
        assert {"eth0.11", "eth0.12", "eth0.100", "eth0.200", "eth0.300"} <= set(links_of(cluster, number))


def test_what_cannot_run_waits_and_says_for_what(docker: Docker, running: dict[str, Tasks]) -> None:
    """A macvlan on a parent that ipvlan has, and parents that no node has."""
    waiting = [
        (create_network(docker, "macvlan"), "ipvlan"),
        (create_network(docker, "ipvlan", parent="eth7"), "eth7"),
        (create_network(docker, "ipvlan", parent="eth7.100"), "eth7"),
    ]
    for name, _ in waiting:
        create_service(docker, name)
    for name, word in waiting:
        waits_for(docker, name, word)
    remove(docker, *(name for name, _ in waiting))


def waits_for(docker: Docker, name: str, word: str) -> None:
    """Return when `docker service ps` says of a service that it cannot run for a reason with this word."""
    shown = ("service", "ps", "--no-trunc", "--format", "{{.Error}}", name)

    def says_so() -> bool:
        said = docker(*shown)
        assert word in said, said
        return True

    eventually(says_so, within_s=WITHIN_S)


def test_sub_interfaces_go_with_the_tasks_and_those_of_others_stay(
    docker: Docker, cluster: YardCluster, running: dict[str, Tasks]
) -> None:
    """Whoever made it takes it away."""
    remove(docker, *running)
    for number in (1, 2):
        eventually(
            lambda n=number: [name for name in links_of(cluster, n) if "." in name] == ["eth0.300"], within_s=WITHIN_S
        )


def test_the_parent_takes_another_mode_when_it_is_free(docker: Docker, running: dict[str, Tasks]) -> None:
    """eth0 had links of mode l3: now l3s."""
    name = create_network(docker, "ipvlan", "ipvlan_mode=l3s")
    create_service(docker, name)
    exchange_packets(tasks_of(docker, name))
    remove(docker, name)


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


@pytest.mark.parametrize(
    "example", ["Example 2: one subnet on two VLANs", "Example 3: a routed network and fixed addresses"]
)
def test_an_example_of_the_guide_runs_as_written(cluster: YardCluster, tmp_path: Path, example: str) -> None:
    """Every command of `docs/networks.md` works, and prints what the page says."""
    Reader(cluster, tmp_path).follow(example, within_s=WITHIN_S)


def test_a_kernel_without_ipvlan_says_so(docker: Docker, cluster: YardCluster) -> None:
    """Without the module no node can serve such a network, and the task says so."""
    modules = Path("/usr/lib/modules") / os.uname().release
    target = modules.readlink()
    modules.unlink()
    try:
        eventually(module_is_gone, within_s=WITHIN_S)
        for number in (1, 2):  # what a kernel can do is looked at when an agent starts
            cluster.kill(f"agent{number}")
            cluster.start_agent(number)
        name = create_network(docker, "ipvlan")
        create_service(docker, name)
        waits_for(docker, name, "ipvlan")
    finally:
        modules.symlink_to(target)
