"""What the dispatcher makes of gossip's doubts: it asks at once and waits less, and whoever answers is alive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from beeyard.core.states import NodeState
from beeyard.core.wire import Heartbeat, LeaseRenewed, Probe, Refused
from beeyard.manager.dispatch.liveness import GOSSIP_FAILURE
from beeyard.runtime.host import PeerCertificate
from tests.support.builders import a_membership
from tests.support.dispatch_world import A_DESCRIPTION, Agent, DispatchWorld, a_dispatch_world


class SaidDoubts:
    """What gossip says is what a test says."""

    def __init__(self) -> None:
        self.of: dict[str, bool] = {}

    def doubted(self) -> dict[str, bool]:
        return self.of


class Cluster:
    """Two nodes that gossip, one of which beats until the end; the dispatcher's first grace is over."""

    def __init__(self, world: DispatchWorld, nursery: trio.Nursery) -> None:
        self.world = world
        self.nursery = nursery
        self.doubts = SaidDoubts()
        self.n_witnessed = 0
        world.dispatcher.doubts = self.doubts
        self.peer: PeerCertificate
        self.agent: Agent

    async def begin(self, *, answers_probes: bool) -> None:
        await trio.sleep(60)
        _, healthy = await self._node("healthy", answers_probes=True)
        self.nursery.start_soon(self._live, healthy)
        self.peer, self.agent = await self._node("host1", answers_probes=answers_probes)
        await self.agent.say(Heartbeat(number=1))
        await self.agent.hear(LeaseRenewed)

    async def _node(self, name: str, *, answers_probes: bool) -> tuple[PeerCertificate, Agent]:
        peer = await self.world.join(name)
        description = msgspec.structs.replace(A_DESCRIPTION, hostname=name, membership=a_membership(name))
        return peer, await self.world.session(peer, description, answers_probes=answers_probes)

    async def _live(self, agent: Agent) -> None:
        self.nursery.start_soon(agent.beat)
        number = 100
        while (message := await agent.frames.receive()) is not None:
            if isinstance(message, Probe):
                self.n_witnessed += 1
                await agent.say(Heartbeat(number=number + self.n_witnessed))

    @property
    def state(self) -> NodeState:
        return self.world.node(self.peer.node_id).status.state

    async def seconds_until_down(self) -> float:
        began_s = trio.current_time()
        while self.state is not NodeState.DOWN:  # noqa: ASYNC110  # what is waited for is in the store
            await trio.sleep(0.1)
        return trio.current_time() - began_s


@asynccontextmanager
async def a_cluster(*, answers_probes: bool = True) -> AsyncIterator[Cluster]:
    """One that has begun."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Cluster(world, nursery)
        await cluster.begin(answers_probes=answers_probes)
        yield cluster
        nursery.cancel_scope.cancel()


async def test_a_node_that_gossip_gave_up_and_that_does_not_answer_is_down_early(autojump_clock: object) -> None:
    """Half of the time that heartbeats alone take; its status says why, and its session hears it."""
    async with a_cluster() as cluster:
        cluster.doubts.of["host1"] = False
        await cluster.agent.hear(Probe, 2.5)
        await trio.sleep(3)
        cluster.doubts.of["host1"] = True
        took_s = await cluster.seconds_until_down()
        assert took_s < 3
        assert cluster.n_witnessed == 1, "others are asked once, so that it is known who is cut off"
        assert cluster.world.node(cluster.peer.node_id).status.message == GOSSIP_FAILURE
        refused = await cluster.agent.hear(Refused)
        assert refused.retry
        assert "no heartbeat of node" in refused.reason
        assert cluster.world.dispatcher.mass_failure == ""


async def test_suspicion_alone_waits_for_two_heartbeats(autojump_clock: object) -> None:
    async with a_cluster() as cluster:
        cluster.doubts.of["host1"] = False
        assert 9 < await cluster.seconds_until_down() < 12.5


async def test_a_node_that_answers_is_alive_whatever_gossip_says(autojump_clock: object) -> None:
    """For minutes, and without a heartbeat of its own accord; it is asked once a second at most."""
    async with a_cluster() as cluster:
        cluster.doubts.of["host1"] = True
        n_probes = 0
        with trio.move_on_after(120):
            while (message := await cluster.agent.frames.receive()) is not None:
                assert cluster.state is NodeState.READY
                if isinstance(message, Probe):
                    n_probes += 1
                    await cluster.agent.say(Heartbeat(number=1 + n_probes))
        assert cluster.state is NodeState.READY
        assert 40 <= n_probes <= 120


async def test_without_gossip_or_without_its_doubt_the_heartbeats_count_alone(autojump_clock: object) -> None:
    """Fifteen seconds, and no question."""
    async with a_cluster() as cluster:
        cluster.doubts.of["somebody-else"] = True
        await cluster.agent.hear_nothing(14)
        assert cluster.state is NodeState.READY
        assert await cluster.seconds_until_down() < 3


async def test_an_agent_that_knows_no_probes_is_neither_asked_nor_hurried(autojump_clock: object) -> None:
    async with a_cluster(answers_probes=False) as cluster:
        cluster.doubts.of["host1"] = True
        await cluster.agent.hear_nothing(14)
        assert cluster.state is NodeState.READY


async def test_a_closed_session_is_not_hurried(autojump_clock: object) -> None:
    """Its host has said goodbye to the connection: it is there, and the agent alone was restarted."""
    async with a_cluster() as cluster:
        cluster.doubts.of["host1"] = True
        await trio.sleep(2)
        await cluster.agent.close()
        await trio.sleep(11)
        assert cluster.state is NodeState.READY
        assert await cluster.seconds_until_down() < 5


async def test_gossip_that_takes_its_doubt_back_gives_the_time_back(autojump_clock: object) -> None:
    """A host that was busy for some seconds keeps its tasks."""
    async with a_cluster() as cluster:
        cluster.doubts.of["host1"] = False
        await trio.sleep(6)
        cluster.doubts.of.clear()
        await trio.sleep(8)
        assert cluster.state is NodeState.READY
