"""Node hooks in a cluster of real daemons, the examples of the reference among them, as they are written there."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import tomllib
from collections.abc import Iterator

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import Docker, eventually
from tests.support.processes import with_argument

pytestmark = pytest.mark.netns

REFERENCE = pathlib.Path(__file__).parents[2] / "docs" / "node-hooks.md"
# What the processes of a hook run that hangs, recognisable among all processes of this machine.
MARKER = f"4{os.getpid():07}"
REPAIR = pathlib.Path("/run/under-repair")
CALIBRATION = pathlib.Path("/srv/calibration")
SERIAL = f"ttyUSB{os.getpid()}"
# Hangs for a service that asks for it, and tells which task stopped.
WITNESS = f"""#!/bin/sh
case "$1:$(cat)" in
prepare:*hang*) setsid sleep {MARKER} & sleep {MARKER} ;;
stop:*) echo "$BEEYARD_TASK_ID" >> STOPPED ;;
esac
"""


def blocks(language: str) -> list[str]:
    """The code of the reference in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)


def install(directory: pathlib.Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(script)
    path.chmod(0o755)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the witness writes the tasks that stopped."""
    return tmp_path_factory.mktemp("witness") / "stopped"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, stopped: pathlib.Path) -> Iterator[YardCluster]:
    """A manager and one agent, with the hooks and the settings of the reference, and a witness."""
    hooks = tmp_path_factory.mktemp("hooks.d")
    scripts = [*blocks("sh"), *blocks("python")]
    for script in scripts:
        (name,) = re.findall(r"\b(\d\d-\w+):", script)
        install(hooks, name, script)
    install(hooks, "99-witness", WITNESS.replace("STOPPED", str(stopped)))
    assert len(scripts) == 2
    (example,) = blocks("toml")
    settings = {f"hooks.{name}": value for name, value in tomllib.loads(example)["hooks"].items()}
    device = f"/dev/{SERIAL}"
    existed = CALIBRATION.exists()
    name = f"byh{os.getpid() % 10000}x"
    cluster = YardCluster(
        name, api_socket=f"/run/beeyard/{name}/docker.sock", agent_settings={**settings, "hooks.directory": str(hooks)}
    )
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        CALIBRATION.mkdir(parents=True, exist_ok=True)
        (CALIBRATION / f"{name}.txt").write_text("calibrated\n")
        cluster.up(1)
        yield cluster
    finally:
        cluster.down()
        os.unlink(device)
        REPAIR.unlink(missing_ok=True)
        (CALIBRATION / f"{name}.txt").unlink()
        if not existed:
            shutil.rmtree(CALIBRATION)


def create(docker: Docker, name: str, *words: str, labels: tuple[str, ...] = ()) -> None:
    flags = [flag for label in labels for flag in ("--label", label)]
    docker("service", "create", "--detach", "--restart-condition", "none", "--name", name, *flags, "host", *words)


def end_of(docker: Docker, service: str, state: str) -> str:
    """Wait for a state of the one task of a service; gives its error, and checks that `docker service ps` shows it."""

    def ended() -> bool:
        return [task["Status"]["State"] for task in docker.tasks(service)] == [state]

    eventually(ended, within_s=60)
    (task,) = docker.tasks(service)
    error: str = task["Status"].get("Err", "")
    assert error in docker("service", "ps", "--no-trunc", "--format", "{{.Error}}", service)
    return error


def log_of(node: YardCluster, docker: Docker, service: str, suffix: str = "log") -> str:
    (task,) = docker.tasks(service)
    return (node.state / "agent1" / "log" / f"{task['ID']}.{suffix}").read_text()


def stopped_tasks(stopped: pathlib.Path) -> list[str]:
    """Tasks for which the hook was called at `stop`: it makes the file with the first."""
    return stopped.read_text().split() if stopped.exists() else []


def test_a_node_shows_its_hooks(node: YardCluster) -> None:
    docker = Docker(node.api_socket)
    (shown,) = json.loads(docker("node", "inspect", "self"))
    plugins = shown["Description"]["Engine"]["Plugins"]
    assert [plugin["Name"] for plugin in plugins if plugin["Type"] == "NodeHook"] == [
        "10-repair",
        "50-serial",
        "99-witness",
    ]
    assert "99-witness" in docker("node", "inspect", "--pretty", "self")


def test_the_example_of_a_serial_port(node: YardCluster) -> None:
    """Environment, sysctl, mount and device reach the task that asks by label, and no other."""
    docker = Docker(node.api_socket)
    script = f"""echo "$SERIAL_PORT."; cat /proc/sys/net/ipv4/tcp_keepalive_time /tmp/calibration/{node.name}.txt
        touch /tmp/calibration/x 2>&1; head -c 2 /dev/{SERIAL} | od -An -tx1"""
    create(docker, "meter", "sh", "-c", script, labels=(f"com.example.serial={SERIAL}",))
    create(docker, "other", "sh", "-c", script)
    end_of(docker, "meter", "complete")
    end_of(docker, "other", "complete")
    assert log_of(node, docker, "meter").splitlines() == [
        f"/dev/{SERIAL}.",
        "60",
        "calibrated",
        "touch: cannot touch '/tmp/calibration/x': Read-only file system",
        " 00 00",
    ]
    assert log_of(node, docker, "other").splitlines()[0] == "."
    assert "No such file or directory" in log_of(node, docker, "other")
    assert '"SERIAL_PORT"' in log_of(node, docker, "meter", "hooks.log")
    create(docker, "nowhere", "true", labels=("com.example.serial=ttyUSB-none",))
    error = end_of(docker, "nowhere", "rejected")
    assert error.startswith(
        f"node hook 50-serial refused at prepare: there is no ttyUSB-none on {node.name}1 (its output: "
    )
    create(docker, "sly", "true", labels=("com.example.serial=null",))
    assert end_of(docker, "sly", "rejected") == (
        "node hook 50-serial may not add device /dev/null: the agent's configuration allows devices /dev/ttyUSB*"
    )


def test_the_example_of_a_node_under_repair(node: YardCluster) -> None:
    docker = Docker(node.api_socket)
    REPAIR.write_text("new disks, back at noon\n")
    create(docker, "refused", "true")
    error = end_of(docker, "refused", "rejected")
    REPAIR.unlink()
    assert error.startswith(
        "node hook 10-repair refused at prepare: this node is under repair: new disks, back at noon (its output: "
    )
    create(docker, "taken", "true")
    end_of(docker, "taken", "complete")


def test_a_hook_that_hangs_is_killed_with_its_children(node: YardCluster, stopped: pathlib.Path) -> None:
    docker = Docker(node.api_socket)
    create(docker, "late", "true", labels=("hang=yes",))
    eventually(lambda: with_argument(MARKER), within_s=30)
    error = end_of(docker, "late", "rejected")
    assert error.startswith("node hook 99-witness did not answer prepare within 8 s (its output: ")
    assert with_argument(MARKER) == []
    assert docker.tasks("late")[0]["ID"] in stopped_tasks(stopped)


def test_an_agent_killed_in_a_hook_leaves_nothing_and_owes_a_stop(node: YardCluster, stopped: pathlib.Path) -> None:
    """The hook ends with the agent, and the next agent calls `stop`, although nobody wants the task any more."""
    docker = Docker(node.api_socket)
    create(docker, "cut", "true", labels=("hang=yes",))
    eventually(lambda: with_argument(MARKER), within_s=30)
    (task,) = docker.tasks("cut")
    node.kill("agent1", signal.SIGKILL)
    eventually(lambda: not with_argument(MARKER), within_s=10)
    docker("service", "rm", "cut")
    assert task["ID"] not in stopped_tasks(stopped)
    node.start_agent(1)
    eventually(lambda: task["ID"] in stopped_tasks(stopped), within_s=30)
    owed = node.state / "agent1" / "hooks"
    eventually(lambda: list(owed.iterdir()) == [], within_s=30)
