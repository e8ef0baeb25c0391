"""Hosts of a LAN made of namespaces find each other: our daemons among themselves, and with real Serf agents."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, eventually
from tests.support.netns import Lan, ip

pytestmark = pytest.mark.netns

PATIENCE_S = 60.0
NO_MULTICAST = "table inet quiet { chain out { type filter hook output priority 0; ip daddr 224.0.0.0/4 drop; }; }"
MDNS = {"mdns": "yard", "scan": False}
NOTHING = {"mdns": "", "scan": False}
TRIO = ("h11", "h12", "h13")


class Hosts:
    """Namespaces on one LAN with processes in them."""

    def __init__(self, directory: Path) -> None:
        self.lan = Lan()
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, *numbers: int, multicast: bool = True) -> None:
        """Make hosts 10.9.0.NUMBER, called hNUMBER."""
        for number in numbers:
            netns = self.lan.add_host(number)
            setattr(self, f"h{number}", netns)
            # Real agents leave it to the routes by which link a question for a group goes.
            ip(f"-n {Path(netns).name} route add default via 10.9.0.1")
            if not multicast:
                subprocess.run(["nsenter", f"--net={netns}", "nft", NO_MULTICAST], check=True)

    def start(self, name: str, **options: object) -> None:
        """Self-discovery on the host of this name."""
        arguments = [name, str(self.directory / name), json.dumps(options)]
        self.spawn(name, [sys.executable, "-m", "tests.support.discovery_process", *arguments])

    def spawn(self, name: str, command: list[str]) -> None:
        """Start a command on the host of this name; what it prints goes to a file."""
        with open(self.directory / f"{name}.out", "wb") as out:
            enter = ["nsenter", f"--net={getattr(self, name)}"]
            self.processes[name] = subprocess.Popen([*enter, *command], stdout=out, stderr=subprocess.STDOUT)

    def stop(self, *names: str) -> None:
        """Kill some, or all."""
        for name in names or tuple(self.processes):
            process = self.processes.pop(name)
            process.kill()
            process.wait()

    def said(self, name: str) -> list[dict]:
        """The lines of JSON that a process has printed."""
        lines = (self.directory / f"{name}.out").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"at_s"')]

    def seen(self, name: str) -> list[str]:
        """The living members that a process sees now."""
        return next((line["members"] for line in reversed(self.said(name)) if "members" in line), [])

    def until_one(self, *names: str) -> float:
        """Wait until they are one cluster; seconds since the last of them began."""
        wanted = sorted(names)
        until(lambda: all(self.seen(name) == wanted for name in names), lambda: {n: self.seen(n) for n in names})
        began_s = max(self.said(name)[0]["at_s"] for name in names)
        whole_s = max(next(line["at_s"] for line in self.said(name) if line.get("members") == wanted) for name in names)
        return whole_s - began_s


def until(condition: Callable[[], bool], shown: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, shown()
        time.sleep(0.05)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    try:
        yield made
    finally:
        made.stop()
        made.lan.close()


def test_three_hosts_without_multicast_are_one_cluster_at_once_and_sooner_when_they_know_each_other(hosts, capsys):
    """With an empty disk by asking all addresses of the LAN; after a restart by what is on the disk, and nothing else."""
    hosts.add(11, 12, 13, multicast=False)
    empty_s = best(lambda: seconds_to_one(hosts, forget=True), 3.0)
    until(lambda: all((hosts.directory / name / "known-peers").exists() for name in TRIO), lambda: "no file")
    time.sleep(1.5)  # the last of the members is written a second after it was seen
    known_s = best(lambda: seconds_to_one(hosts, **NOTHING), 1.0)
    with capsys.disabled():
        print(f"\none cluster of 3: {empty_s:.2f} s with an empty disk, {known_s:.2f} s with known peers")
    assert empty_s <= 3.0
    assert known_s <= 1.0


def seconds_to_one(hosts: Hosts, *, forget: bool = False, **options: object) -> float:
    """Start three anew; how long they take to be one cluster."""
    hosts.stop()
    for name in TRIO:
        if forget:
            (hosts.directory / name / "known-peers").unlink(missing_ok=True)
        hosts.start(name, **options)
    return hosts.until_one(*TRIO)


def best(measure: Callable[[], float], good_s: float) -> float:
    """The best of three: what else this machine does can only add to it."""
    found_s = measure()
    for _ in range(2):
        if found_s > good_s:
            found_s = min(found_s, measure())
    return found_s


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_hosts_find_each_other_by_mdns_alone(hosts, family):
    """The responder of each is heard by all, also where there is no IPv4."""
    hosts.add(11, 12, 13)
    if family == "ipv6":
        for name in TRIO:
            netns = Path(getattr(hosts, name)).name
            ip(f"-n {netns} address flush dev eth0 scope global")
            ip(f"-n {netns} address add fd00:9::{name[1:]}/64 dev eth0 nodad")
    for name in TRIO:
        hosts.start(name, **MDNS)
    hosts.until_one(*TRIO)


@contextlib.contextmanager
def serf_agent(hosts: Hosts, number: int) -> Iterator[Callable[[], dict[str, str]]]:
    """A real agent that looks for others by mDNS; gives what it believes of each member."""
    name, address = f"h{number}", f"10.9.0.{number}"
    command = ["serf", "agent", f"-node=real{number}", f"-bind={address}:3388", "-discover=yard", "-iface=eth0"]
    hosts.spawn(name, command)

    def members() -> dict[str, str]:
        command = ["nsenter", f"--net={getattr(hosts, name)}", "serf", "members", "-format=json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return {m["name"]: m["status"] for m in json.loads(shown)["members"]} if shown.startswith("{") else {}

    yield members


@pytest.mark.parametrize("first", ["real", "ours"])
def test_a_real_agent_and_ours_find_each_other_by_mdns(hosts, first):
    """Whoever asks finds whoever is there."""
    hosts.add(11, 12)
    with contextlib.ExitStack() as stack:
        if first == "ours":
            hosts.start("h11", **MDNS)
            until(lambda: hosts.seen("h11") == ["h11"], lambda: hosts.said("h11"))
        members = stack.enter_context(serf_agent(hosts, 12))
        if first == "real":
            until(lambda: members() == {"real12": "alive"}, members)
            hosts.start("h11", **MDNS)
        until(lambda: hosts.seen("h11") == ["h11", "real12"], lambda: hosts.said("h11"))
        until(lambda: members() == {"h11": "alive", "real12": "alive"}, members)


def test_two_clusters_on_one_lan_stay_apart(hosts):
    """Though each finds the other, by every way and by a wrong join."""
    hosts.add(11, 12, 13, 14)
    for name in ("h11", "h12"):
        hosts.start(name)
    for name in ("h13", "h14"):
        hosts.start(name, cluster="b" * 50, given=["10.9.0.11:3388"])
    hosts.until_one("h11", "h12")
    hosts.until_one("h13", "h14")
    time.sleep(3)
    everybody = {
        name: {member for line in hosts.said(name) for member in line.get("members", [])} for name in hosts.processes
    }
    assert everybody == {"h11": {"h11", "h12"}, "h12": {"h11", "h12"}, "h13": {"h13", "h14"}, "h14": {"h13", "h14"}}


@pytest.fixture
def cluster() -> Iterator[YardCluster]:
    """A whole cluster in which nobody is told an address."""
    name = f"byd{os.getpid() % 10000}x"
    made = YardCluster(
        name,
        api_socket=f"/run/beeyard/{name}/docker.sock",
        manager_settings={"self_discovery_port": 3388},
        agent_settings={"managers": ["self://:3388"]},
    )
    try:
        yield made
    finally:
        made.down()


def test_agents_join_a_manager_that_nobody_named(cluster):
    """Three hosts become nodes, run a task each, and find a manager that started again."""
    cluster.up(3)
    docker = Docker(cluster.api_socket)
    docker("service", "create", "--name", "web", "--replicas", "3", "host", "sleep", "600")
    eventually(lambda: len(docker.running("web")) == 3, within_s=30.0)
    cluster.kill("manager")
    cluster.start_manager()
    cluster.wait_for_api()
    cluster.wait_for_nodes(3)
