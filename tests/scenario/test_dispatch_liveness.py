"""Who counts as down, and when that judgement waits."""

import msgspec
import trio

from beeyard.core.model import Node, NodeSpec
from beeyard.core.states import Availability, NodeState
from beeyard.core.wire import Assignments, Heartbeat, Refused, Welcome
from beeyard.manager.dispatch.liveness import UNSERVED
from beeyard.runtime.host import PeerCertificate
from tests.support.dispatch_world import Agent, DispatchWorld, a_dispatch_world
from tests.support.memory_database import MemoryDatabase


class Beating:
    """Agents in sessions that send heartbeats until told not to."""

    def __init__(self, world: DispatchWorld, nursery: trio.Nursery) -> None:
        self.world = world
        self.nursery = nursery
        self.peers: list[PeerCertificate] = []
        self.agents: list[Agent] = []
        self.scopes: list[trio.CancelScope] = []

    async def join(self, n_agents: int) -> None:
        for number in range(n_agents):
            self.peers.append(await self.world.join(f"host{number}"))
            self.agents.append(await self.world.session(self.peers[-1]))
            self.scopes.append(trio.CancelScope())
            self.nursery.start_soon(self._beat, self.agents[-1], self.scopes[-1], number)

    async def come_back(self, number: int) -> None:
        self.agents[number] = await self.world.session(self.peers[number])
        self.scopes[number] = trio.CancelScope()
        self.nursery.start_soon(self._beat, self.agents[number], self.scopes[number], number)

    async def _beat(self, agent: Agent, scope: trio.CancelScope, number: int) -> None:
        with scope:
            await trio.sleep(number * 0.61 % 5.0)  # staggered, as real agents are
            await agent.beat()

    def fall_silent(self, *numbers: int) -> None:
        for number in numbers:
            self.scopes[number].cancel()

    def states(self) -> list[NodeState]:
        return [self.world.node(peer.node_id).status.state for peer in self.peers]

    def n_down(self) -> int:
        return self.states().count(NodeState.DOWN)

    def node(self, number: int) -> Node:
        return self.world.node(self.peers[number].node_id)


async def test_silent_node_is_down_after_three_missed_heartbeats(autojump_clock: object) -> None:
    """READY for 15 s after its last word, then DOWN with the reason, and its session is over."""
    async with a_dispatch_world() as world:
        await trio.sleep(60)  # the grace of the start is over
        peer = await world.join()
        agent = await world.session(peer)
        await agent.say(Heartbeat(number=1))
        spoke_s = trio.current_time()
        await trio.sleep(14.5)
        assert world.node(peer.node_id).status.state is NodeState.READY
        await trio.sleep(2)
        status = world.node(peer.node_id).status
        assert (status.state, status.message) == (NodeState.DOWN, "heartbeat failure")
        assert abs(world.dispatcher.last_contact(peer.node_id) - spoke_s) < 0.1
        assert not world.dispatcher.is_connected(peer.node_id)

        await world.session(peer)
        status = world.node(peer.node_id).status
        assert (status.state, status.message) == (NodeState.READY, "")


async def test_lost_connection_alone_is_no_failure(autojump_clock: object) -> None:
    """An agent that reconnects within 15 s was never down."""
    async with a_dispatch_world() as world:
        await trio.sleep(60)
        peer = await world.join()
        agent = await world.session(peer)
        await agent.close()
        await trio.sleep(13)
        assert world.node(peer.node_id).status.state is NodeState.READY
        await world.session(peer)
        await trio.sleep(13)
        assert world.node(peer.node_id).status.state is NodeState.READY


async def test_restarted_manager_gives_everybody_thirty_seconds(autojump_clock: object) -> None:
    """Nodes that were READY are UNKNOWN until they speak, and DOWN only after the grace."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        here, gone = await world.join("host1"), await world.join("host2")
        await world.session(here)
        await world.session(gone)
    async with a_dispatch_world(database) as world, trio.open_nursery() as nursery:
        assert {node.status.state for node in world.store.nodes.values()} == {NodeState.UNKNOWN}
        await trio.sleep(14)
        nursery.start_soon((await world.session(here)).beat)
        await trio.sleep(15)
        assert world.node(here.node_id).status.state is NodeState.READY
        assert world.node(gone.node_id).status.state is NodeState.UNKNOWN
        await trio.sleep(3)
        assert world.node(here.node_id).status.state is NodeState.READY
        assert world.node(gone.node_id).status.state is NodeState.DOWN
        nursery.cancel_scope.cancel()


async def test_paused_manager_gives_everybody_thirty_seconds(autojump_clock: object) -> None:
    """A manager that did not run for a minute knows nothing of that minute."""
    async with a_dispatch_world() as world:
        await trio.sleep(60)
        peer = await world.join()
        agent = await world.session(peer)
        world.host.paused_until_s = trio.current_time() + 60
        await trio.sleep(60 + 28)
        assert world.node(peer.node_id).status.state is NodeState.READY
        await agent.say(Heartbeat(number=1))
        await trio.sleep(14)
        assert world.node(peer.node_id).status.state is NodeState.READY
        await trio.sleep(4)
        assert world.node(peer.node_id).status.state is NodeState.DOWN


async def test_failure_of_half_of_the_nodes_is_taken_for_what_it_is(autojump_clock: object) -> None:
    """One of two, two of four: replacement may begin."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(4)
        await trio.sleep(60)
        cluster.fall_silent(0, 1)
        await trio.sleep(21)
        assert cluster.n_down() == 2
        assert world.dispatcher.mass_failure == ""
        nursery.cancel_scope.cancel()


async def test_failure_of_most_nodes_at_once_is_not_believed(autojump_clock: object) -> None:
    """It is in force before the first of them is marked down, says what it is, and ends when enough are back."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(4)
        await trio.sleep(60)
        cluster.fall_silent(0, 1, 2)
        for _ in range(200):
            await trio.sleep(0.1)
            if cluster.n_down() > 0:
                break
        assert cluster.n_down() == 1
        assert "of 4 nodes seem to have failed at once" in world.dispatcher.mass_failure
        await trio.sleep(300)
        assert cluster.n_down() == 3
        assert world.dispatcher.mass_failure.startswith("3 of 4 nodes seem to have failed at once")

        await cluster.come_back(0)
        assert world.dispatcher.mass_failure == ""
        await trio.sleep(2)
        assert cluster.node(1).status.message == "heartbeat failure", "a change in the store wakes who waited"
        nursery.cancel_scope.cancel()


async def test_cut_off_manager_believes_nothing_until_the_cut_is_healed(autojump_clock: object) -> None:
    """All nodes are silent for an hour and then back: at no moment was it safe to replace anything."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(5)
        await trio.sleep(60)
        cluster.fall_silent(*range(5))
        for _ in range(3_600):
            await trio.sleep(0.1 if cluster.n_down() < 5 else 1.0)
            assert cluster.n_down() == 0 or world.dispatcher.mass_failure
        for number in range(5):
            await cluster.come_back(number)
        await trio.sleep(10)
        assert cluster.n_down() == 0
        assert world.dispatcher.mass_failure == ""
        nursery.cancel_scope.cancel()


async def test_operator_ends_a_mass_failure(autojump_clock: object) -> None:
    """Nodes that are really gone are removed or drained; what is left of the cluster then counts."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(4)
        await trio.sleep(60)
        cluster.fall_silent(0, 1, 2)
        await trio.sleep(21)
        await world.remove(Node, cluster.peers[0].node_id)
        assert world.dispatcher.mass_failure.startswith("2 of 3")
        node = cluster.node(1)
        await world.put(
            msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, availability=Availability.DRAIN))
        )
        assert world.dispatcher.mass_failure == ""
        nursery.cancel_scope.cancel()


async def test_mass_failure_survives_a_restart_of_the_manager(autojump_clock: object) -> None:
    """The restarted manager does not take for lost what the former one did not believe."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(3)
        await trio.sleep(60)
        cluster.fall_silent(0, 1)
        await trio.sleep(21)
        peers = cluster.peers
        nursery.cancel_scope.cancel()
    async with a_dispatch_world(database) as world, trio.open_nursery() as nursery:
        assert world.dispatcher.mass_failure.startswith("2 of 3")
        nursery.start_soon((await world.session(peers[2])).beat)
        await trio.sleep(60)
        assert world.dispatcher.mass_failure.startswith("2 of 3")
        nursery.start_soon((await world.session(peers[0])).beat)
        assert world.dispatcher.mass_failure == ""
        nursery.cancel_scope.cancel()


async def test_nodes_that_fail_one_after_another_are_believed(autojump_clock: object) -> None:
    """Minutes apart, each failure is its own."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        cluster = Beating(world, nursery)
        await cluster.join(4)
        for number in range(3):
            await trio.sleep(60)
            cluster.fall_silent(number)
            await trio.sleep(21)
            assert cluster.n_down() == number + 1
            # Of two nodes that are left, one is half.
            assert world.dispatcher.mass_failure == ""
        nursery.cancel_scope.cancel()


async def test_node_that_never_opened_a_session_is_no_failure_and_goes_again(autojump_clock: object) -> None:
    """A node that joined and never came stays DOWN with the reason, counts for nothing, and is dropped after an hour."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        opened = await world.join("yard3")
        await (await world.session(opened)).close()
        await trio.sleep(300)
        status = world.node(peer.node_id).status
        assert (status.state, status.message) == (NodeState.DOWN, "joined; its agent has not opened a session yet")
        assert world.dispatcher.mass_failure == ""
        world.host.wall_ahead_s = 3301.0
        await trio.sleep(2)
        assert list(world.store.nodes) == [opened.node_id]


async def test_agent_is_told_that_it_was_given_up(autojump_clock: object) -> None:
    """Its session ends with the reason, and trying again is what helps."""
    async with a_dispatch_world() as world:
        await trio.sleep(60)
        agent = await world.session(await world.join())
        refused = await agent.hear(Refused, timeout_s=20)
        assert "for 15 s" in refused.reason
        assert refused.retry


async def test_disk_that_refuses_the_verdict_is_asked_again(autojump_clock: object) -> None:
    """A node stays what it is in the store until its fall is durable."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        await trio.sleep(60)
        peer = await world.join()
        await world.session(peer)
        back_s = trio.current_time() + 40
        database.fail_when = lambda n: trio.current_time() < back_s
        await trio.sleep(39)
        assert world.node(peer.node_id).status.state is NodeState.READY
        await trio.sleep(3)
        assert world.node(peer.node_id).status.state is NodeState.DOWN


async def test_node_that_speaks_while_its_fall_waits_for_the_disk_does_not_fall(autojump_clock: object) -> None:
    """What counts is the moment of the commit, not that of the judgement."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world, trio.open_nursery() as nursery:
        await trio.sleep(60)
        peer, other = await world.join(), await world.join("yard3")
        agent = await world.session(peer)
        await trio.sleep(14)
        database.hold = trio.Event()
        nursery.start_soon(world.put, msgspec.structs.replace(world.node(other.node_id), spec=NodeSpec(name="x")))
        await trio.sleep(3)  # it was judged, and its fall waits behind another write
        await agent.say(Heartbeat(number=1))
        await trio.sleep(0.1)
        database.hold.set()
        await trio.sleep(1)
        assert world.node(other.node_id).spec.name == "x"
        assert world.node(peer.node_id).status.state is NodeState.READY
        assert world.dispatcher.is_connected(peer.node_id)


async def test_node_that_speaks_but_takes_no_assignments_is_down_until_it_takes_them(autojump_clock: object) -> None:
    """Its small messages pass and our large ones do not: nothing can be started or stopped there, session after session."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        peer = await world.join()
        await trio.sleep(40)
        for attempt in range(3):
            agent = await world.say_hello(peer, lockstep=True)
            nursery.start_soon(agent.beat)
            await trio.sleep(12)
            assert world.node(peer.node_id).status.state is (NodeState.READY if attempt == 0 else NodeState.DOWN)
            await agent.close()
            await trio.sleep(4)
        assert world.node(peer.node_id).status.message == UNSERVED

        agent = await world.say_hello(peer, lockstep=True)
        nursery.start_soon(agent.beat)
        await agent.hear(Welcome)
        await agent.hear(Assignments)
        await trio.sleep(1)
        assert world.node(peer.node_id).status.state is NodeState.READY
        assert world.node(peer.node_id).status.message == ""
        nursery.cancel_scope.cancel()
