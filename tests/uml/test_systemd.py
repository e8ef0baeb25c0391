"""Three hosts with systemd as one cluster: what the units promise, and what a power cut costs.

One cluster serves all tests, in their order here.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.uml_host import UmlHost
from tests.support.arp_watcher import arp_watcher
from tests.support.docker import addresses_of, eventually
from tests.support.uml_cluster import UmlCluster

# Of the LAN's 10.79.0.0/24, and the part that the tests draw from.
POOL = "10.79.0.64/27"
N_TASKS = 6
N_CREATES = 200
# Of the creates, how many are acknowledged when the power goes.
CUT_AFTER = 60
AT_ONCE = 4

# Shorter than in the unit. A process that stands still does not die of the first signal that the watchdog sends it.
WATCHDOG = "[Service]\nWatchdogSec=12\nTimeoutAbortSec=1\n"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster() -> Iterator[UmlCluster]:
    """Booted, with the service `web` on the network `lan`."""
    cluster = UmlCluster(f"byu{os.getpid() % 10000}x")
    second = list(cluster.hosts.values())[1]
    second.files["etc/systemd/system/beeyard-agent.service.d/watchdog.conf"] = WATCHDOG
    try:
        cluster.up()
        start_web(cluster)
        yield cluster
    finally:
        cluster.down()


def start_web(cluster: UmlCluster) -> None:
    """The network and the service."""
    cluster.docker(
        *("network", "create", "-d", "macvlan", "--scope", "swarm", "--subnet", "10.79.0.0/24"),
        *("--ip-range", POOL, "--gateway", "10.79.0.1", "-o", "parent=eth0", "lan"),
    )
    cluster.docker(
        *("service", "create", "-d", "--name", "web", "--replicas", str(N_TASKS), "--network", "lan"),
        *("host", "sleep", "1d"),
    )
    try:
        eventually(lambda: len(cluster.docker.running("web")) == N_TASKS, within_s=90)
    except AssertionError:
        print(cluster.docker("service", "ps", "--no-trunc", "web"))
        print(cluster.journals())
        raise


@pytest.fixture(autouse=True)
def _journals(cluster: UmlCluster, has_failed: Callable[[], bool]) -> Iterator[None]:
    """What the hosts say of a test that failed."""
    yield
    if has_failed():
        print(cluster.journals())


def on(cluster: UmlCluster, host: UmlHost) -> list[dict[str, Any]]:
    """The tasks of `web` that run on a host."""
    names = cluster.node_names()
    return [task for task in cluster.docker.running("web") if names[task["NodeID"]] == host.name]


def processes(host: UmlHost, tasks: list[dict[str, Any]]) -> dict[int, str]:
    """Each task's process on its host with the time it was started; one that has ended is not there."""
    pids = [str(task["Status"]["ContainerStatus"]["PID"]) for task in tasks]
    lines = host.run("sh", "-c", 'for p in "$@"; do cut -d" " -f1,22 /proc/$p/stat; done', "sh", *pids).stdout
    return {int(pid): started for pid, started in (line.split() for line in lines.splitlines())}


def answering(cluster: UmlCluster, addresses: list[str]) -> list[str]:
    """Those that answer a ping from outside."""
    command = [*cluster.lan.enter(cluster.lan.outside), "ping", "-n", "-c", "1", "-W", "5"]
    return [a for a in addresses if subprocess.run([*command, a], capture_output=True, check=False).returncode == 0]


@contextlib.contextmanager
def pinging(cluster: UmlCluster, address: str) -> Iterator[list[int]]:
    """Ask an address five times a second while the block runs; the list then has the numbers of what was not answered."""
    lost: list[int] = []
    command = [*cluster.lan.enter(cluster.lan.outside), "ping", "-n", "-i", "0.2", address]
    with tempfile.TemporaryFile("w+") as output:

        def answered() -> set[int]:
            return {
                int(number) for number in re.findall(r"icmp_seq=(\d+) ", os.pread(output.fileno(), 1 << 20, 0).decode())
            }

        process = subprocess.Popen(command, stdout=output)
        try:
            yield lost
            # On a busy machine some are on their way: they come before the answers to what is asked from now on.
            now = max(answered(), default=0)
            eventually(lambda: max(answered(), default=0) >= now + 5, within_s=30)
        finally:
            process.send_signal(2)
            process.wait(30)
        lost += sorted({*range(1, max(answered()))} - answered())


def main_pid(host: UmlHost) -> int:
    """The agent's process."""
    return int(host("systemctl", "show", "--value", "-p", "MainPID", "beeyard-agent"))


def test_agents_start_at_boot(cluster: UmlCluster) -> None:
    """The hosts form a cluster with nobody logged in, and each runs tasks whose addresses answer."""
    assert sorted(cluster.states()) == sorted(cluster.hosts)
    for host in cluster.hosts.values():
        assert host("systemctl", "is-active", "beeyard-agent") == "active"
        assert len(on(cluster, host)) == N_TASKS // len(cluster.hosts)
    addresses = [address for task in cluster.docker.running("web") for address in addresses_of(task)]
    assert answering(cluster, addresses) == addresses


def test_a_restart_of_the_agent_disturbs_no_task(cluster: UmlCluster) -> None:
    """`systemctl restart beeyard-agent`: the same processes, and their addresses answer throughout."""
    host = list(cluster.hosts.values())[1]
    tasks = on(cluster, host)
    before, agent = processes(host, tasks), main_pid(host)
    assert len(before) == len(tasks) == 2
    with pinging(cluster, addresses_of(tasks[0])[0]) as lost:
        host("systemctl", "restart", "beeyard-agent")
        cluster.wait_for_nodes()
    assert lost == []
    assert main_pid(host) != agent
    assert processes(host, tasks) == before
    assert [task["ID"] for task in on(cluster, host)] == [task["ID"] for task in tasks]


def test_the_watchdog_restarts_a_hung_agent(cluster: UmlCluster) -> None:
    """An agent that stands still is killed and started again; its tasks run on."""
    host = list(cluster.hosts.values())[1]
    tasks = on(cluster, host)
    before, hung = processes(host, tasks), main_pid(host)
    with pinging(cluster, addresses_of(tasks[0])[0]) as lost:
        host("kill", "-STOP", str(hung))
        eventually(lambda: main_pid(host) not in (0, hung), within_s=60)
        eventually(lambda: host.run("systemctl", "is-active", "beeyard-agent").stdout == "active\n", within_s=60)
        cluster.wait_for_nodes()
    assert lost == []
    assert processes(host, tasks) == before
    assert "Watchdog timeout" in host("journalctl", "-u", "beeyard-agent", "--no-pager")


def test_a_power_cut_of_a_host_leads_to_replacements_and_no_address_is_there_twice(cluster: UmlCluster) -> None:
    """Its tasks are replaced elsewhere under other addresses; booted again, it joins in, and nobody ever asked heard two."""
    host = list(cluster.hosts.values())[2]
    gone = on(cluster, host)
    assert gone != []
    with arp_watcher(cluster.lan, POOL, answer_wait_s=0.05) as seen:
        cluster.power_cut(host)
        eventually(lambda: cluster.states()[host.name] == "down", within_s=90)
        eventually(lambda: len(elsewhere(cluster, host)) == N_TASKS, within_s=90)
        kept = {address for task in gone for address in addresses_of(task)}
        assert not kept & {a for task in elsewhere(cluster, host) for a in addresses_of(task)}
        host.boot()
        host.wait_until_up()
        cluster.wait_for_nodes()
        running = [address for task in cluster.docker.running("web") for address in addresses_of(task)]
        assert len(set(running)) == N_TASKS
        assert sorted(answering(cluster, running)) == sorted(running)
        assert answering(cluster, sorted(kept - set(running))) == []
    assert seen["rounds"] > 2
    assert seen["conflicts"] == []


def elsewhere(cluster: UmlCluster, host: UmlHost) -> list[dict[str, Any]]:
    """The tasks of `web` that run on other hosts."""
    names = cluster.node_names()
    return [task for task in cluster.docker.running("web") if names[task["NodeID"]] != host.name]


def test_a_power_cut_of_the_managers_host_loses_nothing_acknowledged(cluster: UmlCluster) -> None:
    """Cut in the middle of 200 creates: each that was answered is there after the boot; other hosts' tasks ran on."""
    others = [host for host in cluster.hosts.values() if host is not cluster.manager_host]
    tasks = {host.name: on(cluster, host) for host in others}
    before = {host.name: processes(host, tasks[host.name]) for host in others}
    acknowledged: list[str] = []
    enough = threading.Event()

    def create(number: int) -> None:
        created = cluster.docker.run(
            "service", "create", "-d", "--name", f"s{number}", "--replicas", "0", "host", "true"
        )
        if created.returncode == 0:
            acknowledged.append(f"s{number}")
            if len(acknowledged) >= CUT_AFTER:
                enough.set()

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        creates = [pool.submit(create, number) for number in range(N_CREATES)]
        assert enough.wait(120), f"only {len(acknowledged)} creates were acknowledged"
        cluster.power_cut(cluster.manager_host)
        for each in creates:
            each.cancel()
    assert CUT_AFTER <= len(acknowledged) < N_CREATES

    cluster.manager_host.boot()
    cluster.manager_host.wait_until_up()
    cluster.wait_for_manager()
    there = set(cluster.docker("service", "ls", "--format", "{{.Name}}").split())
    assert set(acknowledged) - there == set()
    cluster.wait_for_nodes()
    assert {host.name: processes(host, tasks[host.name]) for host in others} == before
    eventually(lambda: len(cluster.docker.running("web")) == N_TASKS, within_s=90)
    addresses = [address for task in cluster.docker.running("web") for address in addresses_of(task)]
    assert len(set(addresses)) == N_TASKS
