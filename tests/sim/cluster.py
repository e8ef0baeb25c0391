"""A whole cluster: one manager, agents in two racks, users and a nemesis, all from one seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.wire import AssignedTask
from beeyard.manager import daemon as manager_daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_gate import MachineParts
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers
from tests.sim.api import ClusterApi
from tests.sim.history import History, check_store_is
from tests.sim.nemesis import Nemesis
from tests.sim.sizes import Sizes, draw_sizes
from tests.sim.workload import Workload

MANAGER = "m1"
NEIGHBOUR = "m1/agent"  # the manager's machine runs tasks too
SAFETY_S = 400.0
# Heartbeats, sessions that are given up, restart delays and TCP's longest pause, one after the other.
LIVENESS_S = 400.0
# An address rests 30 s before it is free again.
COOL_DOWN_S = 40.0
# Whatever is under way while somebody looks is done by then: a stop may take 10 s of grace and some tries.
AT_REST_S = 60.0
N_RACKS = 2
FAILURES = ("prepare", "start", "stop", "links_down", "remove", "renew_lease")


def parts(machine: SimMachine) -> MachineParts:
    """Every machine has a kernel; tasks take their time and some fail."""
    return FakeParts(machine, script=functools.partial(behaviour, machine.rng))


def behaviour(rng: random.Random, task: AssignedTask) -> Behaviour:
    """One task's fate."""
    ends = rng.random() < 0.1
    return Behaviour(
        prepare_s=rng.uniform(0.0, 0.3),
        start_s=rng.uniform(0.0, 0.3),
        run_s=rng.uniform(5.0, 200.0) if ends else float("inf"),
        exit_code=rng.choice((0, 1)),
        stop_s=rng.choice((0.0, 0.1, 1.0, 20.0)),
        links_down_s=rng.choice((0.0, 0.0, 0.5)),
        fail_at=rng.choice(FAILURES) if rng.random() < 0.1 else "",
        n_failures=rng.choice((1, 3)),
    )


async def run_manager(host: Host) -> None:
    """The manager's daemon."""
    await manager_daemon.run(host, ManagerConfig(advertise=f"tcp://{MANAGER}:2377"))


async def run_agent(token: str, host: Host) -> None:
    """An agent's daemon."""
    config = AgentConfig(state_dir="/var/lib/beeyard/agent", managers=(f"tcp://{MANAGER}:2377",), join_token=token)
    await agent_daemon.run(host, config)


class Cluster:
    """The cluster of one world."""

    def __init__(self, world: SimWorld, sizes: Sizes) -> None:
        self.world = world
        self.sizes = sizes
        self.api = ClusterApi(world, MANAGER)
        self.agents = [f"a{number}" for number in range(1, sizes.n_agents + 1)]

    async def start(self) -> list[str]:
        """Start everything on a network that works; gives the ids of the networks for services."""
        self.world.start(MANAGER, run_manager)
        swarm = await self.api.insist("GET", "/swarm")
        daemon = functools.partial(run_agent, swarm["JoinTokens"]["Worker"])
        self.world.start(NEIGHBOUR, daemon, machine=MANAGER)
        for name in self.agents:
            self.world.start(name, daemon)
        await self.until_ready()
        await self.label_racks()
        return [await self.create_networks()]

    async def until_ready(self, *, timeout_s: float = 60.0) -> None:
        """Every agent is a node that can be reached."""
        with trio.fail_after(timeout_s):
            while True:
                nodes = await self.api.insist("GET", "/nodes")
                if sum(node["Status"]["State"] == "ready" for node in nodes) > len(self.agents):
                    return
                await trio.sleep(0.5)

    async def label_racks(self) -> None:
        """Odd numbers are in rack r1, even ones in r2."""
        for node in await self.api.insist("GET", "/nodes"):
            rack = "r1" if int(node["Description"]["Hostname"][1:]) % N_RACKS else "r2"
            spec = {**node["Spec"], "Labels": {"rack": rack}}
            version = node["Version"]["Index"]
            await self.api.call("POST", f"/nodes/{node['ID']}/update", spec, version=version)

    async def create_networks(self) -> str:
        """A pool for each rack, so small that addresses are soon used again, and the network that draws from both."""
        for rack, first in (("r1", "10.77.0.64"), ("r2", "10.77.0.96")):
            await self.api.call("POST", "/networks/create", a_pool(rack, f"{first}/{self.sizes.prefix}"))
        lan = {"Name": "lan", "Driver": "macvlan", "Scope": "swarm", "ConfigFrom": {"Network": "racks"}}
        made = await self.api.call("POST", "/networks/create", lan)
        network_id: str = made["Id"]
        return network_id

    async def check_books(self) -> None:
        """What the API says of the addresses adds up."""
        checkers.check_books(await self._inspect_network(), n_addresses=self.sizes.n_addresses)

    async def check_books_are_empty(self) -> None:
        """All addresses are free, says the API."""
        checkers.check_books_are_empty(await self._inspect_network(), n_addresses=self.sizes.n_addresses)

    async def check_slots(self) -> None:
        """Each slot runs once, on all machines together."""
        checkers.check_slots(self.world, [task["ID"] for task in await self.tasks()])

    async def _inspect_network(self) -> dict[str, Any]:
        network: dict[str, Any] = await self.api.insist("GET", "/networks/lan")
        return network

    async def tasks(self, **filters: Any) -> list[dict[str, Any]]:
        """Every task that the manager knows."""
        found: list[dict[str, Any]] = await self.api.insist("GET", "/tasks")
        return found


def a_pool(rack: str, ip_range: str) -> dict[str, Any]:
    """What the docker command sends for the pool of one rack."""
    return {
        "Name": f"lan-{rack}",
        "ConfigOnly": True,
        "IPAM": {"Config": [{"Subnet": "10.77.0.0/24", "IPRange": ip_range, "Gateway": "10.77.0.1"}]},
        "Options": {"parent": "eth0"},
        "Labels": {"beeyard.config": "racks", "beeyard.nodes": f"node.labels.rack=={rack}"},
    }


async def scenario(world: SimWorld) -> None:
    """Users and a nemesis for a while, then rest, then nothing."""
    cluster = Cluster(world, draw_sizes(world.generator("sizes")))
    world.trace.event("world", str(cluster.sizes))
    for name in (MANAGER, *cluster.agents):
        world.machine(name)
    history = History(world, ManagerConfig().store_path)
    history.watch(MANAGER)
    nemesis = Nemesis(world, managers=[MANAGER], agents=cluster.agents, neighbours=[NEIGHBOUR])
    network_ids = await cluster.start()
    workload = Workload(world, cluster.api, network_ids, cluster.sizes)
    nemesis.next_answer = workload.next_answer
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checkers.watch_machines, world)
        nemesis.prepare()
        await _break_things(nemesis, workload)
        await cluster.until_ready(timeout_s=LIVENESS_S)
        await workload.activate_all()
        await _until_converged(cluster, workload)
        await workload.check_promises()
        await _until_it_holds(cluster.check_slots)
        await _until_it_holds(cluster.check_books)
        await workload.remove_all()
        await _until_empty(cluster)
        nursery.cancel_scope.cancel()
    checkers.check_nothing_is_left(world)
    await _until_it_holds(cluster.check_books_are_empty)
    world.power_cut(MANAGER)
    await check_store_is(history, MANAGER)


async def _break_things(nemesis: Nemesis, workload: Workload) -> None:
    """The phase in which anything may break; what holds is checked beside it."""
    with trio.move_on_after(SAFETY_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.run)
            nursery.start_soon(workload.run, 2.0)
    nemesis.heal()


async def _until_converged(cluster: Cluster, workload: Workload) -> None:
    """Every service has its replicas running; `tests/sim/sizes.py` sees to it that all fit."""
    wanted = await workload.wanted_tasks()
    deadline = trio.current_time() + LIVENESS_S
    while True:
        tasks = await cluster.tasks()
        running = [task for task in tasks if task["Status"]["State"] == "running" and task["DesiredState"] == "running"]
        # Tasks that end by themselves are replaced after a second: nearly all, at one moment, is all there ever is.
        if len(running) >= wanted - wanted // 5:
            return
        assert trio.current_time() < deadline, (
            f"{len(running)} of {wanted} tasks run {LIVENESS_S:g} s after everything was healed: {_waiting(tasks)}"
        )
        await trio.sleep(1)


async def _until_empty(cluster: Cluster) -> None:
    """No task is left, and every address has rested."""
    deadline = trio.current_time() + LIVENESS_S
    while True:
        tasks = await cluster.tasks()
        if not tasks and not any(checkers.running_tasks(machine) for machine in cluster.world.machines.values()):
            break
        assert trio.current_time() < deadline, f"not gone after {LIVENESS_S:g} s: {_waiting(tasks)}"
        await trio.sleep(1)
    await trio.sleep(COOL_DOWN_S)


async def _until_it_holds(check: Callable[[], Awaitable[None]]) -> None:
    """A check passes, at the latest when everything that is under way has ended."""
    deadline = trio.current_time() + AT_REST_S
    while True:
        try:
            await check()
            return
        except AssertionError:
            if trio.current_time() >= deadline:
                raise
        await trio.sleep(1)


def _waiting(tasks: list[dict[str, Any]]) -> list[str]:
    """The first few tasks that do not run, with why."""
    return [
        f"{task['ID'][:8]} {task['Status']['State']} of {task['DesiredState']}: "
        f"{task['Status'].get('Err') or task['Status'].get('Message')}"
        for task in tasks
        if task["Status"]["State"] != task["DesiredState"]
    ][:5]
