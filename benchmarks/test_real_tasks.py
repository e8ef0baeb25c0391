"""A manager and 50 real agents, each a namespace of its own: short real tasks from `service create` to their reported
end, and the replacement of what ran on a node whose agent died.

    ./yard bench real_tasks --json FILE

Every task is a process of this machine with namespaces, a cgroup and a shim of its own, and with `lan` also a macvlan link
whose address was probed on the LAN. All of it shares this machine's cores, so beside the wall rate stands the CPU time that
one task costs manager, agents, and the processes that agents start. The state of all is on a file system of its own
(`own_disk`). Needs root.
BEEYARD_BENCH_AGENTS and BEEYARD_BENCH_TASKS change the sizes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from benchmarks.own_disk import own_disk
from deploy.yard_cluster import YardCluster

N_AGENTS = int(os.environ.get("BEEYARD_BENCH_AGENTS", "50"))
N_TASKS = int(os.environ.get("BEEYARD_BENCH_TASKS", "1000"))
PATIENCE_S = 120.0
POLL_S = 0.25


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """All agents in session, and a network whose pool is large enough."""
    cluster = YardCluster("byr", subnet="10.76.0.0/16", subnet6="fd76::/64", api_socket="/run/beeyard/byr/docker.sock")
    with own_disk(cluster.state.with_name("byr-disk")) as disk, contextlib.ExitStack() as stack:
        cluster.state = disk / "cluster"
        stack.callback(cluster.down)
        cluster.up(N_AGENTS)
        pool = {"Subnet": "10.76.0.0/16", "IPRange": "10.76.64.0/18", "Gateway": "10.76.0.1"}
        cluster.call(
            "POST",
            "/networks/create",
            {
                "Name": "lan",
                "Driver": "macvlan",
                "Scope": "swarm",
                "Options": {"parent": "eth0"},
                "IPAM": {"Driver": "default", "Config": [pool]},
            },
        )
        yield cluster


def create(cluster: YardCluster, name: str, networks: list[str], command: list[str], replicas: int, again: str) -> None:
    """A service; `again`: its restart condition."""
    cluster.call(
        "POST",
        "/services/create",
        {
            "Name": name,
            "TaskTemplate": {
                "ContainerSpec": {"Image": "host", "Args": command},
                "RestartPolicy": {"Condition": again},
                "Networks": [{"Target": network} for network in networks],
            },
            "Mode": {"Replicated": {"Replicas": replicas}},
        },
    )


def tasks_of(cluster: YardCluster, name: str) -> list[dict[str, Any]]:
    filters = json.dumps({"service": {name: True}})
    found: list[dict[str, Any]] = cluster.get(f"/tasks?filters={filters}".replace('"', "%22").replace(" ", ""))
    return found


def wait_for(cluster: YardCluster, name: str, state: str, n_tasks: int = N_TASKS, not_on: str = "") -> None:
    """Until so many tasks of a service are in a state, those of one node not counted."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        tasks = [task for task in tasks_of(cluster, name) if not not_on or task.get("NodeID") != not_on]
        states = Counter(task["Status"]["State"] for task in tasks)
        if states[state] >= n_tasks:
            return
        assert time.monotonic() < deadline, states
        time.sleep(POLL_S)


def cpu_s(cluster: YardCluster) -> dict[str, float]:
    """CPU seconds so far of the manager, of the agents, and of all that the agents started."""
    spent: Counter[str] = Counter()
    for name, daemon in cluster.daemons().items():
        process = psutil.Process(daemon.pid)
        own = process.cpu_times()
        spent["manager" if name == "manager" else "agents"] += own.user + own.system
        for child in process.children():
            times = child.cpu_times()
            spent["tasks"] += times.user + times.system + times.children_user + times.children_system
    return dict(spent)


@pytest.mark.parametrize("networks", [[], ["lan"]], ids=["loopback", "macvlan"])
def test_short_tasks(benchmark: Any, cluster: YardCluster, networks: list[str]) -> None:
    """Tasks that end at once: a second, created, placed, prepared, run, ended, undone and reported."""
    name = f"short{len(networks)}"
    before = cpu_s(cluster)
    began_s = time.time()

    def run() -> None:
        create(cluster, name, networks, ["true"], N_TASKS, "none")
        wait_for(cluster, name, "complete")

    benchmark.pedantic(run, rounds=1)
    after = cpu_s(cluster)
    ended = [task["Status"]["Timestamp"] for task in tasks_of(cluster, name)]
    benchmark.extra_info.update(
        agents=N_AGENTS,
        tasks=N_TASKS,
        tasks_per_s=round(N_TASKS / (time.time() - began_s)),
        last_end=max(ended),
        **{f"{who}_cpu_ms_per_task": round((after[who] - before[who]) / N_TASKS * 1e3, 2) for who in after},
    )
    print(json.dumps(benchmark.extra_info))
    cluster.call("DELETE", f"/services/{name}")


def test_replacement(benchmark: Any, cluster: YardCluster) -> None:
    """An agent is killed for good: until its node is known to be down, and from then until all its tasks run elsewhere."""
    n_tasks = 4 * N_AGENTS
    create(cluster, "long", ["lan"], ["sleep", "infinity"], n_tasks, "any")
    wait_for(cluster, "long", "running", n_tasks)
    victim = f"agent{N_AGENTS}"
    node = next(n for n in cluster.get("/nodes") if n["Description"]["Hostname"] == f"{cluster.name}{N_AGENTS}")
    n_lost = sum(task.get("NodeID") == node["ID"] for task in tasks_of(cluster, "long"))
    times: dict[str, float] = {}

    def lose_and_replace() -> None:
        cluster.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        while cluster.get(f"/nodes/{node['ID']}")["Status"]["State"] != "down":
            assert time.monotonic() < killed_s + PATIENCE_S
            time.sleep(0.05)
        down_s = time.monotonic()
        wait_for(cluster, "long", "running", n_tasks, not_on=node["ID"])
        times.update(until_down_s=round(down_s - killed_s, 1), until_replaced_s=round(time.monotonic() - down_s, 2))

    benchmark.pedantic(lose_and_replace, rounds=1)
    benchmark.extra_info.update(agents=N_AGENTS, replaced=n_lost, **times)
    print(json.dumps(benchmark.extra_info))
