"""Many short tasks come and go on one host: nothing of them is left, and no daemon grows.

BEEYARD_CHURN_TASKS sets how many; the figure in docs/benchmarks.md is of 10,000.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.lan import run
from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, eventually
from tests.support.node_survey import NodeSurvey

pytestmark = pytest.mark.netns

N_TASKS = int(os.environ.get("BEEYARD_CHURN_TASKS", "160"))
AT_ONCE = min(N_TASKS // 4, 200)
MARKER = f"1{os.getpid():07}"
# What a daemon may gain: the memory allocator's ups and downs, at any number of tasks.
GROWTH_MIB_MAX = 24.0


@pytest.fixture(scope="module")
def node() -> Iterator[YardCluster]:
    """A manager and one agent on one host, with a pool for all tasks of several rounds."""
    name = f"byq{os.getpid() % 10000}x"
    cluster = YardCluster(name, subnet="10.76.0.0/16", api_socket=f"/run/beeyard/{name}/docker.sock")
    try:
        cluster.up(1)
        yield cluster
    finally:
        cluster.down()


def possessions(node: YardCluster, survey: NodeSurvey) -> dict[str, object]:
    """Everything on this host that a task could leave behind, counted."""
    counted: dict[str, object] = {}
    for name, daemon in node.daemons().items():
        process = psutil.Process(daemon.pid)
        kinds = Counter(_kind(os.readlink(path)) for path in Path(f"/proc/{daemon.pid}/fd").iterdir())
        counted[f"{name}: descriptors"] = dict(sorted(kinds.items()))
        counted[f"{name}: children"] = len(process.children(recursive=True))
    counted["links"] = sorted(
        line.split(":")[1].split("@")[0].strip()
        for line in run("ip", "-n", node.lan.host(1), "-o", "link").splitlines()
    )
    counted["routes"] = run("ip", "-n", node.lan.host(1), "route").splitlines()
    # Not those of other tests, which run beside this one.
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    counted["mounts"] = [line for line in mounts if node.name in line]
    counted["files"] = sorted(str(path.relative_to(survey.state)) for path in (survey.state / "process").rglob("*"))
    return counted


def _kind(target: str) -> str:
    """What a descriptor is, without its number."""
    return target.partition(":[")[0] if ":[" in target else target


def memory_mib(node: YardCluster) -> dict[str, float]:
    return {name: psutil.Process(daemon.pid).memory_info().rss / (1 << 20) for name, daemon in node.daemons().items()}


def a_round(node: YardCluster, docker: Docker, survey: NodeSurvey, number: int) -> None:
    """Start some tasks, half of which end by themselves; stop the others; wait until nothing of them is left."""
    commands = {f"short{number}": ("complete", "true"), f"long{number}": ("running", f"exec sleep {MARKER}")}
    for name, (_, command) in commands.items():
        docker(
            *("service", "create", "--detach", "--name", name, "--network", "lan", "--replicas", str(AT_ONCE // 2)),
            *("--restart-condition", "none", "host", "sh", "-c", command),
        )

    def all_came() -> bool:
        states = {name: Counter(task["Status"]["State"] for task in docker.tasks(name)) for name in commands}
        assert all(states[name][state] == AT_ONCE // 2 for name, (state, _) in commands.items()), states
        return True

    eventually(all_came, within_s=120, every_s=0.5)
    docker("service", "rm", *commands)
    eventually(lambda: survey.check([], node.get("/tasks")) is None, within_s=120, every_s=0.3)


def test_many_tasks_come_and_go_and_leave_nothing(node: YardCluster) -> None:
    """Descriptors, processes, links, routes, mounts, cgroups, files and memory are as after the first round."""
    docker, survey = Docker(node.api_socket), NodeSurvey(node, 1, MARKER)
    pool = ("--subnet", "10.76.0.0/16", "--ip-range", "10.76.64.0/18", "--gateway", "10.76.0.1", "-o", "parent=eth0")
    docker("network", "create", "-d", "macvlan", "--scope", "swarm", *pool, "lan")
    a_round(node, docker, survey, 0)
    before, memory_before = possessions(node, survey), memory_mib(node)
    for number in range(1, N_TASKS // AT_ONCE):
        a_round(node, docker, survey, number)

    def as_before() -> bool:
        after = possessions(node, survey)
        changes = [f"{key}: {before[key]} became {after[key]}" for key in before if before[key] != after[key]]
        assert not changes, changes
        return True

    eventually(as_before, within_s=30, every_s=1)
    grown = {name: round(now - memory_before[name], 1) for name, now in memory_mib(node).items()}
    print(f"{N_TASKS} tasks; memory grew by {grown} MiB from {memory_before}")
    assert max(grown.values()) < GROWTH_MIB_MAX, grown
