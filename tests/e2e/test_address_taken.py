"""A machine that nobody registered has an address of the pool, on real hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.lan import run
from deploy.yard_cluster import YardCluster
from tests.support.arp_watcher import arp_watcher
from tests.support.docker import WATCHED, Docker, addresses_of, eventually

pytestmark = pytest.mark.netns

NAME = f"byt{os.getpid() % 10000}x"
TAKEN, TAKEN6 = "10.77.0.64", "fd77::40"
N_ADDRESSES = 8
COOL_DOWN_S = 4.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[YardCluster]:
    """Two hosts and a third machine on their LAN that runs no agent."""
    settings = {"cool_down_s": COOL_DOWN_S}
    cluster = YardCluster(NAME, api_socket=str(tmp_path / "docker.sock"), manager_settings=settings)
    try:
        cluster.up(2)
        cluster.lan.add_host(9)
        yield cluster
    finally:
        cluster.down()


def test_the_address_of_a_stranger_is_left_alone(cluster: YardCluster) -> None:
    """Its first task is refused with the MAC address, another address is taken at once; an operator takes it back."""
    docker = Docker(cluster.api_socket)
    stranger = cluster.lan.host(9)
    for address in (f"{TAKEN}/24", f"{TAKEN6}/64"):
        run("ip", "-n", stranger, "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
    mac = run("ip", "-n", stranger, "-o", "link", "show", "eth0").partition("link/ether ")[2].split()[0]
    docker(
        *("network", "create", "-d", "macvlan", "--scope", "swarm", "-o", "parent=eth0", "--ipv6"),
        *("--subnet", "10.77.0.0/24", "--ip-range", f"{TAKEN}/29"),
        *("--subnet", "fd77::/64", "--ip-range", f"{TAKEN6}/125", "lan"),
    )
    # A second range that nobody uses makes a round long: a late answer is then not taken for one to the next question.
    with arp_watcher(cluster.lan, f"{TAKEN}/29", "10.77.0.128/25") as watched:
        # Condition none: whatever the policy.
        create = ("service", "create", *WATCHED, "--name", "web", "--restart-condition", "none", "--network", "lan")
        docker(*create, "host", "sleep", "1d")
        (refused,) = [task for task in docker.tasks("web") if task["Status"]["State"] == "rejected"]
        # The docker command sends the two subnets in any order.
        assert sorted(addresses_of(refused)) == [TAKEN, TAKEN6]
        err = docker("service", "ps", "--no-trunc", "--filter", f"id={refused['ID']}", "--format", "{{.Error}}", "web")
        for address in (TAKEN, TAKEN6):
            assert f"address {address} is in use on eth0 by {mac}" in err
        assert [sorted(addresses_of(task)) for task in docker.running("web")] == [["10.77.0.65", "fd77::41"]]
        (network,) = docker.inspect("network", "lan")
        put_aside = network["Status"]["IPAM"]["Pools"]["lan"]["PutAside"]
        assert sorted((aside["Address"], aside["MacAddress"]) for aside in put_aside) == [(TAKEN, mac), (TAKEN6, mac)]
        warned = docker.run("info").stderr
        assert f"address {TAKEN} is in use outside the cluster by {mac}, as node {NAME}" in warned
        docker("service", "scale", "-d", f"web={N_ADDRESSES}")
        eventually(lambda: len(docker.running("web")) == N_ADDRESSES - 1, within_s=60)
        subprocess.run(["ip", "-n", stranger, "address", "flush", "dev", "eth0"], check=True)
        assert f"lan   {TAKEN}  {mac}  {NAME}" in pool_command(cluster, "list")
        assert pool_command(cluster, "release", "lan", TAKEN, TAKEN6).split() == [TAKEN, TAKEN6]
        assert "PUT ASIDE" not in pool_command(cluster, "list", "lan")
        eventually(lambda: len(docker.running("web")) == N_ADDRESSES, within_s=60, every_s=1)
    assert [TAKEN, TAKEN6] in [sorted(addresses_of(task)) for task in docker.running("web")]
    assert watched["rounds"] > 0
    assert watched["conflicts"] == []


def pool_command(cluster: YardCluster, command: str, *arguments: str) -> str:
    """What `beeyard pool` prints."""
    return run(sys.executable, "-m", "beeyard", "pool", command, "--socket", cluster.api_socket, *arguments)
