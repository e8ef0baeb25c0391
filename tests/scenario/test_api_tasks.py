"""Tasks over the API: what a list may ask for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.grant import AddressGrant
from beeyard.core.states import NodeState, TaskState
from tests.support.api_world import an_api
from tests.support.builders import a_node, a_service, a_task, a_task_spec


def a_cluster() -> list[Any]:
    """Two services; the first was updated and has a task of each version."""
    old, new = a_task_spec(args=["1"]), a_task_spec(args=["2"])
    labelled = msgspec.structs.replace(new, container_labels={"stack": "st1"})
    web = msgspec.structs.replace(a_service("s1", name="web", task=new), spec_version=2)
    return [
        a_node("n1", hostname="yard1"),
        a_node("n2", hostname="yard2"),
        web,
        a_service("s2", name="db", task=labelled),
        a_task("t1", slot=1, spec=old, state=TaskState.RUNNING, desired_state=TaskState.SHUTDOWN, node_id="n1"),
        a_task("t2", slot=1, spec=new, spec_version=2, desired_state=TaskState.READY),
        a_task("t3", service_id="s2", service_name="db", spec=labelled, state=TaskState.RUNNING, node_id="n2"),
        # Of a version before, but with the same task: a rollout would leave it alone.
        a_task("t4", slot=2, spec=new, spec_version=1, state=TaskState.RUNNING, node_id="n1"),
    ]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, ["t1", "t2", "t3", "t4"]),
        ({"service": ["web"]}, ["t1", "t2", "t4"]),
        ({"service": {"s1": True, "s2": True}}, ["t1", "t2", "t4", "t3"]),
        ({"node": ["yard1"]}, ["t1", "t4"]),
        ({"node": ["self"]}, ["t1", "t4"]),
        ({"node": ["n1"], "service": ["db"]}, []),
        ({"desired-state": ["running"]}, ["t3", "t4"]),
        ({"desired-state": ["shutdown", "ready"]}, ["t1", "t2"]),
        ({"name": ["web.1"]}, ["t1", "t2"]),
        ({"id": ["t3"]}, ["t3"]),
        ({"label": ["stack=st1"]}, ["t3"]),
        ({"_up-to-date": {"true": True}, "service": {"s1": True}}, ["t2", "t4"]),
        ({"_up-to-date": ["false"]}, ["t1"]),
        ({"runtime": ["container"]}, ["t1", "t2", "t3", "t4"]),
    ],
)
async def test_tasks_are_filtered(filters: Any, ids: list[str]) -> None:
    async with an_api(*a_cluster()) as api:
        assert [task["ID"] for task in await api.get("/tasks", filters=filters)] == ids


@pytest.mark.parametrize(
    ("filters", "status", "words"),
    [
        ({"desired-state": ["foo"]}, 500, "Invalid desired-state filter: 'foo'"),
        ({"service": ["nosuch"]}, 404, "service nosuch not found"),
        ({"node": ["nosuch"]}, 404, "node nosuch not found"),
        ({"x": ["y"]}, 400, "invalid filter 'x'"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(filters: Any, status: int, words: str) -> None:
    async with an_api(*a_cluster()) as api:
        reply = await api.call("GET", "/tasks", filters=filters)
        assert (reply.status, reply.message) == (status, words)


async def test_a_task_is_found_by_id_and_says_what_it_waits_for_while_it_is_pending() -> None:
    async with an_api(*a_cluster()) as api:
        api.status.waits = {"t2": "planned on node yard2, waiting for addresses", "t3": "must not show"}
        assert (await api.get("/tasks/t2"))["Status"]["Message"] == "planned on node yard2, waiting for addresses"
        assert "Message" not in (await api.get("/tasks/t3"))["Status"]
        assert (await api.call("GET", "/tasks/t")).message == "task t is ambiguous (4 matches found)"


async def test_a_task_says_why_it_is_not_replaced() -> None:
    """A task held back shows that as its error, at once and for as long as it holds; an error of its agent's comes first."""
    failed = a_task("t5", slot=3, state=TaskState.RUNNING, node_id="n1")
    failed = msgspec.structs.replace(failed, status=msgspec.structs.replace(failed.status, err="its own"))
    async with an_api(*a_cluster(), failed) as api:

        async def errors() -> list[str]:
            tasks = await api.get("/tasks", filters={"node": ["n1"]})
            return [task["Status"].get("Err", "") for task in tasks]

        assert await errors() == ["", "", "its own"]
        api.status.held = dict.fromkeys(("t1", "t5"), "not replaced: 2 of 3 nodes seem to have failed at once")
        assert await errors() == [api.status.held["t1"], "", "its own"]
        api.status.held = {}
        assert await errors() == ["", "", "its own"]


@pytest.mark.parametrize(
    ("node_state", "desired_state", "words"),
    [
        (NodeState.DOWN, TaskState.SHUTDOWN, "node yard1 is down and keeps 10.77.0.64 until it returns"),
        (NodeState.DOWN, TaskState.RUNNING, ""),
        (NodeState.READY, TaskState.SHUTDOWN, ""),
    ],
)
async def test_a_replaced_task_says_why_its_address_is_not_free(
    node_state: NodeState, desired_state: TaskState, words: str
) -> None:
    """Only a node that cannot be asked, and a task that should have stopped there."""
    grant = AddressGrant(
        id="g1", hook="address", network_id="lan", network_name="lan", pool_id="lan", pool_name="lan", segment="default",
        driver="macvlan", addresses=("10.77.0.64/24",),
    )  # fmt: skip
    task = a_task("t1", state=TaskState.RUNNING, desired_state=desired_state, node_id="n1")
    task = msgspec.structs.replace(task, grants=(grant,))
    async with an_api(a_node("n1", hostname="yard1", state=node_state), a_service("s1", name="web"), task) as api:
        assert words in (said := (await api.get("/tasks/t1"))["Status"].get("Err", ""))
        assert bool(said) == bool(words)
