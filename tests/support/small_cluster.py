"""A whole small cluster in memory, one manager and a few agents, driven through the API: for directed stories."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.manager import daemon as manager_daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.sim.api import ClusterApi

MANAGER = "m1"
Json = dict[str, Any]


class SmallCluster:
    """Agents a1, a2, … in the given order; tasks run until they are stopped."""

    def __init__(
        self, world: SimWorld, agents: Sequence[str], config: ManagerConfig, agent_config: AgentConfig
    ) -> None:
        self.world = world
        self.agents = tuple(agents)
        self.api = ClusterApi(world, MANAGER)
        self._config = config
        self._agent_config = agent_config

    def parts(self, name: str) -> FakeParts:
        """Kernel and tasks of a machine."""
        parts = self.world.machines[name].parts
        assert isinstance(parts, FakeParts)
        return parts

    async def start(self) -> None:
        """Start everything; returns when all nodes are ready."""
        self.world.start(MANAGER, self._run_manager)
        token = (await self.api.insist("GET", "/swarm"))["JoinTokens"]["Worker"]
        given = self._agent_config.managers or (f"tcp://{MANAGER}:2377",)
        for name in self.agents:
            config = msgspec.structs.replace(
                self._agent_config, state_dir="/var/lib/beeyard/agent", managers=given, join_token=token
            )
            discovery = msgspec.structs.replace(config.discovery, tags=(*config.discovery.tags, f"host={name}"))
            config = msgspec.structs.replace(config, discovery=discovery)
            self.world.start(name, functools.partial(agent_daemon.run, config=config))
        await self.until(
            lambda nodes: [n["Status"]["State"] for n in nodes].count("ready") == len(self.agents), "/nodes"
        )

    async def until(
        self, condition: Callable[[list[Json]], bool], path: str, *, timeout_s: float = 120.0
    ) -> list[Json]:
        """What the API shows at a path once a condition holds for it."""
        with trio.move_on_after(timeout_s):
            while True:
                shown: list[Json] = await self.api.insist("GET", path)
                if condition(shown):
                    return shown
                await trio.sleep(0.5)
        raise AssertionError(f"{path} is not as it should be after {timeout_s:g} s: {shown}")

    async def running(self, n_tasks: int, *, timeout_s: float = 120.0) -> list[Json]:
        """All tasks, oldest first, once so many run."""

        def settled(tasks: list[Json]) -> bool:
            return [task["Status"]["State"] for task in tasks].count("running") == n_tasks

        return sorted(await self.until(settled, "/tasks", timeout_s=timeout_s), key=lambda task: task["CreatedAt"])

    async def service(
        self,
        replicas: int = 1,
        *,
        network: str = "lan",
        name: str = "web",
        labels: Mapping[str, str] = {},
        **template: Any,
    ) -> str:
        """Create a service on a network; gives its id."""
        task = {"ContainerSpec": {"Image": "host", "Args": ["sleep"]}, "Networks": [{"Target": network}], **template}
        body = {
            "Name": name,
            "Labels": dict(labels),
            "TaskTemplate": task,
            "Mode": {"Replicated": {"Replicas": replicas}},
        }
        created: str = (await self.api.call("POST", "/services/create", body))["ID"]
        return created

    async def scale(self, service_id: str, replicas: int) -> None:
        """Change a service's number of replicas."""
        service = await self.api.insist("GET", f"/services/{service_id}")
        spec = {**service["Spec"], "Mode": {"Replicated": {"Replicas": replicas}}}
        version = service["Version"]["Index"]
        await self.api.call("POST", f"/services/{service_id}/update", spec, version=version)

    async def network(self, *subnets: str, name: str = "lan", driver: str = "macvlan", **options: str) -> None:
        """Create a network of one pool on eth0."""
        body = {
            "Name": name,
            "Driver": driver,
            "Scope": "swarm",
            "EnableIPv6": any(":" in subnet for subnet in subnets),
            "IPAM": {"Config": [{"Subnet": subnet} for subnet in subnets]},
            "Options": {"parent": "eth0", **options},
        }
        await self.api.call("POST", "/networks/create", body)

    async def _run_manager(self, host: Host) -> None:
        await manager_daemon.run(host, self._config)


@asynccontextmanager
async def a_small_cluster(
    *agents: str,
    config: ManagerConfig | None = None,
    agent_config: AgentConfig | None = None,
    parts: Callable[[SimMachine], FakeParts] = FakeParts,
    seed: int = 1,
) -> AsyncIterator[SmallCluster]:
    """A cluster whose nodes are ready. With `agent_config` agents have its settings besides those that they need."""
    async with SimWorld(seed=seed, parts=parts) as world:
        cluster = SmallCluster(world, agents or ("a1", "a2"), config or ManagerConfig(), agent_config or AgentConfig())
        await cluster.start()
        yield cluster


def addresses(task: Json) -> list[str]:
    """The addresses of a task as the API shows it, without prefix lengths."""
    return [text.partition("/")[0] for a in task.get("NetworksAttachments", ()) for text in a["Addresses"]]


__all__ = ["MANAGER", "SmallCluster", "a_small_cluster", "addresses"]
