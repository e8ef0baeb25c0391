"""Published ports over the API: a service says what it wants, each of its tasks what it has."""

from __future__ import annotations

from typing import Any

import msgspec

from beeyard.core.grant import MappedPort, PortGrant
from beeyard.core.model import HostPort, PublishedPort
from beeyard.core.states import TaskState
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import a_task

WEB = {"Protocol": "tcp", "TargetPort": 80, "PublishedPort": 8080, "PublishMode": "host"}


def a_body(*ports: dict[str, Any], **template: Any) -> dict[str, Any]:
    container = {"Image": "host:latest", "Args": ["sleep", "1"]}
    return {
        "Name": "web",
        "TaskTemplate": {"ContainerSpec": container, **template},
        "Mode": {"Replicated": {}},
        "EndpointSpec": {"Mode": "vip", "Ports": list(ports)},
    }


async def change(api: ApiWorld, **members: Any) -> None:
    """Edit the service as the docker command does."""
    shown = await api.get("/services/web", insertDefaults="false")
    body = {**shown["Spec"], **members}
    reply = await api.call("POST", "/services/web/update", body, version=shown["Version"]["Index"])
    assert reply.status == 200, reply.body


async def test_a_change_of_ports_is_rolled_out_and_everything_else_keeps_them() -> None:
    async with an_api() as api:
        assert (await api.call("POST", "/services/create", a_body(WEB))).status == 201
        shown = await api.get("/services/web")
        assert shown["Endpoint"] == {"Spec": shown["Spec"]["EndpointSpec"], "Ports": [WEB]}
        (service,) = api.store.services.values()
        assert (service.spec_version, service.spec.ports) == (1, (PublishedPort(target=80, published=8080),))

        await change(api, Labels={"tier": "front"})
        (service,) = api.store.services.values()
        assert (service.spec_version, service.spec.task.host_ports) == (1, (HostPort(port=8080),))

        await change(api, EndpointSpec={"Mode": "vip", "Ports": [{**WEB, "PublishedPort": 9090}]})
        (service,) = api.store.services.values()
        assert (service.spec_version, service.spec.task.host_ports) == (2, (HostPort(port=9090),))

        await change(api, EndpointSpec={"Mode": "vip"})
        (service,) = api.store.services.values()
        assert (service.spec_version, service.spec.ports, service.spec.task.host_ports) == (3, (), ())
        assert (await api.get("/services/web"))["Endpoint"] == {"Spec": {}}


async def test_ports_of_the_nodes_own_network_cannot_lead_elsewhere() -> None:
    async with an_api() as api:
        host = [{"Target": "host"}]
        for published, words in ((8081, "published 8081"), (0, "published (none)")):
            port = {**WEB, "PublishedPort": published}
            reply = await api.call("POST", "/services/create", a_body(port, Networks=host))
            assert (reply.status, words in reply.message) == (400, True), reply.message
        same = {**WEB, "PublishedPort": 80}
        assert (await api.call("POST", "/services/create", a_body(same, Networks=host))).status == 201


async def test_mode_ingress_is_refused_with_the_words_that_work() -> None:
    async with an_api() as api:
        reply = await api.call("POST", "/services/create", a_body({**WEB, "PublishMode": "ingress"}))
        assert reply.status == 501
        assert reply.message.endswith("say mode=host: --publish mode=host,target=80,published=8080")


async def test_a_task_shows_its_ports_while_it_holds_them() -> None:
    grant = PortGrant(id="g1", hook="port", ports=(MappedPort(published=30000, target=80),))
    task = msgspec.structs.replace(a_task(state=TaskState.RUNNING, node_id="n1"), grants=(grant,))
    async with an_api(task) as api:
        shown = await api.get("/tasks/t1")
        assert shown["Status"]["PortStatus"] == {"Ports": [{**WEB, "PublishedPort": 30000}]}
        ended = msgspec.structs.replace(task.status, state=TaskState.FAILED)
        await api.put(msgspec.structs.replace(api.store.tasks["t1"], status=ended))
        assert (await api.get("/tasks/t1"))["Status"]["PortStatus"] == {}
