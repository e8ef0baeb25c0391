"""`/beeyard/v1/explain` and `/beeyard/v1/whatif`, and what `beeyard explain` and `beeyard whatif` print of the answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.cli import explain, what_if
from beeyard.core.address_pool import PoolUsage
from beeyard.core.model import StoredObject, Task, TaskStatus
from beeyard.core.states import Availability, TaskState
from beeyard.manager.api import what_if as what_if_api
from beeyard.manager.api.status import PutAside
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import (
    CPU,
    a_config_network,
    a_network_from,
    a_node,
    a_service,
    a_task,
    a_task_spec,
    an_ipam,
)
from tests.support.docker_bodies import a_service_body
from tests.support.grants import a_grant

EXPLAIN, WHAT_IF = "/beeyard/v1/explain", "/beeyard/v1/whatif"
R9 = a_task_spec(constraints=("node.labels.rack==r9",), cpu_nano=CPU)


def a_yard() -> list[StoredObject]:
    """Three hosts, one of them drained, with a task of web on the first; all in one rack."""
    return [
        a_node("n1", hostname="yard1", labels={"rack": "r1"}),
        a_node("n2", hostname="yard2", labels={"rack": "r1"}),
        a_node("n3", hostname="yard3", labels={"rack": "r1"}, availability=Availability.DRAIN),
        a_service(),
        running("t1", "n1"),
    ]


def running(task_id: str, node_id: str, slot: int = 1) -> Task:
    return a_task(task_id, slot=slot, state=TaskState.RUNNING, node_id=node_id)


def waiting(task_id: str, slot: int) -> Task:
    return a_task(task_id, service_id="s2", service_name="db", slot=slot, spec=R9, message="pending task scheduling")


async def asked(api: ApiWorld, body: Any) -> Any:
    reply = await api.call("POST", WHAT_IF, body)
    assert reply.status == 200, reply.body
    return reply.json


# --- explain -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{"service": "db"}, {"task": "t7"}, {"name": "db"}, {"name": "t7"}, {"name": "db.1"}])
async def test_a_service_or_a_task_that_waits_is_explained(query: dict[str, str]) -> None:
    db = a_service("s2", name="db", task=R9)
    async with an_api(*a_yard(), db, waiting("t7", 1), waiting("t8", 2)) as api:
        answer = await api.get(EXPLAIN, **query)
        n_waiting = 2 if "db" in query.values() else 1
        assert (answer["Service"], answer["Task"]["ID"]) == ({"ID": "s2", "Name": "db"}, "t7")
        assert (answer["Waiting"], answer["Nodes"], answer["Fitting"]) == (n_waiting, 3, 0)
        sentence = (
            "no suitable node (scheduling constraints not satisfied on 2 nodes; 1 node not available for new tasks)"
        )
        assert answer["Explanation"] == sentence
        assert [one["Text"] for one in answer["Reasons"]] == sentence[18:-1].split("; ")
        assert answer["Relaxations"] == [
            {
                "Text": "without constraint node.labels.rack==r9: 2 nodes",
                "Nodes": 2,
                "Such": [{"ID": "n1", "Name": "yard1"}, {"ID": "n2", "Name": "yard2"}],
                "Changes": [
                    {
                        "Kind": "constraint",
                        "Text": "without constraint node.labels.rack==r9",
                        "Name": "node.labels.rack==r9",
                    }
                ],
            }
        ]
        assert "PerNode" not in answer
        assert list(explain.lines(answer)) == [
            f"db: {'2 tasks wait' if n_waiting == 2 else '1 task waits'}, such as db.1.t7",
            "  it was told: pending task scheduling",
            sentence,
            "it would have a place with",
            "  without constraint node.labels.rack==r9: 2 nodes (yard1, yard2)",
        ]


async def test_every_node_says_all_that_it_lacks_on_request() -> None:
    async with an_api(*a_yard(), a_service("s2", name="db", task=R9), waiting("t7", 1)) as api:
        answer = await api.get(EXPLAIN, service="db", nodes="true")
        lacks = {node["Name"]: [one["Reason"] for one in node["Lacks"]] for node in answer["PerNode"]}
        assert lacks == {"yard1": ["constraint"], "yard2": ["constraint"], "yard3": ["not_ready", "constraint"]}
        last = list(explain.lines(answer))[-1]
        assert " ".join(last.split()) == (
            "yard3 not available for new tasks, constraint node.labels.rack==r9 not satisfied"
        )


async def test_what_does_not_wait_is_asked_for_one_more() -> None:
    async with an_api(*a_yard()) as api:
        answer = await api.get(EXPLAIN, name="web")
        assert (answer["Waiting"], answer["Fitting"], answer["Explanation"]) == (0, 2, "")
        assert list(explain.lines(answer)) == [
            "web: no task waits for a place",
            "2 of 3 nodes would take one more now",
        ]
        answer = await api.get(EXPLAIN, task="t1")
        assert next(iter(explain.lines(answer))) == "web.1.t1: running on yard1"


def rejected(task_id: str, at_s: float, **fields: Any) -> Task:
    status = TaskStatus(state=TaskState.REJECTED, err="no room on the disk", at_s=at_s)
    return msgspec.structs.replace(
        a_task(task_id, node_id="n2", **fields), status=status, created_at_s=at_s - 1, desired_state=TaskState.SHUTDOWN
    )


async def test_what_a_node_rejected_is_told_and_when_it_is_tried_again() -> None:
    """That nodes would take one more is what the manager knows; the node knew better."""
    web = [a_node("n1", hostname="yard1"), a_node("n2", hostname="yard2"), a_service(), rejected("t1", 1000.0)]
    async with an_api(*web) as api:
        said = "web.1.t1 was rejected by yard2: no room on the disk"
        assert list(explain.lines(await api.get(EXPLAIN, name="web")))[1:] == [
            said,
            "  it is not tried again: the service's restart policy does not let it",
            "2 of 2 nodes would take one more now",
        ]
        api.status.tries["t1"] = 1005.0
        answer = await api.get(EXPLAIN, name="web.1")
        assert (answer["Rejected"]["At"], answer["Rejected"]["NextTry"]) == (
            "1970-01-01T00:16:40.000000Z",
            "1970-01-01T00:16:45.000000Z",
        )
        assert list(explain.lines(answer))[1:3] == [said, "  it is tried again at 1970-01-01T00:16:45Z"]
        instead = msgspec.structs.replace(a_task("t2", node_id="n1", state=TaskState.PREPARING), created_at_s=1001.0)
        await api.put(instead)
        lines = list(explain.lines(await api.get(EXPLAIN, name="web")))
        assert lines[1:3] == [said, "  tried again since 1970-01-01T00:16:45Z: web.1.t2 is preparing on yard1"]


async def test_a_rejection_is_past_once_the_slot_runs() -> None:
    later = msgspec.structs.replace(running("t2", "n1"), created_at_s=1001.0)
    async with an_api(*a_yard()[:4], rejected("t1", 1000.0), later, rejected("t3", 900.0, slot=2)) as api:
        assert (await api.get(EXPLAIN, name="web"))["Rejected"]["ID"] == "t3"
        assert "Rejected" not in await api.get(EXPLAIN, name="web.1")


async def test_addresses_that_rest_are_told_apart_from_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = a_task_spec(network_ids=("net1",))
    pool = a_config_network("cfg1", "lan-r1", ipam=[an_ipam("10.1.0.0/29")])
    web = [a_node("n1"), pool, a_network_from("lan-r1"), a_service("s2", name="db", task=spec)]
    task = a_task("t7", service_id="s2", service_name="db", spec=spec)
    async with an_api(*web, task) as api:
        assert "Resting" not in await api.get(EXPLAIN, name="db")
        usage = PoolUsage(total=6, used=2, cooling=4, free=0)
        monkeypatch.setattr(api.status, "pool_usage", lambda _: usage)
        stranger = PutAside("10.1.0.3", "02:00:00:00:00:01", "yard1", 0.0)
        monkeypatch.setattr(api.status, "put_aside", lambda _: [stranger])
        answer = await api.get(EXPLAIN, name="db")
        assert answer["Resting"] == [{"Pool": "lan-r1", "Used": 2, "Resting": 3, "PutAside": 1}]
        assert list(explain.lines(answer))[-1] == (
            "addresses of pool lan-r1: 2 in use, 3 resting for cool_down_s after tasks that ended, "
            "1 put aside, as strangers have them (`beeyard pool list`)"
        )


async def test_nodes_that_hooks_refused_are_left_out() -> None:
    task = a_task("t7", service_id="s2", service_name="db")
    async with an_api(*a_yard(), a_service("s2", name="db"), task) as api:
        api.status.refusals["t7"] = ["n1", "n2"]
        answer = await api.get(EXPLAIN, task="t7")
        assert answer["Explanation"].startswith("no suitable node (refused by an allocation hook on 2 nodes")
        assert [one["Text"] for one in answer["Relaxations"]] == [
            "node yard3 ready, which is drained: 1 node",
            "without the refusals of allocation hooks: 2 nodes",
        ]


async def test_addresses_for_all_that_wait() -> None:
    spec = a_task_spec(network_ids=("net1",))
    tasks = [a_task(f"t{n}", service_id="s2", service_name="db", slot=n, spec=spec) for n in (7, 8, 9)]
    pool = a_config_network("p1", "lan-r1", config="racks", ipam=[an_ipam("10.9.0.0/24", "10.9.0.10/32")])
    grants = (a_grant("10.9.0.10/24", pool_id="p1", segment="default"),)
    tasks.append(msgspec.structs.replace(running("t6", "n1"), grants=grants))
    async with an_api(*a_yard(), pool, a_network_from("racks"), a_service("s2", name="db", task=spec), *tasks) as api:
        answer = await api.get(EXPLAIN, service="db")
        assert answer["Relaxations"][0]["Text"] == "3 addresses more in lan-r1: 2 nodes"


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({}, 400, "explain what? give one of service, task and name"),
        ({"service": "web", "task": "t1"}, 400, "explain what? give one of service, task and name"),
        ({"name": "nobody"}, 404, "service or task nobody not found"),
        ({"service": "nobody"}, 404, "service nobody not found"),
        ({"name": "web", "nodes": "perhaps"}, 400, "invalid value 'perhaps' for nodes: it is true or false"),
    ],
)
async def test_what_cannot_be_explained_is_refused(query: dict[str, str], status: int, message: str) -> None:
    async with an_api(*a_yard()) as api:
        reply = await api.call("GET", EXPLAIN, **query)
        assert (reply.status, reply.json) == (status, {"message": message})


# --- what if -------------------------------------------------------------------------------------------------------------


async def test_a_service_that_is_scaled() -> None:
    async with an_api(*a_yard()) as api:
        answer = await asked(api, {"Scale": {"Service": "web", "Replicas": 4}})
        assert (answer["Before"], answer["Placed"], answer["Unplaced"]) == (1, 3, 0)
        assert [(node["Name"], node["Tasks"]) for node in answer["On"]] == [("yard1", 1), ("yard2", 2)]
        assert next(line.split() for line in what_if.service_lines(answer))[:3] == ["3", "tasks", "placed"]
        assert len(api.store.tasks) == 1


async def test_a_service_that_is_thought_of() -> None:
    body = a_service_body()
    body["TaskTemplate"]["Resources"] = {"Reservations": {"NanoCPUs": 3 * CPU}}
    body["Mode"] = {"Replicated": {"Replicas": 3}}
    async with an_api(*a_yard()) as api:
        answer = await asked(api, {"Service": body})
        assert (answer["Before"], answer["Placed"], answer["Unplaced"]) == (0, 2, 1)
        assert [one["Text"] for one in answer["Relaxations"]] == [
            "node yard3 ready, which is drained: 1 node",
            "2 CPU less: 2 nodes",
        ]
        assert next(iter(what_if.service_lines(answer))) == "2 tasks placed, 1 without a place"
        assert len(api.store.services) == 1


@pytest.mark.parametrize("lost", [{"Node": "yard1"}, {"Node": "n1"}, {"Constraint": "node.hostname==yard1"}])
@pytest.mark.parametrize("question", ["Lost", "Drain"])
async def test_a_node_that_is_lost_or_drained(question: str, lost: dict[str, str]) -> None:
    async with an_api(*a_yard()) as api:
        answer = await asked(api, {question: lost})
        assert answer == {
            "Nodes": [{"ID": "n1", "Name": "yard1"}],
            "Moves": [
                {
                    "Task": "t1",
                    "Service": "web",
                    "Slot": 1,
                    "From": {"ID": "n1", "Name": "yard1"},
                    "To": {"ID": "n2", "Name": "yard2"},
                }
            ],
            "Stuck": [],
        }
        assert list(what_if.aftermath_lines(answer)) == [
            "1 node: 1 task replaced, 0 without a place",
            f"  {'web.1':24} yard1 → yard2",
        ]


async def test_a_rack_that_is_lost() -> None:
    async with an_api(*a_yard()) as api:
        answer = await asked(api, {"Lost": {"Constraint": "node.labels.rack==r1"}})
        nobody = await asked(api, {"Lost": {"Constraint": "node.labels.rack==r7"}})
        assert list(what_if.aftermath_lines(nobody)) == ["no node is of that kind"]
        assert (len(answer["Nodes"]), answer["Moves"], len(answer["Stuck"])) == (3, [], 1)
        assert list(what_if.aftermath_lines(answer)) == [
            "3 nodes: 0 tasks replaced, 1 without a place",
            "1 task: no suitable node (3 nodes not available for new tasks)",
            f"  {'web.1':24} yard1",
        ]


async def test_tasks_that_nobody_wants_are_not_replaced() -> None:
    ending = a_task("t2", slot=2, state=TaskState.RUNNING, desired_state=TaskState.SHUTDOWN, node_id="n1")
    async with an_api(*a_yard(), ending) as api:
        answer = await asked(api, {"Lost": {"Node": "n1"}})
        assert [move["Task"] for move in answer["Moves"]] == ["t1"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "what if what? give one of Service, Scale, Lost, Drain"),
        (
            {"Lost": {"Node": "n1"}, "Drain": {"Node": "n1"}},
            400,
            "what if what? give one of Service, Scale, Lost, Drain",
        ),
        ({"Lost": {}}, 400, "give either a node or, as Constraint, an expression"),
        ({"Lost": {"Node": "n1", "Constraint": "node.id==n1"}}, 400, "give either a node or"),
        ({"Lost": {"Node": "nobody"}}, 404, "node nobody not found"),
        ({"Lost": {"Constraint": "rack"}}, 400, "expected one operator from"),
        (
            {"Lost": {"Constraint": "node.labels.rak==r1"}},
            400,
            "no node has node.labels.rak; give one of what nodes have, such as node.labels.rack",
        ),
        ({"Scale": {"Service": "web", "Replicas": 25_002}}, 400, "25001 tasks to place: ask about 25000 at a time"),
        ({"Drain": {"Constraint": "rack==r1"}}, 400, "invalid constraint: no node has rack; give one of"),
        ({"Drain": {"Constraint": "node.labels.rack==r1,node.labels.==x"}}, 400, "such as node.labels.rack"),
        ({"Drain": {"Rack": "r1"}}, 400, "Drain.Rack"),
        ({"Lost": {"Constraint": " , "}}, 400, "Lost.Constraint: ' , ' has no expression"),
        ({"Scale": {"Service": "nobody"}}, 404, "service nobody not found"),
        ({"Scale": {"Replicas": 3}}, 400, "invalid Scale.Service: give the name or id of a service"),
        ({"Scale": {"Service": "web", "Replicas": -1}}, 400, "Scale.Replicas"),
        ({"Service": {"Name": "x"}}, 400, "mismatched Runtime and *Spec fields"),
        ({"Service": [1]}, 400, "it must be a JSON object"),
        ([], 400, "it must be a JSON object"),
    ],
)
async def test_what_makes_no_question_is_refused(body: Any, status: int, message: str) -> None:
    async with an_api(*a_yard()) as api:
        reply = await api.call("POST", WHAT_IF, body)
        assert (reply.status, message in reply.json["message"]) == (status, True), reply.body


async def test_a_service_is_not_scaled_beyond_the_addresses_of_its_slots() -> None:
    labels = {"beeyard.addresses": "10.0.0.1-10.0.0.2", "beeyard.on-isolation": "fence"}
    async with an_api(*a_yard(), a_service("s2", name="db", labels=labels)) as api:
        reply = await api.call("POST", WHAT_IF, {"Scale": {"Service": "db", "Replicas": 3}})
        assert (reply.status, "beeyard.addresses" in reply.json["message"]) == (400, True), reply.body
        assert (await asked(api, {"Scale": {"Service": "db", "Replicas": 2}}))["Before"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Labels": {"beeyard.strategy": "packk"}}, "'packk' is none of spread, pack, shape, fgd"),
        ({"Labels": {"beeyard.stratgy": "pack"}}, "no label of a service has this name"),
        ({"Labels": {"Beeyard.Strategy": "pack"}}, "no label of a service has this name"),
        ({"Labels": {"beeyard.addresses": "10.0.0.1-10.0.0.4"}}, "label beeyard.addresses"),
        ({"TaskTemplate": {"Networks": [{"Target": "nolan"}]}}, "network nolan not found"),
        ({"TaskTemplate": {"Networks": [{"Target": f"net{n}"} for n in range(40)]}}, "a task can be in"),
    ],
)
async def test_a_service_that_could_not_be_created_is_no_question(change: dict[str, Any], message: str) -> None:
    """Refused in the words of `docker service create`, whatever nodes would make of it."""
    body = a_service_body() | {"Labels": change.get("Labels", {})}
    body["TaskTemplate"]["ContainerSpec"]["Args"] = ["sleep", "9"]
    body["TaskTemplate"] |= change.get("TaskTemplate", {})
    networks = [a_network_from(f"c{n}", network_id=f"i{n}", name=f"net{n}") for n in range(40)]
    async with an_api(*a_yard(), *networks) as api:
        asked_about = await api.call("POST", WHAT_IF, {"Service": body})
        created = await api.call("POST", "/services/create", body | {"Name": "other"})
        assert (asked_about.status, message in asked_about.json["message"]) == (400, True), asked_about.body
        assert (created.status, created.json) == (400, asked_about.json)


async def test_a_question_about_more_tasks_than_the_manager_has_time_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(what_if_api, "TASKS_MAX", 1)
    async with an_api(*a_yard(), running("t2", "n1", 2)) as api:
        for question in ("Lost", "Drain"):
            reply = await api.call("POST", WHAT_IF, {question: {"Node": "n1"}})
            sentence = (
                "invalid question: 2 tasks on 1 node: ask about 1 at a time, the manager does nothing else meanwhile"
            )
            assert (reply.status, reply.json) == (400, {"message": sentence})
        assert (await asked(api, {"Lost": {"Node": "n2"}}))["Moves"] == []
