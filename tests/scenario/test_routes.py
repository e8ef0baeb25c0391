"""Routed ipvlan networks in a whole cluster: who knows the way to whom, and what becomes of it."""

from __future__ import annotations

import functools

import structlog.testing
import trio
from trio.testing import MockClock

from beeyard.agent.routes import LOOK_S
from beeyard.core.model import Link
from beeyard.netdrivers import codec_route, routes
from beeyard.runtime.sim_parts import FakeParts
from tests.support.small_cluster import MANAGER, SmallCluster, a_small_cluster, addresses

# On no subnet that the other hosts have.
FAR = Link(name="eth0", mtu=1500, up=True, addresses=("192.168.9.9/24",))
NEAR = Link(name="eth0", mtu=1500, up=True, addresses=("10.9.0.99/16",))
PARTS = functools.partial(FakeParts, kinds=("macvlan", "ipvlan"))


async def ways(cluster: SmallCluster, name: str) -> dict[str, str]:
    """Our routes in the kernel of a host: destination → next hop."""
    kernel = cluster.parts(name).kernel
    found = codec_route.read_routes(await kernel.request(codec_route.dump_routes()))
    return {str(r.destination): str(r.gateway) for r in found if r.protocol == routes.PROTOCOL}


async def expected(cluster: SmallCluster) -> dict[str, dict[str, str]]:
    """What each host must have, by the tasks that run: the ways to all that run elsewhere if one runs here."""
    nodes = {n["ID"]: n["Description"]["Hostname"] for n in await cluster.api.call("GET", "/nodes")}
    tasks = [t for t in await cluster.api.call("GET", "/tasks") if t["Status"]["State"] == "running"]
    at = {address: nodes[task["NodeID"]] for task in tasks for address in addresses(task)}
    return {
        name: {f"{a}/32": cluster.world.machines[host].ip for a, host in at.items() if host != name}
        if name in at.values()
        else {}
        for name in cluster.agents
    }


async def check(cluster: SmallCluster) -> None:
    """Every host has exactly what it must have."""
    assert {name: await ways(cluster, name) for name in cluster.agents} == await expected(cluster)


async def test_hosts_know_the_way_to_the_tasks_of_their_network(autojump_clock: MockClock) -> None:
    """As tasks come and go, and nowhere else; the last one takes its host's routes along."""
    async with a_small_cluster("a1", "a2", "a3", parts=PARTS) as cluster:
        await cluster.network("10.8.0.0/24", driver="ipvlan", ipvlan_mode="l3")
        service = await cluster.service(4)
        await cluster.running(4)
        await trio.sleep(1)
        await check(cluster)
        assert sum([len(await ways(cluster, name)) for name in cluster.agents]) == 8
        await cluster.scale(service, 2)
        await cluster.until(lambda tasks: len(tasks) == 2, "/tasks")
        await trio.sleep(1)
        await check(cluster)
        assert sorted([len(await ways(cluster, name)) for name in cluster.agents]) == [0, 1, 1]
        await cluster.scale(service, 0)
        await cluster.until(lambda tasks: not tasks, "/tasks")
        await trio.sleep(1)
        assert [await ways(cluster, name) for name in cluster.agents] == [{}, {}, {}]


async def test_routes_survive_restarts_and_come_back_when_they_are_lost(autojump_clock: MockClock) -> None:
    """An agent that is killed leaves them; what changed meanwhile it learns; a parent that was down gets them again."""
    async with a_small_cluster(parts=PARTS) as cluster:
        await cluster.network("10.8.0.0/24", driver="ipvlan", ipvlan_mode="l3s")
        service = await cluster.service(2)
        await cluster.running(2)
        await trio.sleep(1)
        before = await ways(cluster, "a1")
        assert len(before) == 1
        cluster.world.crash("a1")
        await trio.sleep(1)
        assert await ways(cluster, "a1") == before
        cluster.world.restart("a1")
        await trio.sleep(5)
        assert await ways(cluster, "a1") == before
        cluster.parts("a1").kernel.set_link_up("eth0", False)
        assert await ways(cluster, "a1") == {}
        cluster.parts("a1").kernel.set_link_up("eth0", True)
        await trio.sleep(LOOK_S + 1)
        assert await ways(cluster, "a1") == before
        cluster.world.crash("a1")
        cluster.world.crash(MANAGER)
        cluster.world.restart(MANAGER)
        await cluster.scale(service, 0)
        await trio.sleep(5)
        assert await ways(cluster, "a1") == before
        cluster.world.restart("a1")
        await cluster.until(lambda tasks: not tasks, "/tasks")
        await trio.sleep(1)
        await check(cluster)


async def test_a_way_that_cannot_be_made_is_told_and_the_others_work(autojump_clock: MockClock) -> None:
    """A host with no address on the subnet of the others: each is named once, and it works once the address is right."""
    async with a_small_cluster("a1", "a2", "a3", parts=PARTS) as cluster:
        kernel = cluster.parts("a1").kernel
        with structlog.testing.capture_logs() as logs:
            await cluster.network("10.8.0.0/24", driver="ipvlan", ipvlan_mode="l3")
            kernel.remove_link("eth0")
            kernel.add_link(FAR)
            await trio.sleep(45)  # until its agent has described it
            await cluster.service(3)
            await cluster.running(3)
            await trio.sleep(2 * LOOK_S)
        wanted = await expected(cluster)
        assert {name: await ways(cluster, name) for name in cluster.agents} == {**wanted, "a1": {}}
        told = [
            (line["node"], line["via"], line["parent"], line["reason"])
            for line in logs
            if line["event"] == "no route to a task on another host"
        ]
        fault = "eth0", "Nexthop has invalid gateway"
        assert sorted(told) == [
            (name, cluster.world.machines[name].ip, *fault) for name in cluster.agents if name != "a1"
        ]
        kernel.remove_link("eth0")
        kernel.add_link(NEAR)
        await trio.sleep(LOOK_S + 1)
        assert await ways(cluster, "a1") == wanted["a1"]
