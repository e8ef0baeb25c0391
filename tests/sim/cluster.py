"""A whole cluster: one manager, agents in two racks, an IPAM plugin, users, operators and a nemesis, all from one seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.grant import AddressGrant
from beeyard.core.model import Task
from beeyard.core.wire import AssignedTask
from beeyard.manager import daemon as manager_daemon
from beeyard.manager.config import ManagerConfig
from beeyard.manager.ipam.ask import LATE_S
from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_gate import MachineParts
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers, layout, volumes
from tests.sim.api import ClusterApi, Refused
from tests.sim.history import History, check_store_is
from tests.sim.layout import LAN, PLUGIN_NETWORK, RACKS, Layout, draw_layout
from tests.sim.nemesis import Fault, Nemesis
from tests.sim.node_hooks import POLICY, HookScripts, check_hook_order, check_hooks_are_paired
from tests.sim.plugin import ClusterPlugin
from tests.sim.pool_changes import PoolOperator
from tests.sim.ports import check_every_port_leads
from tests.sim.rest import AT_REST_S, LIVENESS_S, OTHERS_S, until_converged, until_empty, until_it_holds
from tests.sim.services import DEVICES
from tests.sim.sizes import Sizes, draw_sizes
from tests.sim.strangers import Strangers
from tests.sim.visitors import Visitors
from tests.sim.workload import Workload

log = structlog.get_logger(__name__)

MANAGER = "m1"
NEIGHBOUR = "m1/agent"  # the manager's machine runs tasks too
SAFETY_S = 400.0
PLUGIN_ASKED_S = 35.0  # by then a plugin that is out is tried again
# What a plugin was asked when its machine lost power is waited for longest, and then asked again.
PLUGIN_AT_REST_S = LATE_S + AT_REST_S
N_RACKS = 2
# Nobody is given an address that a stranger had for so long: beyond an address's rest, and soon over.
CONFIG = ManagerConfig(advertise=f"tcp://{MANAGER}:2377", put_aside_s=90.0)
FAILURES = ("prepare", "start", "stop", "links_down", "remove", "renew_lease")


def parts(machine: SimMachine) -> MachineParts:
    """Every machine has a kernel; tasks take their time and some fail."""
    script = functools.partial(behaviour, machine.rng)
    return FakeParts(machine, links=layout.machine_links(machine.ip), kinds=layout.KINDS, script=script)


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
    await manager_daemon.run(host, CONFIG)


async def run_agent(token: str, host: Host) -> None:
    """An agent's daemon."""
    config = AgentConfig(
        state_dir="/var/lib/beeyard/agent",
        managers=(f"tcp://{MANAGER}:2377",),
        join_token=token,
        hooks=POLICY,
        generic_resources=DEVICES,
        volumes_dir=volumes.VOLUMES_DIR,
    )
    await agent_daemon.run(host, config)


class Cluster:
    """The cluster of one world."""

    def __init__(self, world: SimWorld, sizes: Sizes, networks: Layout = layout.PLAIN) -> None:
        self.world = world
        self.sizes = sizes
        self.networks = networks
        self.api = ClusterApi(world, MANAGER)
        self.agents = [f"a{number}" for number in range(1, sizes.n_agents + 1)]

    async def start(self) -> dict[str, str]:
        """Start everything on a network that works; gives the ids of the networks for services by their names."""
        self.world.start(MANAGER, run_manager)
        swarm = await self.api.insist("GET", "/swarm")
        daemon = functools.partial(run_agent, swarm["JoinTokens"]["Worker"])
        self.world.start(NEIGHBOUR, daemon, machine=MANAGER)
        for name in self.agents:
            self.world.start(name, daemon)
        await self.until_ready()
        await self.label_racks()
        await volumes.create_volumes(self.api)
        return await self.create_networks()

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

    async def create_networks(self) -> dict[str, str]:
        """A pool for each rack, so small that addresses are soon used again, and all networks."""
        for rack, firsts in RACKS.items():
            body = self.networks.pool(f"lan-{rack}", firsts, self.sizes.prefix, f"node.labels.rack=={rack}")
            await self.api.call("POST", "/networks/create", body)
        made: dict[str, str] = {}
        for body in self.networks.creations():
            made[body["Name"]] = (await self.api.call("POST", "/networks/create", body))["Id"]
        return made

    async def remove_networks(self) -> None:
        """Those of services. A request that was not answered may have been carried out."""
        for name in self.networks.names():
            try:
                await self.api.insist("DELETE", f"/networks/{name}")
            except Refused as refused:
                if refused.status != 404:
                    raise

    async def check_newcomer(self, network: str) -> None:
        """A new service runs soon, while one on a network whose plugin is broken waits."""
        with trio.move_on_after(OTHERS_S) as limit:
            await self._insist_on_service("waits", [network])
            await trio.sleep(PLUGIN_ASKED_S)
            service_id = await self._insist_on_service("newcomer", [])
            while not any(  # noqa: ASYNC110
                task["ServiceID"] == service_id and task["Status"]["State"] == "running" for task in await self.tasks()
            ):
                await trio.sleep(1)
        assert not limit.cancelled_caught, f"no new service runs within {OTHERS_S:g} s because of a plugin"
        for name in ("waits", "newcomer"):
            await self.api.insist("DELETE", f"/services/{name}")

    async def _insist_on_service(self, name: str, networks: list[str]) -> str:
        """Create a service of one task that needs no room; gives its id."""
        body = {
            "Name": name,
            "TaskTemplate": {
                "ContainerSpec": {"Image": "host:latest", "Args": ["sleep", "1000"]},
                "RestartPolicy": {"Condition": "any", "Delay": 1_000_000_000},
                "Networks": [{"Target": network} for network in networks],
            },
            "Mode": {"Replicated": {"Replicas": 1}},
        }
        try:
            await self.api.insist("POST", "/services/create", body)
        except Refused as refused:
            if refused.status != 409:  # an attempt without an answer was carried out
                raise
        service_id: str = (await self.api.insist("GET", f"/services/{name}"))["ID"]
        return service_id

    async def check_books(self) -> None:
        """What the API says of the addresses adds up."""
        services = await self.api.insist("GET", "/services")
        pinned = any("beeyard.addresses" in service["Spec"]["Labels"] for service in services)
        checkers.check_books(await self._inspect_network(), await self._pools(), pinned=pinned)

    async def check_books_are_empty(self) -> None:
        """All addresses are free, says the API."""
        checkers.check_books_are_empty(await self._inspect_network(), await self._pools())

    async def check_slots(self) -> None:
        """Each slot runs once, on all machines together."""
        checkers.check_slots(self.world, [task["ID"] for task in await self.tasks()])

    async def _inspect_network(self) -> dict[str, Any]:
        network: dict[str, Any] = await self.api.insist("GET", f"/networks/{LAN}")
        return network

    async def _pools(self) -> list[dict[str, Any]]:
        return [network for network in await self.api.insist("GET", "/networks") if network["ConfigOnly"]]

    async def tasks(self, **filters: Any) -> list[dict[str, Any]]:
        """Every task that the manager knows."""
        found: list[dict[str, Any]] = await self.api.insist("GET", "/tasks")
        return found


async def scenario(world: SimWorld) -> None:
    """Users and a nemesis for a while, then rest, then nothing."""
    await Story(world).play()


class Story:
    """Everybody in one world, and what happens one after the other."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        networks = draw_layout(world.generator("layout"))
        self.cluster = cluster = Cluster(world, draw_sizes(world.generator("sizes")), networks)
        world.trace.event("world", f"{cluster.sizes}; {networks}")
        for name in (MANAGER, *cluster.agents):
            world.machine(name)
        self.plugin = ClusterPlugin(world, networks.plugin, MANAGER) if networks.plugin else None
        self.hooks = HookScripts(world.generator("hooks"))
        for name in (MANAGER, *cluster.agents):
            self.hooks.install(world.machine(name))
            volumes.install(world.machine(name))
        self.strangers = Strangers(world)
        self.strangers.watch()
        self.visitors = Visitors(world, self.strangers, networks, cluster.sizes)
        self.history = History(world, CONFIG.store_path, put_aside_s=CONFIG.put_aside_s)
        self.history.watch(MANAGER)
        others: dict[str, Fault] = {**self.visitors.faults, **(self.plugin.faults if self.plugin else {})}
        self.nemesis = Nemesis(world, managers=[MANAGER], agents=cluster.agents, neighbours=[NEIGHBOUR], others=others)

    async def play(self) -> None:
        """From the first start to the last power cut."""
        if self.plugin is not None:
            await self.plugin.start()
        self.workload = Workload(
            self.world, self.cluster.api, self.cluster.networks, await self.cluster.start(), self.cluster.sizes
        )
        self.nemesis.next_answer = self.workload.next_answer
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkers.watch_machines, self.world, self.strangers)
            self.nemesis.prepare()
            await self._break_things()
            await self._come_to_rest()
            await self.workload.remove_all()
            await until_empty(self.cluster)
            nursery.cancel_scope.cancel()
        await self._check_nothing_is_left()
        self.world.power_cut(MANAGER)
        await check_store_is(self.history, MANAGER)

    async def _break_things(self) -> None:
        """The phase in which anything may break; what holds is checked beside it."""
        if self.plugin is not None:
            self.plugin.misbehave()
        operator = PoolOperator(self.world, self.cluster.api, self.cluster.networks, self.cluster.sizes)
        with trio.move_on_after(SAFETY_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.nemesis.run)
                nursery.start_soon(self.workload.run, 2.0)
                nursery.start_soon(operator.run)
        self.nemesis.heal()
        self.visitors.heal()
        self.hooks.calm()
        if self.plugin is not None:
            self.plugin.heal()

    async def _come_to_rest(self) -> None:
        """All that was promised comes true, first without the plugin if there is one."""
        cluster, workload = self.cluster, self.workload
        if self.plugin is not None:
            self.plugin.break_for_good()
        await cluster.until_ready(timeout_s=LIVENESS_S)
        await workload.activate_all()
        if self.plugin is not None:
            await until_converged(cluster, workload, without=PLUGIN_NETWORK)
            await cluster.check_newcomer(PLUGIN_NETWORK)
            self.plugin.heal()
        await until_converged(cluster, workload)
        await workload.check_promises()
        log.info("tasks have an interface for themselves", n=sum(map(has_interface, self.history.tasks.values())))
        await until_it_holds(cluster.check_slots)
        await until_it_holds(cluster.check_books)
        await until_it_holds(_as_async(checkers.check_routes, self.world))
        await until_it_holds(_as_async(check_every_port_leads, self.world))
        await until_it_holds(functools.partial(volumes.check_volumes_are_where_tasks_are, cluster.api))
        if self.plugin is not None:
            await until_it_holds(_as_async(self.plugin.check_books, self.history), within_s=PLUGIN_AT_REST_S)

    async def _check_nothing_is_left(self) -> None:
        """Of any task on any machine, in the manager's books and in its plugin's."""
        checkers.check_nothing_is_left(self.world)
        check_hook_order(self.world)
        check_hooks_are_paired(self.world)
        await until_it_holds(self.cluster.check_books_are_empty)
        if self.plugin is not None:
            await until_it_holds(functools.partial(self._check_plugin, pools=False), within_s=PLUGIN_AT_REST_S)
            await self.cluster.remove_networks()
            await until_it_holds(functools.partial(self._check_plugin, pools=True))

    async def _check_plugin(self, *, pools: bool) -> None:
        assert self.plugin is not None
        self.plugin.check_books_are_empty(self.history, pools=pools)
        await trio.lowlevel.checkpoint()


def has_interface(task: Task) -> bool:
    """Whether a task has a link that takes a whole interface of its host."""
    modes = [grant.mode for grant in task.grants if isinstance(grant, AddressGrant)]
    return task.holds_room and "passthru" in modes


def _as_async(check: Callable[..., None], *arguments: Any) -> Callable[[], Awaitable[None]]:
    async def checked() -> None:
        check(*arguments)
        await trio.lowlevel.checkpoint()

    return checked
