"""Services over the API: create, list, change, roll back, remove."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from beeyard.core.model import HOST_NETWORK_ID, UpdateState, UpdateStatus
from beeyard.core.states import TaskState
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import a_config_network, a_network, a_node, a_service, a_task, a_task_spec


def a_body(name: str = "web", image: str = "host:latest", **template: Any) -> dict[str, Any]:
    container = {"Image": image, "Args": ["sleep", "1"]}
    return {"Name": name, "TaskTemplate": {"ContainerSpec": container, **template}, "Mode": {"Replicated": {}}}


async def create(api: ApiWorld, body: dict[str, Any]) -> str:
    """Create a service that must work; its id."""
    reply = await api.call("POST", "/services/create", body)
    assert reply.status == 201, reply.body
    service_id: str = reply.json["ID"]
    return service_id


async def change(api: ApiWorld, service_id: str, **members: Any) -> int:
    """Edit a service as the docker command does; the status of the reply."""
    shown = await api.get(f"/services/{service_id}", insertDefaults="false")
    body = {**shown["Spec"], **members}
    reply = await api.call("POST", f"/services/{service_id}/update", body, version=shown["Version"]["Index"])
    return reply.status


async def test_a_created_service_is_found_by_id_name_and_start_of_its_id() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert len(service_id) == 25
        for wanted in (service_id, "web", service_id[:5]):
            assert (await api.get(f"/services/{wanted}"))["ID"] == service_id
        assert (await api.get("/services/web"))["Spec"]["Mode"] == {"Replicated": {"Replicas": 1}}


async def test_a_name_is_given_once() -> None:
    async with an_api() as api:
        await create(api, a_body())
        reply = await api.call("POST", "/services/create", a_body())
        assert (reply.status, reply.message) == (409, "service with name web already exists")
        assert len(api.store.services) == 1


async def test_networks_are_given_by_name_or_id_and_stored_as_ids() -> None:
    async with an_api(a_network("net1", name="lan")) as api:
        await create(api, a_body("a", Networks=[{"Target": "lan"}]))
        await create(api, a_body("b", Networks=[{"Target": "net1"}]))
        await create(api, a_body("c", Networks=[{"Target": "host"}]))
        for name, network_id in (("a", "net1"), ("b", "net1"), ("c", HOST_NETWORK_ID)):
            shown = await api.get(f"/services/{name}")
            assert shown["Spec"]["TaskTemplate"]["Networks"] == [{"Target": network_id}]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["nosuch"], "network nosuch not found"),
        (["lan-r1"], "lan-r1 is a configuration only network"),
        (["lan", "net1"], "network lan is given twice"),
        (["lan", "host"], "goes with no other"),
    ],
)
async def test_networks_that_cannot_work_are_refused(targets: list[str], words: str) -> None:
    async with an_api(a_network("net1", name="lan"), a_config_network("cfg1", "lan-r1")) as api:
        body = a_body(Networks=[{"Target": target} for target in targets])
        reply = await api.call("POST", "/services/create", body)
        assert reply.status == 400
        assert words in reply.message
        assert not api.store.services


async def test_an_image_that_no_node_runs_is_refused_by_the_executor_it_needs() -> None:
    async with an_api(a_node("n1")) as api:
        reply = await api.call("POST", "/services/create", a_body(image="nginx:latest"))
        assert reply.status == 400
        assert "image nginx:latest needs the docker or oci executor, which no node has" in reply.message
        await api.put(a_node("n2", images=("host", "nginx")))
        service_id = await create(api, a_body(image="nginx:latest"))
        await api.put(a_node("n2"))
        assert await change(api, service_id, Mode={"Replicated": {"Replicas": 2}}) == 200


@pytest.mark.parametrize(
    "image", ["host", "host:latest", "docker.io/library/host:latest", "host:latest@sha256:" + "4" * 64]
)
async def test_the_hosts_own_image_has_many_names_and_is_one(image: str) -> None:
    async with an_api() as api:
        service_id = await create(api, a_body(image=image))
        assert api.store.services[service_id].spec.task.image == "host"
        shown = await api.get("/services/web")
        assert shown["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"] == "host:latest"


async def test_distribution_answers_for_the_hosts_own_image_alone() -> None:
    async with an_api() as api:
        found = await api.get("/v1.50/distribution/host:latest/json")
        assert found["Descriptor"]["digest"].startswith("sha256:")
        assert found["Platforms"] == []
        assert (await api.call("GET", "/v1.50/distribution/registry:5000/a/b:1/json")).status == 404


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "invalid ContainerSpec.Args: it is empty; image host needs a command to run, given behind the image: "),
        (
            {"Args": [""]},
            "invalid ContainerSpec.Args: its first word, '', names no program; image host needs a command",
        ),
        ({"Args": [" ", "x"]}, "invalid ContainerSpec.Args: its first word, ' ', names no program; "),
        ({"Command": [""], "Args": ["x"]}, "invalid ContainerSpec.Command (--entrypoint): its first word, '', names"),
    ],
)
async def test_a_command_that_would_start_nothing_is_refused(given: dict[str, list[str]], words: str) -> None:
    async with an_api() as api:
        body = {"Name": "web", "TaskTemplate": {"ContainerSpec": {"Image": "host:latest", **given}}}
        reply = await api.call("POST", "/services/create", body)
        assert reply.status == 400
        assert words in reply.message


async def test_the_image_host_needs_a_command() -> None:
    """It is the node itself and brings none; without one its tasks would fail for ever."""
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert await change(api, service_id, TaskTemplate={"ContainerSpec": {"Image": "host"}}) == 400
        assert (
            await change(api, service_id, TaskTemplate={"ContainerSpec": {"Image": "host", "Command": ["top"]}}) == 200
        )


async def test_a_stored_service_without_a_command_may_still_be_scaled() -> None:
    """It was accepted once."""
    async with an_api(a_service()) as api:
        assert await change(api, "s1", Mode={"Replicated": {"Replicas": 0}}) == 200


async def test_a_stored_duration_that_no_client_reads_is_shown_as_the_longest() -> None:
    """One such service must not keep everybody from listing the others."""
    endless = a_service(task=msgspec.structs.replace(a_task_spec(), stop_grace_s=(2**63 - 1) / 1e9))
    async with an_api(endless) as api:
        (shown,) = await api.get("/services")
        assert shown["Spec"]["TaskTemplate"]["ContainerSpec"]["StopGracePeriod"] == 3650 * 86400 * 10**9


async def test_a_wrong_constraint_is_refused() -> None:
    async with an_api() as api:
        reply = await api.call("POST", "/services/create", a_body(Placement={"Constraints": ["node.role=manager"]}))
        assert reply.status == 400
        assert "expected one operator from ==, !=" in reply.message


async def test_a_scale_changes_the_number_and_nothing_else() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert await change(api, service_id, Mode={"Replicated": {"Replicas": 6}}) == 200
        service = api.store.services[service_id]
        assert (service.spec.replicas, service.spec_version, service.update_status) == (6, 1, None)


async def test_a_change_of_the_task_starts_an_update_and_one_of_labels_does_not() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert await change(api, service_id, Labels={"a": "b"}) == 200
        service = api.store.services[service_id]
        assert (service.spec_version, service.update_status) == (1, None)
        template = {"ContainerSpec": {"Image": "host", "Args": ["sleep", "2"]}}
        assert await change(api, service_id, TaskTemplate=template) == 200
        service = api.store.services[service_id]
        assert service.spec_version == 2
        assert service.update_status is not None
        assert service.update_status.state is UpdateState.UPDATING
        shown = await api.get("/services/web")
        assert shown["UpdateStatus"]["State"] == "updating"
        assert shown["PreviousSpec"]["TaskTemplate"]["ContainerSpec"]["Args"] == ["sleep", "1"]


async def test_force_makes_a_new_version_of_the_same_task() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        template = (await api.get("/services/web"))["Spec"]["TaskTemplate"]
        assert await change(api, service_id, TaskTemplate={**template, "ForceUpdate": 1}) == 200
        assert api.store.services[service_id].spec_version == 2


async def test_a_change_of_fencing_is_a_new_version_of_the_task() -> None:
    """Running tasks keep their lease, so they must be replaced for the label to hold."""
    async with an_api() as api:
        service_id = await create(api, a_body())
        for version, labels in ((2, {"beeyard.on-isolation": "fence"}), (3, {})):
            assert await change(api, service_id, Labels=labels) == 200
            service = api.store.services[service_id]
            assert service.spec_version == version
            assert service.update_status is not None
            assert service.update_status.state is UpdateState.UPDATING


@pytest.mark.parametrize(
    ("label", "value", "status", "words"),
    [
        ("beeyard.on-isolation", "fense", 400, "invalid label beeyard.on-isolation: 'fense' is not fence"),
        ("beeyard.on-isolation", "", 400, "invalid label beeyard.on-isolation: '' is not fence"),
        ("beeyard.nodes", "node.role==worker", 400, "invalid label beeyard.nodes: no label of a service"),
        ("beeyard.mac", "per-node", 400, "invalid label beeyard.mac: 'per-node' is not per-slot"),
        ("beeyard.mac", "per-slot", 400, "invalid label beeyard.mac: per-slot needs a macvlan network: give --network"),
    ],
)
async def test_a_label_that_nothing_would_follow_is_refused(label: str, value: str, status: int, words: str) -> None:
    """At creation and in an update alike; other people's labels are their own."""
    async with an_api() as api:
        reply = await api.call("POST", "/services/create", {**a_body(), "Labels": {label: value}})
        assert (reply.status, words in reply.message) == (status, True), reply.message
        service_id = await create(api, {**a_body(), "Labels": {"beeyardish": "x"}})
        assert await change(api, service_id, Labels={label: value}) == status
        assert api.store.services[service_id].spec_version == 1


async def test_a_service_with_an_old_label_may_still_be_scaled() -> None:
    """What an earlier release has stored does not keep a service from being changed in other ways."""
    async with an_api() as api:
        await api.put(a_service("s1", labels={"beeyard.nodes": "x"}))
        assert await change(api, "s1", Mode={"Replicated": {"Replicas": 2}}) == 200


async def test_a_change_ends_the_pause_of_a_failed_update() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        paused = UpdateStatus(state=UpdateState.PAUSED, message="update paused")
        await api.put(msgspec.structs.replace(api.store.services[service_id], update_status=paused))
        assert await change(api, service_id, Mode={"Replicated": {"Replicas": 2}}) == 200
        assert api.store.services[service_id].update_status == paused
        assert await change(api, service_id, TaskTemplate={"ContainerSpec": {"Image": "host", "Args": ["true"]}}) == 200
        status = api.store.services[service_id].update_status
        assert status is not None
        assert status.state is UpdateState.UPDATING


async def test_a_stale_version_is_told_in_words_that_clients_retry_on() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        version = api.store.services[service_id].version
        reply = await api.call("POST", f"/services/{service_id}/update", a_body(), version=version - 1)
        assert reply.status == 500
        assert reply.message.endswith("update out of sequence")
        for bad in ("abc", "-1", ""):
            reply = await api.call("POST", f"/services/{service_id}/update", a_body(), version=bad)
            assert reply.status == 400
            assert reply.message.startswith(f"invalid service version '{bad}': strconv.ParseUint")


async def test_a_service_keeps_its_name() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert await change(api, service_id, Name="other") == 501


async def test_a_rollback_goes_back_once() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        before = api.store.services[service_id].spec
        assert await change(api, service_id, TaskTemplate={"ContainerSpec": {"Image": "host", "Args": ["2"]}}) == 200
        version = api.store.services[service_id].version
        reply = await api.call("POST", "/services/web/update", a_body(), version=version, rollback="previous")
        assert reply.status == 200
        service = api.store.services[service_id]
        assert (service.spec, service.previous_spec, service.spec_version) == (before, None, 3)
        reply = await api.call("POST", "/services/web/update", {}, version=service.version, rollback="previous")
        assert (reply.status, reply.message) == (400, f"service {service_id} does not have a previous spec")


async def test_a_rollback_needs_the_present_version() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        assert await change(api, service_id, Labels={"a": "b"}) == 200
        reply = await api.call("POST", "/services/web/update", {}, version=1, rollback="previous")
        assert reply.status == 500
        assert api.store.services[service_id].spec.labels == {"a": "b"}


async def test_a_removed_service_is_gone_and_its_tasks_are_left_to_the_orchestrator() -> None:
    async with an_api() as api:
        service_id = await create(api, a_body())
        await api.put(a_task("t1", service_id=service_id))
        assert (await api.call("DELETE", "/services/web")).status == 200
        assert (await api.call("DELETE", "/services/web")).status == 404
        assert list(api.store.tasks) == ["t1"]


async def test_the_list_counts_tasks_that_run_and_are_wanted() -> None:
    async with an_api() as api:
        service_id = await create(api, {**a_body(), "Mode": {"Replicated": {"Replicas": 3}}})
        running, shutdown = TaskState.RUNNING, TaskState.SHUTDOWN
        await api.put(
            a_task("t1", service_id=service_id, slot=1, state=running, node_id="n1"),
            a_task("t2", service_id=service_id, slot=2, state=running, node_id="n1", desired_state=shutdown),
            a_task("t3", service_id=service_id, slot=3, state=TaskState.PENDING),
        )
        (shown,) = await api.get("/services", status="true")
        assert shown["ServiceStatus"] == {"RunningTasks": 1, "DesiredTasks": 3, "CompletedTasks": 0}
        (shown,) = await api.get("/services")
        assert "ServiceStatus" not in shown


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"name": {"we": True}}, ["web", "web2"]),
        ({"name": ["db"]}, ["db"]),
        ({"label": ["tier=front"]}, ["web"]),
        ({"label": {"tier": True}}, ["web", "db"]),
        ({"mode": ["replicated"]}, ["web", "web2", "db"]),
        ({"mode": ["global"]}, []),
    ],
)
async def test_services_are_filtered(filters: Any, names: list[str]) -> None:
    async with an_api() as api:
        await create(api, {**a_body("web"), "Labels": {"tier": "front"}})
        await create(api, a_body("web2"))
        await create(api, {**a_body("db"), "Labels": {"tier": "back"}})
        assert [s["Spec"]["Name"] for s in await api.get("/services", filters=filters)] == names


async def test_an_unknown_filter_is_refused() -> None:
    async with an_api() as api:
        reply = await api.call("GET", "/services", filters={"nosuch": ["1"]})
        assert (reply.status, reply.message) == (400, "invalid filter 'nosuch'")


@pytest.mark.parametrize(("auth", "status"), [("", 201), ("e30=", 201), ("eyJ1c2VybmFtZSI6ImEifQ==", 501)])
async def test_credentials_for_a_registry_are_refused_by_name(auth: str, status: int) -> None:
    async with an_api() as api:
        client = await api.connect()
        headers = (("content-type", "application/json"), ("x-registry-auth", auth))
        reply = await client.request("POST", "/services/create", json.dumps(a_body()).encode(), headers)
        assert reply.status == status
        if status == 501:
            assert reply.message.startswith("--with-registry-auth is not supported by beeyard")
