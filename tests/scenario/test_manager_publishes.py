"""Whole managers and agents in the simulator, with etcd beside them: what gossip knows is what others read there."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from beeyard.agent.config import AgentConfig
from beeyard.discovery.settings import DiscoverySettings
from beeyard.manager import daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.sim_parts import FakeParts
from tests.support.fake_etcd import FakeEtcd
from tests.support.fake_lists import FakeWorld
from tests.support.gossip_world import GossipWorld
from tests.support.lists_conformance import until
from tests.support.small_cluster import SmallCluster

TTL_S = 30.0
PREFIX = "/site/beeyard/docker/swarm/nodes/"


class Site:
    """Machines m1, m2, ... with a manager each, and etcd at e1."""

    def __init__(self, world: GossipWorld) -> None:
        self.world = world
        self.lists = FakeWorld()
        self.etcd = FakeEtcd()
        self.lists.http["e1:2379"] = self.etcd

    def manager(self, name: str) -> None:
        """Start a manager that publishes."""
        machine = self.world.machine(name)
        machine.lists = self.lists.machine()
        config = ManagerConfig(
            listen=f"tcp://{machine.ip}:2377",
            self_discovery_port=3388,
            discovery=DiscoverySettings(mdns="", scan=False),
            discovery_url="etcd://e1/site",
            discovery_ttl_s=TTL_S,
        )
        self.world.start(name, functools.partial(daemon.run, config=config))

    def listed(self, name: str) -> list[str] | None:
        """What a manager has published; None: nothing."""
        for key, (value, _, _) in self.etcd.keys.items():
            if key.decode().startswith(f"{PREFIX}{name}-"):
                return value.decode().split()
        return None


@asynccontextmanager
async def a_site() -> AsyncIterator[Site]:
    async with GossipWorld(1, parts=FakeParts) as world:
        site = Site(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.lists.run)
            yield site
            nursery.cancel_scope.cancel()


async def test_a_manager_that_dies_is_forgotten_with_its_lease_and_one_that_comes_back_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each manager has a list of its own, without nodes as long as there are none."""
    async with a_site() as site:
        for name in ("m1", "m2"):
            site.manager(name)
        await until(lambda: site.listed("m1") == [] and site.listed("m2") == [], 20.0)
        site.world.crash("m1")
        await trio.sleep(TTL_S / 2)
        site.world.restart("m1")
        for _ in range(int(2 * TTL_S)):
            await trio.sleep(1.0)
            assert site.listed("m1") == []
        site.world.crash("m1")
        await trio.sleep(TTL_S / 2)
        assert site.listed("m1") == []
        await until(lambda: site.listed("m1") is None, TTL_S)
        assert site.listed("m2") == []


async def test_nodes_are_published_as_gossip_knows_them(autojump_clock: trio.testing.MockClock) -> None:
    """Agents that join are listed by their gossip's address, within a second; one that dies is not, once gossip knows."""
    async with GossipWorld(2, parts=FakeParts) as world, trio.open_nursery() as nursery:
        site = Site(world)
        nursery.start_soon(site.lists.run)
        world.machine("m1").lists = site.lists.machine()
        config = ManagerConfig(self_discovery_port=3388, discovery_url="etcd://e1/site", discovery_ttl_s=TTL_S)
        cluster = SmallCluster(world, ("a1", "a2"), config, AgentConfig(managers=("self://:3388",)))
        await cluster.start()
        nodes = {name: f"{world.machine(name).ip}:3388" for name in ("a1", "a2")}
        await until(lambda: site.listed("m1") == sorted(nodes.values()), 1.0)
        world.crash("a2")
        crashed_at_s = trio.current_time()
        await until(lambda: site.listed("m1") == [nodes["a1"]], 60.0)
        assert trio.current_time() - crashed_at_s < 20.0
        await trio.sleep(1.0)  # within which everybody sees it
        shown = await cluster.api.insist("GET", "/beeyard/v1/discovery")
        assert shown["Nodes"] == [nodes["a1"]]
        assert shown["Published"]["Nodes"] == [nodes["a1"]]
        world.restart("a2")
        await until(lambda: site.listed("m1") == sorted(nodes.values()), 10.0)
        nursery.cancel_scope.cancel()
