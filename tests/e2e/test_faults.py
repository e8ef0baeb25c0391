"""A cluster whose daemons are killed: nothing acknowledged is lost, and no address is on the LAN twice."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.arp_watcher import arp_watcher
from tests.support.docker import COOL_DOWN_S, RACK_RANGES, WATCHED, Docker, addresses_of, eventually

pytestmark = pytest.mark.netns

SLEEPER = ("host", "sleep", "1d")
DOWN_AFTER_S = 15.0
RESTART_DELAY_S = 5.0
REACTION_S = 5.0
# By then the replacements run, and addresses that had been freed would have rested.
AWAY_S = DOWN_AFTER_S + RESTART_DELAY_S + 2 * COOL_DOWN_S


@pytest.fixture(scope="module")
def web(docker: Docker, lan: str) -> Iterator[str]:
    """Six tasks with an address each."""
    docker("service", "create", *WATCHED, "--name", "web", "--replicas", "6", "--network", lan, *SLEEPER)
    yield "web"
    docker("service", "rm", "web")


def node_of(docker: Docker, hostname: str) -> str:
    return next(
        node["ID"]
        for node in docker.inspect("node", *docker("node", "ls", "-q").split())
        if node["Description"]["Hostname"] == hostname
    )


def tasks_on(docker: Docker, service: str, node_id: str) -> dict[str, dict[str, Any]]:
    return {task["ID"]: task for task in docker.tasks(service) if task.get("NodeID") == node_id}


def test_tasks_outlive_their_agent(cluster: YardCluster, docker: Docker, web: str) -> None:
    """An agent that is killed for ten seconds finds its tasks again: nothing moves, no process is replaced."""
    victim = node_of(docker, cluster.lan.host(2))
    before = {task["ID"]: task["Status"]["ContainerStatus"]["PID"] for task in docker.running(web)}
    cluster.kill("agent2", signal.SIGKILL)
    time.sleep(10)
    for pid in (before[task_id] for task_id in tasks_on(docker, web, victim) if task_id in before):
        assert YardCluster.process_exists(pid)
    cluster.start_agent(2)
    eventually(lambda: docker.inspect("node", victim)[0]["Status"]["State"] == "ready", within_s=20)
    time.sleep(3)
    assert {task["ID"]: task["Status"]["ContainerStatus"]["PID"] for task in docker.running(web)} == before


def test_a_node_that_is_away_is_replaced_and_cleans_up_when_it_returns(
    cluster: YardCluster, docker: Docker, web: str
) -> None:
    """Replacements take other nodes and addresses of their racks; the old ones come back only when their links are down."""
    victim = node_of(docker, cluster.lan.host(2))
    lost = {
        task_id: task for task_id, task in tasks_on(docker, web, victim).items() if task["Status"]["State"] == "running"
    }
    held = {address for task in lost.values() for address in addresses_of(task)}
    assert lost
    with arp_watcher(cluster.lan, *RACK_RANGES.values()) as seen:
        cluster.kill("agent2", signal.SIGKILL)
        killed_at = time.monotonic()
        eventually(
            lambda: len([t for t in docker.running(web) if t["NodeID"] != victim]) == 6,
            within_s=DOWN_AFTER_S + RESTART_DELAY_S + REACTION_S,
        )
        now = {address for task in docker.running(web) if task["NodeID"] != victim for address in addresses_of(task)}
        assert now & held == set()
        told = [task["Status"].get("Err", "") for task in docker.inspect("task", *lost)]
        assert all("is down and keeps 10.77.0." in err for err in told), told
        time.sleep(max(0.0, AWAY_S - (time.monotonic() - killed_at)))
        assert docker.used_addresses("lan") == 6 + len(held)

        cluster.start_agent(2)
        eventually(
            lambda: all(task["Status"]["State"] == "shutdown" for task in docker.inspect("task", *lost)), within_s=30
        )
        assert docker.used_addresses("lan") == 6
    assert seen["rounds"] > 5
    assert seen["conflicts"] == []
    for task in lost.values():
        assert not YardCluster.process_exists(task["Status"]["ContainerStatus"]["PID"])


def test_a_manager_killed_during_creates_loses_nothing_acknowledged(
    cluster: YardCluster, docker: Docker, lan: str
) -> None:
    """At twenty moments of `service create` the manager is killed; afterwards all that was acknowledged runs, once."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    acknowledged = []
    for number in range(20):
        name = f"burst{number}"
        client = docker.popen("service", "create", "-d", "--name", name, "--replicas", "2", "--network", lan, *SLEEPER)
        time.sleep(draw.uniform(0.0, 0.25))
        cluster.kill("manager", signal.SIGKILL)
        client.communicate(timeout=30)
        if client.returncode == 0:
            acknowledged.append(name)
        cluster.start_manager()
        cluster.wait_for_api()
    listed = docker("service", "ls", "--format", "{{.Name}}").split()
    assert [name for name in acknowledged if name not in listed] == []
    bursts = [name for name in listed if name.startswith("burst")]

    def settled() -> bool:
        running = [task for name in bursts for task in docker.running(name)]
        addresses = [address for task in running for address in addresses_of(task)]
        used = docker.used_addresses(lan)
        others = len(docker.running("web"))
        assert (len(running), len(set(addresses)), used) == (2 * len(bursts), 2 * len(bursts), 2 * len(bursts) + others)
        return True

    eventually(settled, within_s=90, every_s=1)
    if bursts:
        docker("service", "rm", *bursts)
    eventually(lambda: len(docker.inspect("network", lan)[0]["Containers"]) == len(docker.running("web")), within_s=40)
