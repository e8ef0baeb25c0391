"""An agent that is killed while many tasks start: nothing is leaked, and each task runs once or is replaced."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from beeyard.runtime.real_lock import NetworkTaken, sole_in_network
from deploy.lan import Lan
from deploy.yard_cluster import YardCluster
from tests.support.arp_watcher import arp_watcher
from tests.support.docker import WATCHED, Docker, addresses_of, eventually
from tests.support.node_survey import NodeSurvey

pytestmark = pytest.mark.netns

N_TASKS = 12
N_KILLS = 7
# Room for twelve tasks many times over: freed addresses rest for 30 s.
SUBNET = "10.77.0.0/24"
# What the tasks run, recognisable among all processes of this machine.
MARKER = f"1{os.getpid():07}"


@pytest.fixture(scope="module")
def node() -> Iterator[YardCluster]:
    """A manager and one agent on one host."""
    name = f"byk{os.getpid() % 10000}x"
    cluster = YardCluster(name, api_socket=f"/run/beeyard/{name}/docker.sock")
    try:
        cluster.up(1)
        yield cluster
    finally:
        cluster.down()


def start_all_anew(docker: Docker) -> None:
    """Have every task of the service replaced, all at once."""
    docker("service", "update", "--detach", "--force", "--update-parallelism", "0", "web")


def kill_agent(node: YardCluster, survey: NodeSurvey, *, zygote: bool) -> None:
    """Kill the agent, and perhaps what forks for it, without a warning."""
    for pid in survey.zygotes() if zygote else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    node.kill("agent1", signal.SIGKILL)


def all_run_and_nothing_else_is_there(node: YardCluster, survey: NodeSurvey) -> bool:
    docker = Docker(node.api_socket)
    running = docker.running("web")
    assert len(running) == N_TASKS, [task["Status"] for task in docker.tasks("web", desired="running")]
    assert len({address for task in running for address in addresses_of(task)}) == N_TASKS
    survey.check(running, node.get("/tasks"))
    assert docker.used_addresses("lan") == N_TASKS
    return True


def test_an_agent_killed_while_tasks_start_leaks_nothing(node: YardCluster) -> None:
    """At random moments of preparing, attaching and starting the agent dies; in the end there is one of everything."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    docker = Docker(node.api_socket)
    survey = NodeSurvey(node, 1, MARKER)
    pool = ("--subnet", SUBNET, "--gateway", "10.77.0.1", "-o", "parent=eth0")
    docker("network", "create", "-d", "macvlan", "--scope", "swarm", *pool, "lan")
    service = ("--replicas", str(N_TASKS), "--restart-delay", "100ms", "--update-failure-action", "continue")
    docker("service", "create", "--detach", "--name", "web", "--network", "lan", *service, "host", "sleep", MARKER)
    with arp_watcher(node.lan, SUBNET) as seen:
        for number in range(N_KILLS):
            eventually(
                survey.zygotes, within_s=30, every_s=0.01
            )  # it looks for its tasks, and will hear of new ones soon
            time.sleep(draw.uniform(0.0, 0.9))
            print(f"kill {number}: {len(survey.shims())} shims, {len(survey.programs())} programs")
            kill_agent(node, survey, zygote=draw.random() < 0.5)
            start_all_anew(docker)
            node.start_agent(1)
        eventually(lambda: all_run_and_nothing_else_is_there(node, survey), within_s=60, every_s=0.5)
    assert seen["conflicts"] == []


def test_what_a_dead_agent_left_is_cleaned_by_the_next(node: YardCluster) -> None:
    """A shim killed, a task no longer wanted, and remains of tasks that nobody knows, all while no agent is there."""
    docker = Docker(node.api_socket)
    survey = NodeSurvey(node, 1, MARKER)
    before = {task["ID"]: task for task in docker.running("web")}
    kill_agent(node, survey, zygote=True)
    (orphaned, (shim,)), *_ = survey.shims().items()
    os.kill(shim, signal.SIGKILL)
    stranger = "x" * 25
    for hierarchy in survey.places.hierarchies():
        os.makedirs(f"{hierarchy.path}/{survey.places.cgroup_parent}/{stranger}", exist_ok=True)
    os.makedirs(f"{survey.places.task_dir('y' * 25)}/work")
    os.makedirs(survey.places.shim_dir("z" * 25))
    node.start_agent(1)
    eventually(lambda: all_run_and_nothing_else_is_there(node, survey), within_s=60, every_s=0.5)
    after = {task["ID"] for task in docker.running("web")}
    assert before.keys() - after == {orphaned}, "the others run on"

    kill_agent(node, survey, zygote=False)
    docker("service", "rm", "web")
    node.start_agent(1)
    eventually(lambda: survey.check([], node.get("/tasks")) is None, within_s=60, every_s=0.5)


@pytest.mark.parametrize("flags", [("--purge",), ("127.0.0.1:1",)])
def test_a_second_agent_or_a_purge_beside_a_running_agent_is_refused(node: YardCluster, flags: tuple[str, ...]) -> None:
    """Nothing is touched: neither tasks nor the session of the first."""
    docker = Docker(node.api_socket)
    docker("service", "create", *WATCHED, "--name", "kept", "host", "sleep", MARKER)
    before = [(task["ID"], task["Status"]["ContainerStatus"]["PID"]) for task in docker.running("kept")]
    state = node.state / "agent1"
    command = [*Lan.enter(node.lan.host(1)), sys.executable, "-m", "beeyard", "join", *flags, "--state-dir", str(state)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    pid = node.daemons()["agent1"].pid
    assert (ended.returncode, ended.stderr) == (
        1,
        f"beeyard join: cannot use {state}: another agent (pid {pid}) uses it\n",
    )
    time.sleep(1)
    assert before == [(task["ID"], task["Status"]["ContainerStatus"]["PID"]) for task in docker.running("kept")]
    assert YardCluster.process_exists(before[0][1])
    docker("service", "rm", "kept")


@pytest.mark.parametrize("flags", [("--purge",), ("127.0.0.1:1", "--join-token", f"SWMTKN-1-{'0' * 50}-{'0' * 25}")])
def test_a_second_agent_in_a_network_namespace_is_refused(node: YardCluster, flags: tuple[str, ...]) -> None:
    """Or a purge, though it has a directory of its own: it would take the VLANs, routes and links of the first."""
    state = node.state / "second"
    command = [*Lan.enter(node.lan.host(1)), sys.executable, "-m", "beeyard", "join", *flags, "--state-dir", str(state)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    pid = node.daemons()["agent1"].pid
    assert (ended.returncode, ended.stderr) == (
        1,
        f"beeyard join: another agent (pid {pid}) is in this network namespace: they would take each other's VLANs, routes "
        "and host-side links away; stop that one, or set share_network for both\n",
    )
    assert not state.exists()


def test_an_agent_that_is_not_let_in_leaves_nothing(node: YardCluster) -> None:
    """With a token whose secret is wrong it says so and ends, and no directory tells of it."""
    state = node.state / "refused"
    token = node.get("/swarm")["JoinTokens"]["Worker"]
    flags = ("--state-dir", str(state), node.manager_address, "--join-token", token[:-25] + "0" * 25)
    flags = (*flags, "--share-network", "true")
    command = [*Lan.enter(node.lan.host(1)), sys.executable, "-m", "beeyard", "join", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "token" in ended.stderr.splitlines()[-1]
    assert not state.exists()


def test_another_user_does_not_keep_an_agent_from_its_namespace() -> None:
    """By taking the name of the lock first, as anybody may."""
    kind = f"trial-{os.getpid()}"
    code = (
        "import os, sys\nfrom beeyard.runtime.real_lock import sole_in_network\nos.setuid(65534)\n"
        f"with sole_in_network({kind!r}):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with sole_in_network(kind):
            holder.kill()


@pytest.mark.parametrize("n_hosts", [1, 0])
def test_a_cluster_is_taken_down_beside_an_agent_of_this_machine(n_hosts: int) -> None:
    """Its purges are in the networks of its hosts, also of one that is gone, and not in this machine's."""
    cluster = YardCluster(f"bzp{n_hosts}", subnet="10.79.0.0/24")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(NetworkTaken):  # by an agent of this machine: the better
            stack.enter_context(sole_in_network("agent"))
        cluster.lan.up(n_hosts)
        (cluster.state / "agent1").mkdir(parents=True)
        (cluster.state / "agent1.toml").touch()
        cluster.down()
    assert not cluster.state.exists()
    assert not cluster.lan.exists()
