"""A real manager process (TLS, SQLite with full sync) and 1,000 light agents: from `service create` to acknowledged RUNNING.

    ./yard bench end_to_end --json FILE

What counts is CPU time per task, since machines share cores; the wall rate stands beside it. The agents are one process
(`benchmarks/agent_swarm.py`) that runs nothing, so this is the price of deciding, storing, telling and hearing.
BEEYARD_BENCH_AGENTS and BEEYARD_BENCH_TASKS change the sizes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

N_AGENTS = int(os.environ.get("BEEYARD_BENCH_AGENTS", "1000"))
N_TASKS = int(os.environ.get("BEEYARD_BENCH_TASKS", "10000"))
START_S_MAX = 300.0
IDLE_S = 10.0
ROOT = Path(__file__).parents[1]


class UnixHttp(http.client.HTTPConnection):
    """The Docker API over its socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))

    def call(self, method: str, target: str, body: object = None) -> Any:
        self.close()  # the server hangs up on idle clients, and a run takes longer than that
        self.request(method, target, json.dumps(body) if body is not None else None)
        reply = self.getresponse()
        data = reply.read()
        assert reply.status < 300, (reply.status, data)
        return json.loads(data) if data else None


class Cluster:
    """The two processes."""

    def __init__(self, manager: subprocess.Popen[bytes], swarm: subprocess.Popen[str], api: UnixHttp) -> None:
        self.manager = psutil.Process(manager.pid)
        self.swarm = swarm
        self.swarm_process = psutil.Process(swarm.pid)
        self.api = api

    def wait_for(self, key: str, at_least: int) -> dict[str, Any]:
        """The swarm's first word that a count has been reached."""
        deadline = time.monotonic() + START_S_MAX
        assert self.swarm.stdout is not None
        while time.monotonic() < deadline and (line := self.swarm.stdout.readline()):
            said: dict[str, Any] = json.loads(line)
            if said.get(key, 0) >= at_least:
                return said
        raise AssertionError(f"{key} did not reach {at_least}")

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of manager and swarm so far."""
        manager, swarm = (process.cpu_times() for process in (self.manager, self.swarm_process))
        return manager.user + manager.system, swarm.user + swarm.system

    def create(self, name: str, replicas: int) -> None:
        self.api.call(
            "POST",
            "/v1.50/services/create",
            {
                "Name": name,
                "TaskTemplate": {
                    "ContainerSpec": {"Image": "host", "Args": ["sleep", "infinity"]},
                    "Resources": {"Reservations": {"NanoCPUs": 10**8, "MemoryBytes": 64 << 20}},
                },
                "Mode": {"Replicated": {"Replicas": replicas}},
            },
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A manager with all agents in session."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        api_path = tmp_path / "docker.sock"
        options = {"--state-dir": tmp_path / "state", "--listen": address, "--api-socket": api_path}
        arguments = [str(part) for option in options.items() for part in option]
        manager = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "beeyard", "manage", "--log-level", "error", *arguments], stderr=log, cwd=ROOT
            )
        )
        stack.callback(manager.send_signal, signal.SIGTERM)
        wait_until(lambda: listens(api_path))
        api = UnixHttp(api_path)
        stack.callback(api.close)
        token = api.call("GET", "/v1.50/swarm")["JoinTokens"]["Worker"]
        command = ["-m", "benchmarks.agent_swarm", "--manager", f"tcp://{address}", "--token", token]
        swarm = stack.enter_context(
            subprocess.Popen(
                [sys.executable, *command, "--agents", str(N_AGENTS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
            )
        )
        stack.callback(swarm.kill)
        cluster = Cluster(manager, swarm, api)
        cluster.wait_for("agents", N_AGENTS)
        yield cluster
        assert swarm.poll() is None, (tmp_path / "log").read_text()[-2000:]


def listens(path: Path) -> bool:
    """Whether somebody accepts connections there; the file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_created_to_running(benchmark: Any, cluster: Cluster) -> None:
    """Tasks a second from one `service create`, the CPU both sides spend on one, and the balance of the result."""
    idle_from = cluster.cpu_s()
    time.sleep(IDLE_S)
    idle_to = cluster.cpu_s()

    began_s, before = time.time(), cluster.cpu_s()
    rss_before = cluster.manager.memory_info().rss
    said: dict[str, Any] = {}

    def create_and_wait() -> None:
        cluster.create("web", N_TASKS)
        said.update(cluster.wait_for("running", N_TASKS))

    benchmark.pedantic(create_and_wait, rounds=1)
    after = cluster.cpu_s()
    benchmark.extra_info.update(
        agents=N_AGENTS,
        tasks=N_TASKS,
        tasks_per_s=round(N_TASKS / (said["at_s"] - began_s)),
        manager_cpu_us_per_task=round((after[0] - before[0]) / N_TASKS * 1e6),
        swarm_cpu_us_per_task=round((after[1] - before[1]) / N_TASKS * 1e6),
        messages_per_task=round(said["messages"] / N_TASKS, 2),
        manager_idle_cpu_share=round((idle_to[0] - idle_from[0]) / IDLE_S, 3),
        manager_rss_mib=cluster.manager.memory_info().rss >> 20,
        manager_rss_kib_per_task=round((cluster.manager.memory_info().rss - rss_before) / N_TASKS / 1024, 1),
    )
    print(json.dumps(benchmark.extra_info))

    tasks = cluster.api.call("GET", "/v1.50/tasks")
    assert [task["Status"]["State"] for task in tasks] == ["running"] * N_TASKS
    per_node = Counter(task["NodeID"] for task in tasks)
    assert max(per_node.values()) - min(per_node.get(n["ID"], 0) for n in cluster.api.call("GET", "/v1.50/nodes")) <= 1
