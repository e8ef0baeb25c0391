"""The stock docker command against the API on a real socket with a real database.

Tasks come from an `InstantCluster`, so these tests are about the command and the API alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from beeyard.core.model import Cluster, UpdateState, UpdateStatus
from beeyard.core.states import NodeState, Role
from beeyard.manager.api import serve
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.pki import RealPki
from beeyard.runtime.real import RealHost
from beeyard.runtime.real_files import RealFiles
from beeyard.runtime.real_net import RealNet
from tests.support.api_status import PlainStatus
from tests.support.builders import a_node
from tests.support.docker import Docker, addresses_of, rack_network_commands
from tests.support.docker_refusals import REFUSED
from tests.support.instant_cluster import InstantCluster

NODE_IDS = [f"{letter}{'0' * 24}" for letter in "abc"]


def _is_updated(status: UpdateStatus | None) -> bool:
    return status is not None and status.state is UpdateState.UPDATING


class Cli:
    """Runs docker without holding up the API that it talks to."""

    def __init__(self, socket: Path, store: Store, status: PlainStatus) -> None:
        self.docker = Docker(str(socket))
        self.socket = socket
        self.store = store
        self.status = status

    async def __call__(self, *arguments: str) -> str:
        """Run, expect success without a word on stderr; what was printed."""
        return await trio.to_thread.run_sync(lambda: self.docker(*arguments))

    async def fails(self, *arguments: str) -> str:
        """Run, expect failure; what was said."""
        result: subprocess.CompletedProcess[str] = await trio.to_thread.run_sync(lambda: self.docker.run(*arguments))
        assert result.returncode != 0, result.stdout
        return result.stderr

    async def inspect(self, kind: str, *names: str) -> list[dict[str, Any]]:
        return await trio.to_thread.run_sync(lambda: self.docker.inspect(kind, *names))

    async def all_stopped(self) -> None:
        """Return once no task holds anything any more."""
        async with self.store.subscribe("task") as wakeups:
            while any(task.holds_room for task in self.store.tasks.values()):
                await anext(wakeups)

    async def all_updated(self) -> None:
        """Return once no service is being updated: until then its version changes, and an update may come out of sequence."""
        async with self.store.subscribe("service") as wakeups:
            while any(_is_updated(service.update_status) for service in self.store.services.values()):
                await anext(wakeups)

    async def make_lan(self) -> None:
        """The example of two racks."""
        for command in rack_network_commands():
            await self(*command)


@asynccontextmanager
async def a_cluster(tmp_path: Path) -> AsyncIterator[Cli]:
    """An API on a socket below `tmp_path`, with three nodes."""
    assert shutil.which("docker"), "the docker command is missing: apt-get install docker.io"
    host = RealHost(
        hostname="yard1",
        rng=random.Random(1),
        net=RealNet(),
        pki=RealPki(),
        files=RealFiles(),
        netlink=None,  # type: ignore[arg-type]
        executors=(),
    )
    store = await Store.open(host, str(tmp_path / "store.db"))
    socket = tmp_path / "api.sock"

    def build(tx: Transaction) -> None:
        certificate_pem, key_pem = host.pki.new_authority("cluster", host.wall_now_s())
        tx.create(
            Cluster(
                id=host.new_id(),
                ca_certificate_pem=certificate_pem,
                ca_key_pem=key_pem,
                worker_secret="w" * 25,
                manager_secret="m" * 25,
                manager_node_id=NODE_IDS[0],
            )
        )
        for number, node_id in enumerate(NODE_IDS, 1):
            rack = "r1" if number < 3 else "r2"
            role = Role.MANAGER if number == 1 else Role.WORKER
            address = f"10.99.0.{number}"
            tx.create(a_node(node_id, hostname=f"yard{number}", labels={"rack": rack}, address=address, role=role))

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await store.commit(build)
        status = PlainStatus(store)
        nursery.start_soon(InstantCluster(host, store).run)

        async def run(task_status: trio.TaskStatus[str]) -> None:
            await serve(host, store, status, str(socket), task_status=task_status)

        await nursery.start(run)
        yield Cli(socket, store, status)
        nursery.cancel_scope.cancel()


async def test_nodes_are_listed_inspected_and_changed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        listed = await docker("node", "ls", "--format", "{{.Hostname}} {{.Self}} {{.Status}} {{.ManagerStatus}}")
        assert [line.split() for line in listed.splitlines()] == [
            ["yard1", "true", "Ready", "Leader"],
            ["yard2", "false", "Ready"],
            ["yard3", "false", "Ready"],
        ]
        assert "Leader:\t\tYes" in await docker("node", "inspect", "--pretty", "self")
        assert await docker("node", "update", "--availability", "drain", "--label-add", "a=b", "yard2") == "yard2"
        (node,) = await docker.inspect("node", "yard2")
        assert node["Spec"] == {"Labels": {"rack": "r1", "a": "b"}, "Role": "worker", "Availability": "drain"}
        assert "docker node promote is not supported" in await docker.fails("node", "promote", "yard2")
        assert "docker node demote is not supported" in await docker.fails("node", "demote", "yard1")
        assert "is not down and can't be removed" in await docker.fails("node", "rm", "yard3")
        assert await docker("node", "rm", "--force", "yard3") == "yard3"
        assert "is a cluster manager" in await docker.fails("node", "rm", "--force", "yard1")
        assert await docker("node", "ls", "-q", "--filter", "role=worker") == NODE_IDS[1]


async def test_the_swarm_is_inspected_and_its_tokens_rotated(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        assert "already part of a swarm" in await docker.fails("swarm", "init")
        assert "already part of a swarm" in await docker.fails("swarm", "join", "--token", "x", "10.0.0.1:2377")
        said = await docker("swarm", "join-token", "worker")
        assert f"docker swarm join --token {docker.status.join_token(Role.WORKER)} 10.99.0.1:2377" in said
        for role in ("worker", "manager"):
            before = await docker("swarm", "join-token", "-q", role)
            after = await docker("swarm", "join-token", "--rotate", "-q", role)
            assert before != after == await docker("swarm", "join-token", "-q", role)
        assert "BEGIN CERTIFICATE" in await docker("swarm", "ca")
        assert "--task-history-limit is not supported" in await docker.fails(
            "swarm", "update", "--task-history-limit=3"
        )
        docker.status.warnings = ["WARNING: replacing tasks waits"]
        result = await trio.to_thread.run_sync(lambda: docker.docker.run("info"))
        assert result.returncode == 0
        assert " Is Manager: true" in result.stdout
        assert " Nodes: 3" in result.stdout
        assert result.stderr == "WARNING: replacing tasks waits\n"
        assert " API version:      1.50 (minimum version 1.24)" in (await docker("version"))


async def test_networks_are_made_listed_inspected_and_removed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        await docker.make_lan()
        listed = await docker("network", "ls", "--format", "{{.Name}} {{.Driver}} {{.Scope}}")
        assert listed.splitlines() == ["host host swarm", "lan macvlan swarm", "lan-r1 null swarm", "lan-r2 null swarm"]
        (lan,) = json.loads(await docker("network", "inspect", "lan"))
        assert lan["Status"]["IPAM"]["Pools"]["lan-r2"]["Free"] == 64
        two = ["--subnet", "10.1.0.0/24", "--gateway", "10.1.0.1", "--ipv6", "--subnet", "fd00:1::/64"]
        aux = ["--aux-address", "router=10.1.0.2", "-o", "parent=eth0.10", "-o", "com.docker.network.driver.mtu=1400"]
        await docker("network", "create", "-d", "macvlan", *two, *aux, "direct")
        (direct,) = await docker.inspect("network", "direct")
        # The command sends them in the order of a Go map.
        assert sorted(config["Subnet"] for config in direct["IPAM"]["Config"]) == ["10.1.0.0/24", "fd00:1::/64"]
        assert "already exists" in await docker.fails("network", "create", "-d", "macvlan", *two, *aux, "direct")
        assert "network driver bridge is not supported" in await docker.fails("network", "create", "x")
        assert "host is a pre-defined network" in await docker.fails("network", "rm", "host")
        await docker("service", "create", "-d", "--name", "web", "--network", "lan", "host", "sleep", "1")
        assert "in use by service web" in await docker.fails("network", "rm", "lan")
        await docker("service", "rm", "web")
        await docker.all_stopped()
        assert (await docker("network", "rm", "lan", "lan-r1", "direct")).split() == ["lan", "lan-r1", "direct"]


async def test_a_service_is_created_with_progress_and_without_a_warning(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        await docker.make_lan()
        command = ["--replicas", "6", "--network", "lan", "host", "python3", "-m", "http.server", "8000"]
        said = await docker("service", "create", "--name", "web", "--update-monitor", "500ms", *command)
        assert "converged" in said
        listed = await docker("service", "ls", "--format", "{{.Name}} {{.Mode}} {{.Replicas}} {{.Image}}")
        assert listed == "web replicated 6/6 host:latest"
        tasks = await trio.to_thread.run_sync(docker.docker.tasks, "web")
        addresses = [addresses_of(task) for task in tasks]
        assert len({address for (address,) in addresses}) == 6
        (lan,) = json.loads(await docker("network", "inspect", "lan"))
        assert sorted(c["IPv4Address"] for c in lan["Containers"].values()) == sorted(f"{a}/24" for (a,) in addresses)
        assert "web.1" in await docker("service", "ps", "web")
        assert "web." in await docker("node", "ps", "self")
        pretty = await docker("service", "inspect", "--pretty", "web")
        assert "Networks: lan" in pretty
        assert "Args:\t\tpython3 -m http.server 8000" in pretty


async def test_a_service_is_scaled_updated_rolled_back_and_removed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        await docker("service", "create", "-d", "--name", "web", "--update-monitor", "500ms", "host", "sleep", "1")
        assert "converged" in await docker("service", "scale", "web=3")
        assert await docker("service", "scale", "-d", "web=2") == "web scaled to 2"
        changes = ["--env-add", "A=1", "--label-add", "l=1", "--limit-memory", "64M", "--image", "host"]
        # The command stops watching at the state "completed", which an instant cluster may reach before it first asks.
        assert (await docker("service", "update", *changes, "web")).splitlines()[0] == "web"
        (service,) = await docker.inspect("service", "web")
        container = service["Spec"]["TaskTemplate"]["ContainerSpec"]
        assert (container["Env"], container["Args"]) == (["A=1"], ["sleep", "1"])
        assert service["UpdateStatus"]["State"] == "completed"
        await docker("service", "update", "-d", "--force", "web")
        await docker.all_updated()
        await docker("service", "update", "-d", "--constraint-add", "node.labels.rack==r1", "--args", "sleep 2", "web")
        await docker.all_updated()
        await docker("service", "rollback", "-d", "web")
        await docker.all_updated()
        (service,) = await docker.inspect("service", "web")
        assert service["Spec"]["TaskTemplate"]["ContainerSpec"]["Args"] == ["sleep", "1"]
        assert service["Spec"]["TaskTemplate"]["Placement"] == {}
        assert "does not have a previous spec" in await docker.fails("service", "rollback", "web")
        assert await docker("inspect", "--format", "{{.Spec.Name}}", "web") == "web"
        assert await docker("service", "rm", "web") == "web"
        assert await docker("service", "ls", "-q") == ""
        assert "no such service: web" in await docker.fails("service", "ps", "web")
        assert "service web not found" in await docker.fails("service", "rm", "web")


WORKING = """
--replicas 2 --env A=1 --env B=two --user nobody --workdir /tmp --hostname h1 --label l=1 --container-label c=2
--stop-signal SIGINT --stop-grace-period 3s --limit-cpu .5 --limit-memory 64M --limit-pids 10 --reserve-cpu .25
--reserve-memory 32M --generic-resource gpu=2 --log-driver local --placement-pref spread=node.labels.zone
--placement-pref spread=node.labels.rack:r1=2,unlabelled=last
--constraint node.labels.rack==r1 --replicas-max-per-node 2 --restart-condition on-failure
--restart-delay 1s --restart-max-attempts 3 --restart-window 2m --update-parallelism 2 --update-delay 1s
--update-failure-action continue --update-monitor 2s --update-max-failure-ratio .25 --update-order start-first
--network host --no-healthcheck
"""


async def test_every_option_that_works_is_shown_as_it_was_given(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        await docker(
            "service", "create", "-d", "--name", "web", *WORKING.split(), "--entrypoint", "sh -c", "host", "sleep 1"
        )
        (service,) = await docker.inspect("service", "web")
        template = service["Spec"]["TaskTemplate"]
        container = {k: v for k, v in template["ContainerSpec"].items() if k not in ("Init", "DNSConfig", "Isolation")}
        assert container == {
            "Image": "host:latest",
            "Labels": {"c": "2"},
            "Command": ["sh", "-c"],
            "Args": ["sleep 1"],
            "Hostname": "h1",
            "Env": ["A=1", "B=two"],
            "Dir": "/tmp",
            "User": "nobody",
            "StopSignal": "SIGINT",
            "StopGracePeriod": 3_000_000_000,
        }
        assert template["Resources"] == {
            "Limits": {"NanoCPUs": 500_000_000, "MemoryBytes": 64 << 20, "Pids": 10},
            "Reservations": {
                "NanoCPUs": 250_000_000,
                "MemoryBytes": 32 << 20,
                "GenericResources": [{"DiscreteResourceSpec": {"Kind": "gpu", "Value": 2}}],
            },
        }
        assert template["LogDriver"] == {"Name": "local"}
        assert template["Placement"] == {
            "Constraints": ["node.labels.rack==r1"],
            "Preferences": [
                {"Spread": {"SpreadDescriptor": "node.labels.zone"}},
                {"Spread": {"SpreadDescriptor": "node.labels.rack:r1=2,unlabelled=last"}},
            ],
            "MaxReplicas": 2,
        }
        pick = ("--placement-pref-rm", "spread=node.labels.zone", "--generic-resource-rm", "gpu")
        await docker("service", "update", "-d", *pick, "--constraint-add", "node.labels.rack in (r1, r2)", "web")
        (service,) = await docker.inspect("service", "web")
        template = service["Spec"]["TaskTemplate"]
        assert template["Resources"]["Reservations"] == {"NanoCPUs": 250_000_000, "MemoryBytes": 32 << 20}
        assert template["Placement"]["Constraints"] == ["node.labels.rack in (r1, r2)", "node.labels.rack==r1"]
        assert len(template["Placement"]["Preferences"]) == 1
        assert template["RestartPolicy"] == {
            "Condition": "on-failure",
            "Delay": 1_000_000_000,
            "MaxAttempts": 3,
            "Window": 120_000_000_000,
        }
        assert service["Spec"]["UpdateConfig"] == {
            "Parallelism": 2,
            "Delay": 1_000_000_000,
            "FailureAction": "continue",
            "Monitor": 2_000_000_000,
            "MaxFailureRatio": 0.25,
            "Order": "start-first",
        }


async def test_every_option_that_does_not_work_is_refused_by_its_name(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        for options, words in REFUSED:
            said = await docker.fails("service", "create", "-d", "--name", "x", *options.split(), "host", "true")
            assert words in said, options
        for flag in ("--replicas-max-per-node 2147483648", "--replicas 1000000", "--limit-pids 9223372036854775807"):
            said = await docker.fails("service", "create", "-d", *flag.split(), "host", "true")
            assert f"{flag.split()[1]} is not between 0 and " in said
        assert "needs a command to run" in await docker.fails("service", "create", "-d", "host")
        said = await docker.fails("service", "create", "-d", "--name", "x", "nginx")
        assert "image nginx:latest needs the docker or oci executor, which no node has" in said
        assert not docker.store.services


NOT_THERE = [
    ("ps", "docker containers are"),
    ("images", "docker images are"),
    ("secret ls", "docker secrets are"),
    ("config ls", "docker configs are"),
    ("plugin ls", "docker plugins are"),
    ("events", "docker events are"),
    ("system df", "docker system df is"),
    ("pull alpine", "docker images are"),
    ("run --rm alpine", "docker containers are"),
    ("service logs web", "docker service logs are"),
    ("swarm leave", "docker swarm leave on the manager is"),
    ("swarm unlock-key", "locking a swarm (autolock) is"),
    ("network prune -f", "docker network prune is"),
]


async def test_every_command_that_is_not_there_says_so(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        await docker("service", "create", "-d", "--name", "web", "host", "true")
        for command, words in NOT_THERE:
            assert f"{words} not supported by beeyard" in await docker.fails(*command.split()), command
        assert "No such object: nosuch" in await docker.fails("inspect", "nosuch")


async def test_an_older_command_is_understood(tmp_path: Path) -> None:
    """One pinned to the oldest version that is spoken."""
    async with a_cluster(tmp_path) as docker:
        for version in ("1.24", "1.41"):
            docker.docker.environment["DOCKER_API_VERSION"] = version
            assert len((await docker("node", "ls", "-q")).split()) == 3
        docker.docker.environment["DOCKER_API_VERSION"] = "1.23"
        assert "requires API version 1.24" in await docker.fails("node", "ls")


async def test_a_down_node_is_shown_and_the_socket_is_guarded(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as docker:
        assert os.stat(docker.socket).st_mode & 0o777 == 0o660
        node = docker.store.nodes[NODE_IDS[2]]
        down = a_node(node.id, hostname="yard3", state=NodeState.DOWN)
        await docker.store.commit(lambda tx: tx.update(down))
        assert await docker("node", "ls", "--filter", "name=yard3", "--format", "{{.Status}}") == "Down"
        assert await docker("node", "rm", "yard3") == "yard3"


async def test_requests_that_are_no_requests_leave_the_api_well(tmp_path: Path) -> None:
    """Garbage, a body too large and a client that stalls, on the real socket; then the command works as before."""
    async with a_cluster(tmp_path) as docker:
        async with contextlib.AsyncExitStack() as open_streams:
            streams = [
                await open_streams.enter_async_context(await trio.open_unix_socket(str(docker.socket)))
                for _ in range(3)
            ]
            await streams[0].send_all(b"\x16\x03\x01" + os.urandom(300))
            await streams[1].send_all(b"POST /services/create HTTP/1.1\r\nhost: x\r\n")
            await streams[2].send_all(b"POST /services/create HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n")
            assert (await streams[0].receive_some()).startswith(b"HTTP/1.1 400")
            assert (await streams[2].receive_some()).startswith(b"HTTP/1.1 413")
            assert len((await docker("node", "ls", "-q")).split()) == 3
