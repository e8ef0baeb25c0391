"""Real agents and a real dispatcher over a simulated network: what cuts, crashes and pauses do to who counts as alive."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.states import NodeState, Role
from beeyard.manager import ca
from beeyard.manager.config import ManagerConfig
from beeyard.manager.dispatch import Dispatcher
from beeyard.manager.store import Store
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimWorld

N_AGENTS = 5


class DispatchCluster:
    """A machine m1 with a store, a CA and a dispatcher, and agents a0, a1, …"""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.store: Store
        self.authority: ca.Authority
        self.dispatcher: Dispatcher

    async def manager(self, host: Host) -> None:
        config = ManagerConfig()
        async with trio.open_nursery() as nursery:
            self.store = await Store.open(host, config.store_path)
            await nursery.start(self.store.run)
            self.authority = await ca.bootstrap(host, self.store, config)
            self.dispatcher = Dispatcher(host, self.store, config, self.authority)
            await nursery.start(self.dispatcher.run)

    async def agent(self, host: Host) -> None:
        address = f"tcp://{self.world.machine('m1').ip}:2377"
        token = self.authority.join_token(Role.WORKER)
        config = AgentConfig(state_dir="/var/lib/beeyard/agent", managers=(address,), join_token=token)
        await agent_daemon.run(host, config)

    def state(self, name: str) -> NodeState:
        by_name = {node.description.hostname: node.status.state for node in self.store.nodes.values()}
        return by_name[name]

    def count(self, state: NodeState) -> int:
        return [node.status.state for node in self.store.nodes.values()].count(state)

    async def all_ready(self, timeout_s: float) -> None:
        await self.world.until(lambda: self.count(NodeState.READY) == N_AGENTS, timeout_s=timeout_s)


@asynccontextmanager
async def a_cluster() -> AsyncIterator[DispatchCluster]:
    """All agents are READY and the grace of the start is over."""
    async with SimWorld(1, revive_after_s=2.0) as world:
        cluster = DispatchCluster(world)
        world.start("m1", cluster.manager)
        await trio.sleep(2)
        for number in range(N_AGENTS):
            world.start(f"a{number}", cluster.agent)
        await cluster.all_ready(20)
        await trio.sleep(30)
        yield cluster
        assert len(cluster.store.nodes) == N_AGENTS, "nobody had to join twice"
        assert world.handler_errors == []
        assert world.exits == []


async def test_node_that_is_cut_off_is_down_and_comes_back(autojump_clock: object) -> None:
    """DOWN within 15 s and a tick, READY again soon after the cut is healed."""
    async with a_cluster() as cluster:
        cluster.world.isolate("a0")
        await trio.sleep(9)
        assert cluster.count(NodeState.READY) == N_AGENTS
        await trio.sleep(8)
        assert cluster.state("a0") is NodeState.DOWN
        assert cluster.count(NodeState.READY) == N_AGENTS - 1
        assert cluster.dispatcher.mass_failure == ""
        cluster.world.heal()
        await cluster.all_ready(30)


async def test_connections_that_break_disturb_nobody(autojump_clock: object) -> None:
    """Agents whose connections are cut again and again reconnect before they count as down."""
    async with a_cluster() as cluster:
        for _ in range(10):
            for number in range(N_AGENTS):
                cluster.world.cut("m1", f"a{number}")
            await trio.sleep(12)
            assert cluster.count(NodeState.READY) == N_AGENTS


async def test_manager_that_is_cut_off_believes_nothing(autojump_clock: object) -> None:
    """All nodes are DOWN in its eyes, and at no moment may anything be replaced."""
    async with a_cluster() as cluster:
        cluster.world.isolate("m1")
        for _ in range(1200):
            await trio.sleep(0.1)
            assert cluster.count(NodeState.DOWN) == 0 or cluster.dispatcher.mass_failure
        assert cluster.count(NodeState.DOWN) == N_AGENTS
        cluster.world.heal()
        await cluster.all_ready(30)
        assert cluster.dispatcher.mass_failure == ""


async def test_manager_that_was_paused_declares_nobody_down(autojump_clock: object) -> None:
    """It slept for a minute, they did not."""
    async with a_cluster() as cluster:
        cluster.world.pause("m1")
        await trio.sleep(60)
        cluster.world.resume("m1")
        for _ in range(400):
            await trio.sleep(0.1)
            assert cluster.count(NodeState.DOWN) == 0
        await cluster.all_ready(1)


async def test_manager_that_crashes_or_loses_power_finds_its_nodes_again(autojump_clock: object) -> None:
    """Everybody is UNKNOWN at first, nobody is ever DOWN, and nobody has to join again."""
    async with a_cluster() as cluster:
        world = cluster.world
        for stop, start in (
            (lambda: world.crash("m1"), lambda: world.restart("m1")),
            (lambda: world.power_cut("m1"), lambda: world.power_on("m1")),
        ):
            stop()
            await trio.sleep(60)
            start()
            for _ in range(300):
                await trio.sleep(0.1)
                assert cluster.count(NodeState.DOWN) == 0
            await cluster.all_ready(10)
