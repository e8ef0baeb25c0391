"""Agents that were told no address find the manager of their cluster, and nobody else's."""

from __future__ import annotations

import functools

import pytest
import trio

from beeyard.agent import daemon as agent_daemon
from beeyard.agent.config import AgentConfig
from beeyard.core.errors import InvalidSpec
from beeyard.discovery.self_discovery import CLUSTER_TAG, MANAGER_TAG, ROLE_TAG
from beeyard.manager import daemon as manager_daemon
from beeyard.manager.config import ManagerConfig
from tests.sim.api import ClusterApi
from tests.support.gossip_world import GossipWorld

MANAGER = ManagerConfig(self_discovery_port=3388)
STATE_DIR = "/var/lib/beeyard/agent"


class Yard(GossipWorld):
    """Managers and agents as whole daemons."""

    def start_manager(self, name: str, config: ManagerConfig = MANAGER) -> ClusterApi:
        """A manager of a cluster of its own; its API."""
        self.statuses = getattr(self, "statuses", {})

        async def run(host) -> None:
            async with trio.open_nursery() as nursery:
                self.statuses[name] = await nursery.start(functools.partial(manager_daemon.run, host, config))

        self.start(f"{name}-manager", run, machine=name)
        return ClusterApi(self, name)

    def start_agent(self, name: str, token: str, *managers: str, machine: str = "") -> None:
        """An agent that is told of these managers alone."""
        config = AgentConfig(
            state_dir=f"{STATE_DIR}/{name}", managers=managers or ("self://:3388",), join_token=token, node_name=name
        )
        self.start(name, functools.partial(agent_daemon.run, config=config), machine=machine or name)


async def token_of(api: ClusterApi) -> str:
    return (await api.insist("GET", "/swarm"))["JoinTokens"]["Worker"]


async def ready(api: ClusterApi, *names: str, within_s: float = 30.0) -> None:
    """Wait until exactly these nodes are ready."""
    with trio.move_on_after(within_s):
        while True:
            nodes = await api.insist("GET", "/nodes")
            if sorted(n["Description"]["Hostname"] for n in nodes if n["Status"]["State"] == "ready") == sorted(names):
                return
            await trio.sleep(0.2)
    raise AssertionError(nodes)


async def test_agents_become_nodes_of_a_manager_that_nobody_named(autojump_clock):
    """Also the one on the manager's own host. Their members carry the ids of their nodes."""
    async with Yard(1) as world:
        api = world.start_manager("m1")
        token = await token_of(api)
        for name in ("a1", "a2"):
            world.start_agent(name, token)
        world.start_agent("m1", token)
        await ready(api, "a1", "a2", "m1")
        nodes = {n["Description"]["Hostname"]: n["ID"] for n in await api.insist("GET", "/nodes")}
        gossip = world.statuses["m1"].gossip

        def told() -> dict[str, str]:
            return {
                m.name: m.tags["node"] for m in gossip.members() if m.tags[ROLE_TAG] == "agent" and "node" in m.tags
            }

        await world.until(lambda: told() == nodes, timeout_s=5.0)
        assert {m.name for m in gossip.members()} == {"a1", "a2", "m1", "m1.manager"}
        assert world.handler_errors == []


async def test_an_agent_waits_until_there_is_a_manager(autojump_clock):
    """Nothing else is needed than that one comes."""
    async with Yard(1) as world:
        api = world.start_manager("m1")
        token = await token_of(api)
        world.crash("m1-manager")
        world.start_agent("a1", token)
        await trio.sleep(120)
        assert world.alive("a1")
        world.restart("m1-manager")
        await ready(api, "a1", within_s=60.0)


async def test_what_gossip_says_of_a_manager_is_hearsay_until_it_has_shown_the_ca(autojump_clock):
    """A stranger that calls itself this cluster's manager costs a try; one that a person named would end the join."""
    async with Yard(1) as world:
        theirs = world.start_manager("x1", ManagerConfig())
        await token_of(theirs)
        api = world.start_manager("m1")
        token = await token_of(api)
        digest = token.split("-")[2]
        liar = world.begin("liar", machine="x1", cluster=digest)
        await trio.sleep(1)
        claim = {CLUSTER_TAG: digest, ROLE_TAG: "manager", MANAGER_TAG: f"{world.machines['x1'].ip}:2377"}
        liar.discovery.node.set_tags(claim)
        for number in range(6):  # each has an order of its own in which it tries them
            world.start_agent(f"a{number}", token)
        await ready(api, *(f"a{number}" for number in range(6)), within_s=60.0)
        assert await theirs.insist("GET", "/nodes") == []


async def test_managers_that_gossip_tells_of_are_tried_after_a_session_was_lost(autojump_clock):
    """A manager that came back at another address is found, though it is not the one that was configured."""
    async with Yard(1) as world:
        api = world.start_manager("m1")
        token = await token_of(api)
        world.start_agent("a1", token, "tcp://m1:2377", "self://:3388")
        await ready(api, "a1")
        world.crash("m1-manager")
        moved = ManagerConfig(self_discovery_port=3388, listen="tcp://0.0.0.0:2999")

        async def run(host) -> None:
            await manager_daemon.run(host, moved)

        world.start("moved", run, machine="m1")
        await trio.sleep(20)
        await ready(api, "a1", within_s=60.0)


async def test_a_restarted_agent_finds_the_cluster_without_its_token(autojump_clock):
    """What keeps clusters apart is the CA that it has on disk."""
    async with Yard(1) as world:
        api = world.start_manager("m1")
        world.start_agent("a1", await token_of(api))
        await ready(api, "a1")
        world.crash("a1")
        config = AgentConfig(state_dir=f"{STATE_DIR}/a1", managers=("self://:3388",), node_name="a1")
        world.start("again", functools.partial(agent_daemon.run, config=config), machine="a1")
        await trio.sleep(30)
        await ready(api, "a1")
        seen = {m.name: m.status for m in world.statuses["m1"].gossip.members()}
        assert seen == {"a1": "alive", "m1.manager": "alive"}


async def test_an_agent_needs_a_manager_or_a_way_to_find_one(autojump_clock):
    """And says so before it touches anything."""
    async with GossipWorld(1) as world:
        with pytest.raises(InvalidSpec, match="or self://"):
            await agent_daemon.run(world.host("a1"), AgentConfig(state_dir=STATE_DIR, join_token=""))
