"""A whole cluster that gossips: what the manager makes of members, and what it never does because of them."""

from __future__ import annotations

from typing import Any

import trio

from beeyard.agent.config import AgentConfig
from beeyard.discovery.settings import SELF_PORT
from beeyard.manager.config import ManagerConfig
from beeyard.manager.dispatch.liveness import GOSSIP_FAILURE
from tests.sim.api import API_SOCKET
from tests.support.http_client import HttpClient
from tests.support.small_cluster import MANAGER, SmallCluster, a_small_cluster

AGENTS = AgentConfig(managers=(f"self://:{SELF_PORT}",))
GOSSIPS = ManagerConfig(self_discovery_port=SELF_PORT)


async def nodes(cluster: SmallCluster) -> dict[str, Any]:
    return {node["Description"]["Hostname"]: node for node in await cluster.api.insist("GET", "/nodes")}


async def metrics(cluster: SmallCluster) -> str:
    """What Prometheus is told."""
    connection = await cluster.world.dial(MANAGER, API_SOCKET)
    reply = await HttpClient(connection.stream).request("GET", "/beeyard/v1/metrics")
    await connection.stream.aclose()
    return reply.body.decode()


def shut_gossip_out(cluster: SmallCluster, name: str) -> None:
    """Nothing reaches a machine's gossip any more, as behind a firewall."""
    machine = cluster.world.machines[name].net
    machine.datagrams[SELF_PORT].clear()
    del machine.tcp_listeners[SELF_PORT]


async def until_down(cluster: SmallCluster, name: str, within_s: float) -> float:
    """How long it takes until a node is down, which it must be in time."""
    began_s = trio.current_time()

    def is_down(shown: list[Any]) -> bool:
        return {n["Description"]["Hostname"]: n["Status"]["State"] for n in shown}[name] == "down"

    await cluster.until(is_down, "/nodes", timeout_s=within_s)
    return trio.current_time() - began_s


async def test_tags_and_coordinates_are_seen_and_count_for_placement(autojump_clock: object) -> None:
    """Constraints name them, and `docker node inspect` shows them; no address of the manager was given to anybody."""
    async with a_small_cluster("a1", "a2", "a3", config=GOSSIPS, agent_config=AGENTS) as cluster:
        await cluster.until(
            lambda shown: all("Coordinate" in n["Description"].get("Gossip", {}) for n in shown), "/nodes"
        )
        shown = (await nodes(cluster))["a2"]["Description"]
        assert shown["Gossip"]["Member"] == "a2"
        assert shown["Gossip"]["Tags"]["host"] == "a2"
        assert shown["Gossip"]["Tags"]["role"] == "agent"
        assert len(shown["Gossip"]["Coordinate"]["Vec"]) == 8
        assert {"Type": "Tag", "Name": "host=a2"} in shown["Engine"]["Plugins"]
        await cluster.service(
            3, network="host", name="tagged", Placement={"Constraints": ["node.tags.host in (a2, a3)"]}
        )
        tasks = await cluster.running(3)
        ids = {node["ID"]: name for name, node in (await nodes(cluster)).items()}
        assert {ids[task["NodeID"]] for task in tasks} == {"a2", "a3"}
        near = {"Constraints": ["node.rtt.a1<=1s", "node.tags.host!=a1"]}
        await cluster.service(1, network="host", name="near", Placement=near)
        assert len(await cluster.running(4)) == 4
        await cluster.service(1, network="host", name="far", Placement={"Constraints": ["node.rtt.a1>=1s"]})
        await trio.sleep(3)
        waiting = [task for task in await cluster.api.insist("GET", "/tasks") if task["Status"]["State"] == "pending"]
        assert ["scheduling constraints not satisfied" in task["Status"]["Err"] for task in waiting] == [True]


async def test_a_host_that_is_gone_is_down_before_its_heartbeats_say_so(autojump_clock: object) -> None:
    """And its task runs elsewhere; without gossip it takes fifteen seconds to know."""
    took_s = {}
    for how, config, agents in (("gossip", GOSSIPS, AGENTS), ("heartbeat", None, None)):
        async with a_small_cluster("a1", "a2", "a3", config=config, agent_config=agents) as cluster:
            await cluster.service(3, network="host")
            await cluster.running(3)
            await trio.sleep(60)
            cluster.world.power_cut("a2")
            took_s[how] = await until_down(cluster, "a2", 30)
            if how == "gossip":
                assert (await nodes(cluster))["a2"]["Status"]["Message"] == GOSSIP_FAILURE
            await cluster.running(4, timeout_s=10)
    # Counted from the last heartbeat, at most five seconds before: two heartbeats are missing at most, or three.
    assert took_s["gossip"] < 12
    assert took_s["heartbeat"] > 9.5


async def test_a_node_whose_gossip_alone_is_cut_keeps_its_tasks(autojump_clock: object) -> None:
    """All others suspect it or give it up; its session stands, so it is ready, for as long as that lasts."""
    async with a_small_cluster("a1", "a2", "a3", config=GOSSIPS, agent_config=AGENTS) as cluster:
        await cluster.service(3, network="host")
        before = [task["ID"] for task in await cluster.running(3)]
        await trio.sleep(30)
        shut_gossip_out(cluster, "a2")
        n_failed = 0
        for _ in range(90):
            await trio.sleep(1)
            assert (await nodes(cluster))["a2"]["Status"]["State"] == "ready"
            n_failed += 'status="failed"} 1' in await metrics(cluster)
        assert n_failed > 0, "gossip did give it up"
        assert [task["ID"] for task in await cluster.running(3)] == before


async def test_a_manager_tells_prometheus_of_its_gossip(autojump_clock: object) -> None:
    async with a_small_cluster("a1", "a2", config=GOSSIPS, agent_config=AGENTS) as cluster:
        await trio.sleep(20)
        text = await metrics(cluster)
        lines = text.splitlines()
        assert f'beeyard_gossip_members{{member="{MANAGER}.manager",status="alive"}} 3' in lines
        assert "beeyard_node_tasks" in text
        names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(set(names)) == len(names)
