"""Nodes and the swarm over the API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.resources import Resources
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.manager.api.status import Packing
from tests.support.api_world import CLUSTER, an_api
from tests.support.builders import CPU, GIB, a_node, a_task, a_task_spec


async def test_nodes_are_listed_with_the_manager_as_leader() -> None:
    async with an_api(a_node("n1"), a_node("n2")) as api:
        shown = {node["ID"]: node.get("ManagerStatus", {}).get("Leader", False) for node in await api.get("/nodes")}
        assert shown == {"n1": True, "n2": False}


async def test_the_hooks_of_a_node_are_among_its_plugins() -> None:
    node = a_node("n1")
    node = msgspec.structs.replace(node, description=msgspec.structs.replace(node.description, hooks=("10-a", "20-b")))
    async with an_api(node) as api:
        plugins = (await api.get("/nodes/n1"))["Description"]["Engine"]["Plugins"]
        assert [(plugin["Type"], plugin["Name"]) for plugin in plugins] == [
            ("Network", "host"),
            ("Network", "macvlan"),
            ("NodeHook", "10-a"),
            ("NodeHook", "20-b"),
        ]


A_FULL_NODE = a_node(
    "n1",
    hostname="yard1",
    cpu_nano=4 * CPU,
    memory_bytes=8 * GIB,
    generic={"gpu": ["a", "b"], "ssd": 7},
    reserved=Resources(cpu_nano=CPU),
    log_drivers=["local"],
    volume_drivers=["nfs"],
)
A_TASK = a_task(
    "t1",
    spec=a_task_spec(cpu_nano=CPU // 2, memory_bytes=GIB, generic={"gpu": 1}),
    state=TaskState.RUNNING,
    node_id="n1",
)


async def test_a_node_shows_what_it_has_what_is_reserved_and_what_is_free() -> None:
    async with an_api(A_FULL_NODE, A_TASK) as api:
        shown = await api.get("/nodes/n1")
        assert shown["Description"]["Resources"] == {
            "NanoCPUs": 4 * CPU,
            "MemoryBytes": 8 * GIB,
            "GenericResources": [
                {"NamedResourceSpec": {"Kind": "gpu", "Value": "a"}},
                {"NamedResourceSpec": {"Kind": "gpu", "Value": "b"}},
                {"DiscreteResourceSpec": {"Kind": "ssd", "Value": 7}},
            ],
        }
        plugins = [(plugin["Type"], plugin["Name"]) for plugin in shown["Description"]["Engine"]["Plugins"]]
        assert plugins[-2:] == [("Volume", "nfs"), ("Log", "local")]
        assert shown["Status"]["Resources"] == {
            "Kept": {"NanoCPUs": CPU, "MemoryBytes": 0},
            "Total": {"NanoCPUs": 3 * CPU, "MemoryBytes": 8 * GIB, "gpu": 2, "ssd": 7},
            "Reserved": {"NanoCPUs": CPU // 2, "MemoryBytes": GIB, "gpu": 1, "ssd": 0},
            "Free": {"NanoCPUs": 5 * CPU // 2, "MemoryBytes": 7 * GIB, "gpu": 1, "ssd": 7},
            "Tasks": 1,
        }
        assert (await api.get("/nodes"))[0] == shown


async def test_how_full_the_nodes_are_is_told_to_prometheus() -> None:
    async with an_api(A_FULL_NODE, A_TASK, a_node("n2", hostname="yard0", cpu_nano=2 * CPU, memory_bytes=GIB)) as api:
        reply = await api.call("GET", "/beeyard/v1/metrics")
        assert reply.status == 200
        lines = reply.body.decode().splitlines()
        assert 'beeyard_node_resource_total{node="yard1",node_id="n1",kind="cpu"} 3' in lines
        assert 'beeyard_node_resource_free{node="yard1",node_id="n1",kind="cpu"} 2.5' in lines
        assert 'beeyard_node_resource_reserved{node="yard1",node_id="n1",kind="generic/gpu"} 1' in lines
        assert [line for line in lines if line.startswith("beeyard_node_tasks{")] == [
            'beeyard_node_tasks{node="yard0",node_id="n2"} 0',
            'beeyard_node_tasks{node="yard1",node_id="n1"} 1',
        ]
        assert sum(line.startswith("# TYPE ") for line in lines) == 9
        assert "beeyard_packing_batches_total 0" in lines
        api.status.packing = Packing(2, 700, 303, [("cpu", 300, 0.01), ("memory", 0, None), ("generic/gpu", 303, 0.0)])
        lines = (await api.call("GET", "/beeyard/v1/metrics")).body.decode().splitlines()
        assert [line for line in lines if line.startswith("beeyard_packing_")] == [
            "beeyard_packing_batches_total 2",
            "beeyard_packing_tasks_total 700",
            "beeyard_packing_opened_nodes 303",
            'beeyard_packing_bound_nodes{kind="cpu"} 300',
            'beeyard_packing_bound_nodes{kind="memory"} 0',
            'beeyard_packing_bound_nodes{kind="generic/gpu"} 303',
            'beeyard_packing_gap{kind="cpu"} 0.01',
            'beeyard_packing_gap{kind="generic/gpu"} 0',
        ]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"name": ["yard"]}, ["n1", "n2"]),
        ({"role": {"manager": True}}, ["n1"]),
        ({"node.label": ["rack=r2"]}, ["n2"]),
        ({"label": ["disk"]}, ["n1"]),
        ({"id": ["n2"]}, ["n2"]),
        ({"membership": ["accepted"]}, ["n1", "n2"]),
        ({"membership": ["pending"]}, []),
    ],
)
async def test_nodes_are_filtered(filters: Any, ids: list[str]) -> None:
    nodes = (
        a_node("n1", hostname="yard1", engine_labels={"disk": "ssd"}),
        a_node("n2", hostname="yard2", labels={"rack": "r2"}),
    )
    async with an_api(*nodes) as api:
        assert [node["ID"] for node in await api.get("/nodes", filters=filters)] == ids


async def test_a_node_is_drained_and_labelled() -> None:
    async with an_api(a_node("n1"), a_node("n2", hostname="yard2")) as api:
        shown = await api.get("/nodes/yard2")
        spec = {**shown["Spec"], "Availability": "drain", "Labels": {"rack": "r1"}}
        version = shown["Version"]["Index"]
        assert (await api.call("POST", "/nodes/yard2/update", spec, version=version)).status == 200
        node = api.store.nodes["n2"]
        assert (node.spec.availability, node.spec.labels) == (Availability.DRAIN, {"rack": "r1"})
        reply = await api.call("POST", "/nodes/n2/update", spec, version=version)
        assert reply.status == 500
        assert reply.message.endswith("update out of sequence")


async def test_a_change_of_role_is_refused_by_name() -> None:
    async with an_api(a_node("n1"), a_node("n2")) as api:
        version = api.store.nodes["n2"].version
        body = {"Labels": {}, "Role": "manager", "Availability": "active"}
        reply = await api.call("POST", "/nodes/n2/update", body, version=version)
        assert (reply.status, reply.message) == (
            501,
            "docker node promote is not supported by beeyard: a cluster has one manager for now",
        )


async def test_a_node_is_removed_when_it_is_down_and_runs_nothing() -> None:
    async with an_api(a_node("n1"), a_node("n2")) as api:
        reply = await api.call("DELETE", "/nodes/n2")
        assert (reply.status, reply.message) == (400, "node n2 is not down and can't be removed")
        await api.put(a_node("n2", state=NodeState.DOWN))
        assert (await api.call("DELETE", "/nodes/n2")).status == 200
        assert list(api.store.nodes) == ["n1"]


async def test_a_node_that_may_still_hold_addresses_is_removed_by_force_alone() -> None:
    """A person vouches that the machine is off; its live tasks end as ORPHANED in the same transaction."""
    tasks = (
        a_task("t1", state=TaskState.RUNNING, node_id="n2"),
        a_task("t2", state=TaskState.FAILED, node_id="n2"),
        a_task("t3", state=TaskState.RUNNING, node_id="n1"),
    )
    async with an_api(a_node("n1"), a_node("n2", state=NodeState.DOWN), *tasks) as api:
        reply = await api.call("DELETE", "/nodes/n2")
        assert reply.status == 400
        assert "may still run 1 task and hold their addresses" in reply.message
        index = api.store.index
        n_commits = api.database.n_commits
        assert (await api.call("DELETE", "/nodes/n2", force="1")).status == 200
        assert (api.store.index, api.database.n_commits) == (index + 2, n_commits + 1)
        states = {task.id: task.status.state for task in api.store.tasks.values()}
        assert states == {"t1": TaskState.ORPHANED, "t2": TaskState.FAILED, "t3": TaskState.RUNNING}


async def test_the_manager_is_not_removed_even_by_force() -> None:
    async with an_api(a_node("n1", state=NodeState.DOWN)) as api:
        reply = await api.call("DELETE", "/nodes/n1", force="True")
        assert (reply.status, reply.message) == (400, "node n1 is a cluster manager and cannot be removed")


async def test_a_manager_whose_own_host_has_no_agent_still_tells_its_address() -> None:
    """`docker swarm join-token` prints it; the list of nodes holds members only."""
    async with an_api() as api:
        assert await api.get("/nodes") == []
        node_id = (await api.get("/info"))["Swarm"]["NodeID"]
        shown = await api.get(f"/nodes/{node_id}")
        assert (shown["ManagerStatus"]["Addr"], shown["Status"]["State"]) == ("10.99.0.1:2377", "unknown")
        assert (await api.call("DELETE", f"/nodes/{node_id}")).status == 404


async def test_init_and_join_answer_as_on_a_running_manager() -> None:
    async with an_api() as api:
        for path in ("/swarm/init", "/swarm/join"):
            reply = await api.call("POST", path, {"ListenAddr": "0.0.0.0:2377"})
            assert reply.status == 503
            assert reply.message.startswith("This node is already part of a swarm.")


async def test_join_tokens_are_shown_and_rotated() -> None:
    async with an_api() as api:
        shown = await api.get("/swarm")
        before = shown["JoinTokens"]
        query = {"version": shown["Version"]["Index"], "rotateManagerToken": "false", "rotateWorkerToken": "true"}
        assert (await api.call("POST", "/swarm/update", shown["Spec"], **query)).status == 200
        after = (await api.get("/swarm"))["JoinTokens"]
        assert (after["Manager"], after["Worker"] != before["Worker"]) == (before["Manager"], True)
        reply = await api.call("POST", "/swarm/update", shown["Spec"], **query)
        assert reply.message.endswith("update out of sequence")
        query = {"version": (await api.get("/swarm"))["Version"]["Index"], "rotateManagerToken": "True"}
        assert (await api.call("POST", "/swarm/update", {}, **query)).status == 200
        assert (await api.get("/swarm"))["JoinTokens"]["Manager"] != before["Manager"]


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"Orchestration": {"TaskHistoryRetentionLimit": 7}}, "--task-history-limit"),
        ({"Orchestration": {"TaskHistoryRetentionLimit": 0}}, "--task-history-limit"),
        ({"Dispatcher": {"HeartbeatPeriod": 6_000_000_000}}, "--dispatcher-heartbeat"),
        ({"CAConfig": {"NodeCertExpiry": 1}}, "--cert-expiry"),
        ({"CAConfig": {"ForceRotate": 1}}, "docker swarm ca --rotate"),
        ({"EncryptionConfig": {"AutoLockManagers": True}}, "--autolock"),
        ({"Raft": {"SnapshotInterval": 5}}, "--snapshot-interval"),
        ({"Labels": {"a": "b"}}, "Labels"),
        ({"Name": "other"}, "Name"),
    ],
)
async def test_a_change_of_the_swarm_is_refused_by_its_flag(change: dict[str, Any], flag: str) -> None:
    async with an_api() as api:
        shown = await api.get("/swarm")
        spec = {**shown["Spec"], **change}
        query = {"version": shown["Version"]["Index"], "rotateWorkerToken": "true"}
        reply = await api.call("POST", "/swarm/update", spec, **query)
        assert reply.status == 501
        assert flag in reply.message
        cluster = api.store.cluster
        assert cluster is not None
        assert cluster.worker_secret == CLUSTER.worker_secret
