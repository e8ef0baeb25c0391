"""The commands of gossip with real daemons: a cluster that nobody told an address, on one machine."""

from __future__ import annotations

import grp
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, eventually

pytestmark = pytest.mark.netns

NAME = f"bygc{os.getpid() % 10000}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """Three hosts; those of agents are tagged."""
    made = YardCluster(
        NAME,
        api_socket=f"/run/beeyard/{NAME}/docker.sock",
        manager_settings={"self_discovery_port": 3388},
        agent_settings={"managers": ["self://:3388"], "discovery.tags": ["dc=ams"], "describe_interval_s": 2.0},
    )
    try:
        made.up(3)
        yield made
    finally:
        made.down()


def command(cluster: YardCluster, *arguments: str, of: str = "agent2") -> subprocess.CompletedProcess[str]:
    """A command about gossip, asked of one daemon."""
    socket = f"/run/beeyard/{cluster.name}/gossip-{of}.sock"
    line = [sys.executable, "-m", "beeyard", *arguments, "--socket", socket]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def members(cluster: YardCluster, *arguments: str, of: str = "agent2") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(command(cluster, "members", "--json", *arguments, of=of).stdout)
    return {member["name"]: member for member in answer["members"]}


def test_members_events_questions_and_times(cluster: YardCluster) -> None:
    """Manager and agents say the same; a table for people, JSON for programs."""
    n = cluster.name
    names = {f"{n}{number}" for number in (1, 2, 3)} | {f"{n}1.manager"}
    for of in ("manager", "agent1", "agent2", "agent3"):
        eventually(lambda of=of: set(members(cluster, "--status", "alive", of=of)) == names, within_s=20.0)
    assert set(members(cluster, "--tag", "dc=ams", "--tag", "role=agent")) == names - {f"{n}1.manager"}
    table = command(cluster, "members").stdout.splitlines()
    assert table[0].split() == ["NAME", "ADDRESS", "STATUS", "SINCE", "TAGS"]
    assert len(table) == 5
    assert command(cluster, "event", "deploy", "v2").returncode == 0
    asked = command(cluster, "query", "load", "--timeout", "2")
    assert asked.stdout.splitlines()[-1] == "4 acks, 0 responses"
    unknown = command(cluster, "rtt", f"{n}9")
    assert (unknown.returncode, f"there is no member {n}9, but {n}1" in unknown.stderr) == (1, True)
    eventually(lambda: "ms (estimated)" in command(cluster, "rtt", f"{n}1").stdout, within_s=30.0)
    plain = command(cluster, "keys", "--list")
    assert (plain.returncode, "gossip is not encrypted: none of the 4 members" in plain.stdout) == (0, True)
    assert "beeyard_gossip_members" in command(cluster, "gossip-metrics", of="agent3").stdout


def test_only_root_and_the_group_of_the_api_may_ask(cluster: YardCluster) -> None:
    socket = f"/run/beeyard/{cluster.name}/gossip-agent2.sock"
    found = os.stat(socket)
    try:
        expected = grp.getgrnam("beeyard").gr_gid
    except KeyError:
        expected = 0
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o660, 0, expected)


def test_tags_place_tasks_and_a_host_that_freezes_is_down(cluster: YardCluster) -> None:
    """Its agent stands still and its connection stays open: it answers neither gossip nor the manager, and comes back."""
    docker, frozen = Docker(cluster.api_socket), f"{cluster.name}3"
    placed = [f"node.hostname!={cluster.name}1", "node.tags.dc==ams"]
    constraints = [word for text in placed for word in ("--constraint", text)]
    docker("service", "create", "-d", "--name", "web", *constraints, "host", "sleep", "1d")
    docker("service", "create", "-d", "--name", "near", "--constraint", f"node.rtt.{frozen}<=1s", "host", "sleep", "1d")
    eventually(lambda: len(docker.running("web")) == 1, within_s=30.0)
    eventually(lambda: len(docker.running("near")) == 1, within_s=90.0)  # once it is known where nodes are
    (shown,) = docker.inspect("node", frozen)
    assert "Vec" in shown["Description"]["Gossip"]["Coordinate"]
    assert "dc=ams" in docker("node", "inspect", frozen, "--format", "{{json .Description.Engine.Plugins}}")
    assert (shown["Description"]["Gossip"]["Member"], shown["Description"]["Gossip"]["Tags"]["dc"]) == (frozen, "ams")
    pid = cluster.daemons()["agent3"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: set(members(cluster, "--status", "failed")) == {frozen}, within_s=40.0)
        eventually(lambda: state(docker, frozen)[0] == "down", within_s=40.0)
        assert state(docker, frozen)[1].startswith("heartbeat failure")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: state(docker, frozen)[0] == "ready", within_s=40.0)
    eventually(lambda: set(members(cluster, "--status", "failed")) == set(), within_s=40.0)


def state(docker: Docker, name: str) -> tuple[str, str]:
    """State of a node, and why."""
    (node,) = docker.inspect("node", name)
    return node["Status"]["State"], node["Status"].get("Message", "")
