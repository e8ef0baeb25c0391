"""Directed stories of a small cluster, with the checkers of the large one: for defects that random work seldom comes upon.

Each leads to the one situation in which a defect shows, and checks nothing itself: what holds is said in one place, by the
store's history, the machines' kernels and the plugin's books.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from beeyard.runtime.fake_executor import Behaviour
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_gate import MachineParts
from beeyard.runtime.sim_parts import FakeParts
from tests.sim import checkers, layout
from tests.sim.cluster import CONFIG, MANAGER, Cluster
from tests.sim.history import History
from tests.sim.layout import LAN, PLUGIN_NETWORK, RACKS, Layout
from tests.sim.plugin import ClusterPlugin
from tests.sim.rest import COOL_DOWN_S, until_empty, until_it_holds
from tests.sim.sizes import Sizes
from tests.sim.strangers import Strangers

# One machine in rack r2 and two in r1, each rack with four addresses.
SIZES = Sizes(n_agents=2, n_services=2, n_tasks=8, prefix=30, units=(0,))
N_ADDRESSES = 2 * SIZES.n_addresses
WITH_PLUGIN = Layout(has_ipv6=False, has_host_access=False, plugin="local", vlan_mode="", second="", has_bare=False)
PATIENCE_S = 60.0
# Within the rest of an address, and with that within the time for which one is put aside; long enough for tasks to be placed
# many times.
WHILE_S = 20.0


def parts(machine: SimMachine) -> MachineParts:
    """Every machine has a kernel; tasks run until they are told to stop."""
    return FakeParts(
        machine, links=layout.machine_links(machine.ip), kinds=layout.KINDS, script=lambda task: Behaviour()
    )


class Stage:
    """A cluster and who watches it."""

    def __init__(self, world: SimWorld, networks: Layout) -> None:
        self.world = world
        self.cluster = Cluster(world, SIZES, networks)
        for name in (MANAGER, *self.cluster.agents):
            world.machine(name)
        self.plugin = ClusterPlugin(world, networks.plugin, MANAGER) if networks.plugin else None
        self.strangers = Strangers(world)
        self.strangers.watch()
        self.history = History(world, CONFIG.store_path, put_aside_s=CONFIG.put_aside_s)
        self.history.watch(MANAGER)
        self._network_ids: dict[str, str] = {}

    async def start(self) -> None:
        """Everything works."""
        if self.plugin is not None:
            await self.plugin.start()
        self._network_ids = await self.cluster.start()

    async def create(
        self, name: str, replicas: int, *, network: str = LAN, labels: dict[str, str] | None = None
    ) -> None:
        """A service of tasks that need an address each."""
        body = {
            "Name": name,
            "Labels": labels or {},
            "TaskTemplate": {
                "ContainerSpec": {"Image": "host:latest", "Args": ["sleep", "1000"]},
                "RestartPolicy": {"Condition": "any", "Delay": 1_000_000_000},
                "Networks": [{"Target": self._network_ids[network]}],
            },
            "Mode": {"Replicated": {"Replicas": replicas}},
        }
        await self.cluster.api.call("POST", "/services/create", body)

    async def scale(self, name: str, replicas: int) -> None:
        """Ask for another number of tasks."""
        shown = await self.cluster.api.insist("GET", f"/services/{name}")
        spec = {**shown["Spec"], "Mode": {"Replicated": {"Replicas": replicas}}}
        await self.cluster.api.call("POST", f"/services/{name}/update", spec, version=shown["Version"]["Index"])

    async def remove(self, name: str) -> None:
        """Remove a service."""
        await self.cluster.api.insist("DELETE", f"/services/{name}")

    async def restart_manager(self) -> None:
        """It dies, and another process takes over what is on disk."""
        self.world.crash(MANAGER)
        await trio.sleep(1)
        self.world.restart(MANAGER)
        await self.cluster.api.insist("GET", "/info")

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for something that the story needs to go on."""
        with trio.move_on_after(PATIENCE_S):
            while not holds():  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        raise AssertionError(f"the story does not come so far: {what}")

    def n_running(self) -> int:
        """Tasks that run, on all machines."""
        return sum(len(checkers.running_tasks(machine)) for machine in self.world.machines.values())


@asynccontextmanager
async def _stage(world: SimWorld, networks: Layout = layout.PLAIN) -> AsyncIterator[Stage]:
    """A cluster that runs, is watched, and of which nothing is left in the end."""
    stage = Stage(world, networks)
    await stage.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checkers.watch_machines, world, stage.strangers)
        yield stage
        stage.strangers.leave_all()
        for service in await stage.cluster.api.insist("GET", "/services"):
            await stage.remove(service["ID"])
        await until_empty(stage.cluster)
        nursery.cancel_scope.cancel()
    checkers.check_nothing_is_left(world)
    await until_it_holds(stage.cluster.check_books_are_empty)


async def strangers_are_remembered(world: SimWorld) -> None:
    """What was put aside stays so under a new manager, which has no other address left to give."""
    async with _stage(world) as stage:
        firsts = [first for first, _ in RACKS.values()]
        for address in firsts:
            stage.strangers.arrive(address)
        await stage.create("web", N_ADDRESSES)
        await stage.until("strangers are met", lambda: _n_found(stage.history) == len(firsts))
        stage.strangers.leave_all()
        await stage.restart_manager()
        await trio.sleep(COOL_DOWN_S + WHILE_S)  # The rest of an ended task's address is over by then.
        assert stage.n_running() == N_ADDRESSES - len(firsts)


def _n_found(history: History) -> int:
    return len({conflict.address for task in history.tasks.values() for conflict in task.status.conflicts})


async def pins_are_kept(world: SimWorld) -> None:
    """Addresses that are pinned to slots without a task go to nobody, however much others want them."""
    async with _stage(world) as stage:
        first = ipaddress.ip_address(RACKS["r1"][0])
        labels = {"beeyard.on-isolation": "fence", "beeyard.addresses": f"{first}-{first + 1}"}
        await stage.create("db", 0, labels=labels)
        await stage.create("web", N_ADDRESSES)
        await trio.sleep(WHILE_S)
        await stage.restart_manager()
        await trio.sleep(WHILE_S)
        await stage.scale("db", 2)
        await stage.until("all addresses are in use", lambda: stage.n_running() == N_ADDRESSES)


async def ends_are_remembered(world: SimWorld) -> None:
    """Addresses of a service that was removed rest to the end also when the manager is replaced meanwhile, and again."""
    async with _stage(world) as stage:
        await stage.create("web", N_ADDRESSES)
        await stage.until("all run", lambda: stage.n_running() == N_ADDRESSES)
        await stage.remove("web")
        await stage.until(
            "all have ended", lambda: all(t.status.state.is_terminal for t in stage.history.tasks.values())
        )
        ended_s = trio.current_time()
        await stage.create("next", N_ADDRESSES)
        await trio.sleep(2)  # Whoever cleans up has done so.
        for _ in range(2):
            await stage.restart_manager()
            await trio.sleep(2)
        assert trio.current_time() < ended_s + WHILE_S
        await stage.until("all run again", lambda: stage.n_running() == N_ADDRESSES)
        assert trio.current_time() < ended_s + 2 * COOL_DOWN_S


async def leases_of_nobody_go_back(world: SimWorld) -> None:
    """What a plugin gave and the manager did not live to hear goes back to it, asked for by the next one."""
    async with _stage(world, WITH_PLUGIN) as stage:
        assert stage.plugin is not None
        plugin = stage.plugin.plugin
        right, plugin.script = plugin.script, lambda method, body: "late" * method.endswith("RequestAddress")
        before = len(plugin.books.held)
        await stage.create("web", 1, network=PLUGIN_NETWORK)
        await stage.until("the plugin has given an address", lambda: len(plugin.books.held) > before)
        plugin.script = right
        await stage.restart_manager()
        await until_it_holds(functools.partial(_agree, stage))


async def _agree(stage: Stage) -> None:
    assert stage.plugin is not None
    assert stage.n_running() == 1
    stage.plugin.check_books(stage.history)
    await trio.lowlevel.checkpoint()


STORIES: dict[str, Any] = {
    story.__name__.replace("_", "-"): story
    for story in (strangers_are_remembered, pins_are_kept, ends_are_remembered, leases_of_nobody_go_back)
}

__all__ = ["STORIES", "Stage", "parts"]
