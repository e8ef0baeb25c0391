"""A whole cluster: one manager, agents in two racks, users and a nemesis, all from one seed."""

from __future__ import annotations

import functools
import random
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
from tests.sim.nemesis import Nemesis
from tests.sim.workload import Workload

MANAGER = "m1"
N_AGENTS = 20
SAFETY_S = 600.0
# Heartbeats, sessions that are given up, restart delays and TCP's longest pause, one after the other.
LIVENESS_S = 400.0
# An address rests 30 s before it is free again.
COOL_DOWN_S = 40.0


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
        fail_at=rng.choice(("prepare", "start")) if rng.random() < 0.03 else "",
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

    def __init__(self, world: SimWorld, n_agents: int = N_AGENTS) -> None:
        self.world = world
        self.api = ClusterApi(world, MANAGER)
        self.agents = [f"a{number}" for number in range(1, n_agents + 1)]

    async def start(self) -> list[str]:
        """Start everything on a network that works; gives the ids of the networks for services."""
        self.world.start(MANAGER, run_manager)
        swarm = await self.api.insist("GET", "/swarm")
        for name in self.agents:
            self.world.start(name, functools.partial(run_agent, swarm["JoinTokens"]["Worker"]))
        await self.until_ready()
        await self.label_racks()
        return [await self.create_networks()]

    async def until_ready(self, *, timeout_s: float = 60.0) -> None:
        """Every agent is a node that can be reached."""
        with trio.fail_after(timeout_s):
            while True:
                nodes = await self.api.insist("GET", "/nodes")
                if sum(node["Status"]["State"] == "ready" for node in nodes) >= len(self.agents):
                    return
                await trio.sleep(0.5)

    async def label_racks(self) -> None:
        """Odd agents are in rack r1, even ones in r2."""
        for node in await self.api.insist("GET", "/nodes"):
            name = node["Description"]["Hostname"]
            if name in self.agents:
                rack = "r1" if int(name[1:]) % 2 else "r2"
                spec = {**node["Spec"], "Labels": {"rack": rack}}
                version = node["Version"]["Index"]
                await self.api.call("POST", f"/nodes/{node['ID']}/update", spec, version=version)

    async def create_networks(self) -> str:
        """A pool for each rack, so small that addresses are soon used again, and the network that draws from both."""
        for rack, ip_range in (("r1", "10.77.0.64/27"), ("r2", "10.77.0.96/27")):
            await self.api.call("POST", "/networks/create", a_pool(rack, ip_range))
        lan = {"Name": "lan", "Driver": "macvlan", "Scope": "swarm", "ConfigFrom": {"Network": "racks"}}
        made = await self.api.call("POST", "/networks/create", lan)
        network_id: str = made["Id"]
        return network_id

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
    cluster = Cluster(world)
    for name in (MANAGER, *cluster.agents):
        world.machine(name)
    nemesis = Nemesis(world, managers=[MANAGER], agents=cluster.agents)
    network_ids = await cluster.start()
    workload = Workload(world, cluster.api, network_ids, n_services=6, n_tasks=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checkers.watch_machines, world)
        nemesis.prepare()
        await _break_things(nemesis, workload)
        await cluster.until_ready(timeout_s=LIVENESS_S)
        await _until_converged(cluster, workload)
        await workload.check_promises()
        await workload.remove_all()
        await _until_empty(cluster)
        nursery.cancel_scope.cancel()
    checkers.check_nothing_is_left(world)
    await _check_no_address_leaked(cluster, network_ids[0])
    world.power_cut(MANAGER)
    await checkers.check_states_only_grew(world, MANAGER, ManagerConfig().store_path)


async def _break_things(nemesis: Nemesis, workload: Workload) -> None:
    """The phase in which anything may break; what holds is checked beside it."""
    with trio.move_on_after(SAFETY_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.run)
            nursery.start_soon(workload.run, 3.0)
    nemesis.heal()


async def _until_converged(cluster: Cluster, workload: Workload) -> None:
    """Every service has its replicas running. 64 addresses serve at most 60 tasks, so all fit."""
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


async def _check_no_address_leaked(cluster: Cluster, network_id: str) -> None:
    """The manager's books are empty too."""
    network = await cluster.api.insist("GET", f"/networks/{network_id}")
    assert not network["Containers"], network["Containers"]
    used = [
        (name, pool)
        for name, pool in (network.get("Status") or {}).items()
        if isinstance(pool, dict) and any(pool.get(key) for key in ("Used", "Cooling"))
    ]
    assert used == [], used


def _waiting(tasks: list[dict[str, Any]]) -> list[str]:
    """The first few tasks that do not run, with why."""
    return [
        f"{task['ID'][:8]} {task['Status']['State']} of {task['DesiredState']}: "
        f"{task['Status'].get('Err') or task['Status'].get('Message')}"
        for task in tasks
        if task["Status"]["State"] != task["DesiredState"]
    ][:5]
