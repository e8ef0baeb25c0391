"""What `tests/scenario/test_first_service.py` needs to watch a cluster from everywhere at once.

The cluster itself is the real one: the daemons' own code on simulated machines, see `runtime/sim.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import structlog.testing
import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.grant import AddressGrant, AnyGrant, NoteGrant
from beeyard.core.model import Node, StoredObject, Task
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask
from beeyard.manager import daemon as manager_daemon
from beeyard.manager.config import ManagerConfig
from beeyard.manager.hooks import Hook, Window
from beeyard.runtime.fake_executor import Behaviour, FakeTask
from beeyard.runtime.fake_links import FakeLink
from beeyard.runtime.host import Database, Host, Record
from beeyard.runtime.sim import SimHost, SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.sim.api import ClusterApi

T = TypeVar("T", bound=StoredObject)
_decode = msgspec.msgpack.Decoder(StoredObject).decode

MANAGER = "m1"
RACKS = {"a1": "r1", "a2": "r2"}
# Each rack's pool of the LAN 10.77.0.0/24.
RANGES = {"r1": "10.77.0.64/26", "r2": "10.77.0.128/26"}


class DoorHook:
    """A hook that keeps the task it was asked for waiting until the test opens its door."""

    def __init__(self, name: str, window: Window) -> None:
        self.hook = Hook(
            name, window, 60.0, lambda task: True, self._reserve, lambda grant, used: None, lambda task, grant: None
        )
        self._asked_for, self._questions = trio.open_memory_channel[Node | None](1)
        self._door = trio.Event()

    async def asked(self) -> Node | None:
        """Wait until it was asked; gives the node that the task is to run on, None when none was chosen yet."""
        return await self._questions.receive()

    def open(self) -> None:
        """Let the task pass."""
        self._door.set()

    async def _reserve(self, task: Task, node: Node | None) -> tuple[AnyGrant, ...]:
        await self._asked_for.send(node)
        await self._door.wait()
        return (NoteGrant(id=f"{self.hook.name}-1", hook=self.hook.name),)


class Feed:
    """Every durable write of the manager's store, in order."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Record](10_000)

    async def next(self, kind: type[T]) -> T:
        """The next version of an object of this kind that is stored."""
        while True:
            record = await self._receive.receive()
            obj = _decode(record.data) if record.data is not None else None
            if isinstance(obj, kind):
                return obj

    async def until(self, state: TaskState) -> Task:
        """The first stored version of a task in this state."""
        while True:
            task = await self.next(Task)
            if task.status.state == state:
                return task

    def watch(self, database: Database) -> Database:
        """The same database, which tells of each batch once it is durable."""
        commit = database.commit

        async def commit_and_tell(batch: Sequence[Record]) -> None:
            await commit(batch)
            for record in batch:
                self._send.send_nowait(record)

        database.commit = commit_and_tell  # type: ignore[method-assign]
        return database


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WatchedHost(SimHost):
    """A simulated host whose databases are watched."""

    feed: Feed

    async def open_database(self, path: str) -> Database:
        return self.feed.watch(await super().open_database(path))


class Tour:
    """A cluster of one manager and a node in each rack, with a window into each of its parts."""

    def __init__(self, world: SimWorld, hooks: Sequence[DoorHook]) -> None:
        self.world = world
        self.feed = Feed()
        self.log: Sequence[Mapping[str, Any]] = []  # what the daemons say of themselves
        self._docker = ClusterApi(world, MANAGER)
        self._hooks = [door.hook for door in hooks]
        self._told: dict[str, AssignedTask] = {}

    async def docker(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """What the docker command sends over the manager's unix socket, and the decoded reply."""
        return await self._docker.call(method, path, body, **query)

    def assigned(self, task_id: str) -> AssignedTask:
        """The task as the agent was told of it, which hands it to its executor."""
        return self._told[task_id]

    def states_on_the_node(self, task_id: str) -> list[str]:
        """The states that the agent's state machine has gone through. Of those the newest alone travels."""
        lines = [line for line in self.log if line["event"] == "task status" and line["task"] == task_id]
        return [line["state"] for line in lines]

    def parts(self, machine_name: str) -> FakeParts:
        """The kernel and the processes of a machine."""
        parts = self.world.machines[machine_name].parts
        assert isinstance(parts, FakeParts)
        return parts

    def process(self, machine_name: str, task_id: str) -> FakeTask:
        """A task's shim and process."""
        return self.parts(machine_name).tasks.by_id[task_id]

    def links(self, machine_name: str, task_id: str) -> list[FakeLink]:
        """The links in a task's own network namespace, but for its loopback."""
        netns = self.process(machine_name, task_id).netns
        return [link for link in self.parts(machine_name).kernel.links_of(netns) if not link.loopback]

    def behave(self, task: AssignedTask) -> Behaviour:
        """Each step on the node takes a second, so that the manager hears of it."""
        self._told[task.id] = task
        return Behaviour(prepare_s=1.0, start_s=1.0)

    async def run_manager(self, host: Host) -> None:
        """The manager's daemon, its database watched."""
        watched = WatchedHost(**vars(host), feed=self.feed)
        await manager_daemon.run(watched, ManagerConfig(), more_hooks=self._hooks)

    async def start(self) -> None:
        """Start the daemons, label the nodes with their racks, and create the network."""
        self.world.start(MANAGER, self.run_manager)
        token = (await self._docker.insist("GET", "/swarm"))["JoinTokens"]["Worker"]
        managers = (f"tcp://{MANAGER}:2377",)
        config = AgentConfig(state_dir="/var/lib/beeyard/agent", managers=managers, join_token=token)
        for name in RACKS:
            self.world.start(name, functools.partial(agent_daemon.run, config=config))
        while True:
            nodes = await self.docker("GET", "/nodes")
            if [node["Status"]["State"] for node in nodes].count("ready") == len(RACKS):
                break
            await trio.sleep(0.1)
        for node in nodes:
            spec = {**node["Spec"], "Labels": {"rack": RACKS[node["Description"]["Hostname"]]}}
            await self.docker("POST", f"/nodes/{node['ID']}/update", spec, version=node["Version"]["Index"])
        for rack in RANGES:
            await self.docker("POST", "/networks/create", _pool(rack))
        await self.docker("POST", "/networks/create", _network())


@asynccontextmanager
async def a_tour(*hooks: DoorHook) -> AsyncIterator[Tour]:
    """A cluster that is ready: manager m1, node a1 in rack r1, node a2 in rack r2."""
    started: list[Tour] = []

    def parts(machine: SimMachine) -> FakeParts:
        return FakeParts(machine, script=lambda task: started[0].behave(task))

    with structlog.testing.capture_logs() as log:
        async with SimWorld(seed=1, parts=parts) as world:
            tour = Tour(world, hooks)
            started.append(tour)
            tour.log = log
            await tour.start()
            yield tour


def address_of(task: Task) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """The one address that a task was granted."""
    (grant,) = (grant for grant in task.grants if isinstance(grant, AddressGrant))
    (address,) = grant.addresses
    return ipaddress.ip_interface(address)


def _pool(rack: str) -> dict[str, object]:
    """`docker network create --config-only --subnet … --ip-range … --gateway … -o parent=eth0 --label … lan-RACK`."""
    return {
        "Name": f"lan-{rack}",
        "ConfigOnly": True,
        "IPAM": {"Config": [{"Subnet": "10.77.0.0/24", "IPRange": RANGES[rack], "Gateway": "10.77.0.1"}]},
        "Options": {"parent": "eth0"},
        "Labels": {"beeyard.config": "racks", "beeyard.nodes": f"node.labels.rack=={rack}"},
    }


def _network() -> dict[str, object]:
    """`docker network create -d macvlan --scope swarm --config-from racks lan`."""
    return {"Name": "lan", "Driver": "macvlan", "Scope": "swarm", "ConfigFrom": {"Network": "racks"}}


def a_service(image: str) -> dict[str, object]:
    """`docker service create --name web --network lan IMAGE python3 -m http.server 8000`."""
    return {
        "Name": "web",
        "TaskTemplate": {
            "ContainerSpec": {"Image": f"{image}:latest", "Args": ["python3", "-m", "http.server", "8000"]},
            "Networks": [{"Target": "lan"}],
        },
        "Mode": {"Replicated": {"Replicas": 1}},
    }


__all__ = ["RACKS", "RANGES", "DoorHook", "Feed", "Tour", "WatchedHost", "a_service", "a_tour", "address_of"]
