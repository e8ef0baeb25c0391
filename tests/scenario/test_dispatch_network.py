"""Real agents and a real dispatcher over a simulated network: what cuts, crashes and pauses do to who counts as alive."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.model import Task, TaskStatus
from beeyard.core.states import NodeState, Role, TaskState
from beeyard.manager import ca
from beeyard.manager.config import ManagerConfig
from beeyard.manager.dispatch import Dispatcher
from beeyard.manager.dispatch.assignments import TASK_BYTES_MAX
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Host
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_parts import FakeParts
from tests.support.builders import a_service, a_task, a_task_spec

N_AGENTS = 5


class DispatchCluster:
    """A machine m1 with a store, a CA and a dispatcher, and agents a0, a1, …"""

    def __init__(self, world: SimWorld, parts: dict[str, FakeParts]) -> None:
        self.world = world
        self.parts = parts
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

    def node_id(self, name: str) -> str:
        return next(node.id for node in self.store.nodes.values() if node.description.hostname == name)

    async def assign(self, name: str, *sizes: int) -> None:
        """Tasks of so many bytes for one node, in one transaction."""

        def build(tx: Transaction) -> None:
            tx.create(a_service())
            for slot, n_bytes in enumerate(sizes, start=1):
                spec = a_task_spec(args=["x" * n_bytes])
                task = a_task(f"t{slot}", slot=slot, state=TaskState.ASSIGNED, node_id=self.node_id(name), spec=spec)
                tx.create(task)

        await self.store.commit(build)

    async def until_started(self, name: str, *task_ids: str, timeout_s: float = 30.0) -> None:
        await self.world.until(lambda: self.parts[name].tasks.started == sorted(task_ids), timeout_s=timeout_s)

    def status(self, task_id: str) -> TaskStatus:
        return self.store.tasks[task_id].status

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
    parts: dict[str, FakeParts] = {}

    def make(machine: SimMachine) -> FakeParts:
        parts[machine.name] = FakeParts(machine)
        return parts[machine.name]

    async with SimWorld(1, parts=make, revive_after_s=2.0) as world:
        cluster = DispatchCluster(world, parts)
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


async def test_node_with_more_assignments_than_fit_a_frame_gets_them_and_their_removal(autojump_clock: object) -> None:
    """24 MiB of tasks are told at once and again in a new session; it removes what the store does not name, no more."""
    names = [f"t{number}" for number in range(1, 13)]
    async with a_cluster() as cluster:
        await cluster.assign("a0", *[2 << 20] * 12)
        await cluster.until_started("a0", *names)
        tasks = dict(cluster.parts["a0"].tasks.by_id)

        cluster.world.crash("a0")
        await cluster.store.commit(lambda tx: tx.delete(Task, "t12"))
        cluster.world.restart("a0")
        await cluster.until_started("a0", *names[:-1])
        await trio.sleep(30)
        assert {name: cluster.parts["a0"].tasks.by_id[name] for name in names[:-1]} == {
            name: tasks[name] for name in names[:-1]
        }, "nothing was started anew"

        await cluster.store.commit(lambda tx: [tx.delete(Task, name) for name in names[:-1]])
        await cluster.until_started("a0")
        assert cluster.count(NodeState.READY) == N_AGENTS


async def test_task_too_large_for_a_frame_is_rejected_and_disturbs_nobody(autojump_clock: object) -> None:
    """Its error says how large it is; the node's other tasks run."""
    async with a_cluster() as cluster:
        await cluster.assign("a0", 10, TASK_BYTES_MAX, 10)
        await cluster.until_started("a0", "t1", "t3")
        status = cluster.status("t2")
        assert status.state is TaskState.REJECTED
        assert status.err.endswith(
            f" bytes to tell a node of this task, more than the {TASK_BYTES_MAX} that are possible"
        )
        assert cluster.count(NodeState.READY) == N_AGENTS
