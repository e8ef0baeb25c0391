"""Our replies beside those of a real dockerd, as the stock command got them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beeyard.core.model import TaskStatus
from beeyard.core.states import TaskState
from tests.support.api_world import an_api
from tests.support.builders import a_network, a_node, a_service, a_task, an_ipam

CAPTURES = json.loads((Path(__file__).parents[1] / "data/docker_captures.json").read_text())
REPLIES = CAPTURES["replies"]

# Members of Docker's replies that say something about what Beeyard does not have.
NOT_OURS = {
    "GenericResources",
    "CertIssuerSubject",
    "CertIssuerPublicKey",
    "JobStatus",
    "JobIteration",
    "Peers",
    "PreviousSpec",
    "com.docker.network.driver.overlay.vxlanid_list",
    # of info and version: about the daemon's own machine and containers
    *("KernelMemoryTCP", "NFd", "NGoroutines", "CgroupDriver", "CgroupVersion", "OSVersion", "IndexServerAddress"),
    *("RegistryConfig", "HttpProxy", "HttpsProxy", "NoProxy", "Runtimes", "DefaultRuntime", "Isolation", "InitBinary"),
    *(
        "ContainerdCommit",
        "RuncCommit",
        "InitCommit",
        "SecurityOptions",
        "CDISpecDirs",
        "FirewallBackend",
        "Containerd",
    ),
    *("DiscoveredDevices", "Experimental"),
}


def missing(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Members of one JSON value that another one lacks, or has with another type."""
    if theirs is None:
        return []
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {ours!r} is no object"]
        gaps = [f"{path}.{name}" for name in theirs if name not in ours and name not in NOT_OURS]
        both = [name for name in theirs if name in ours and name not in NOT_OURS]
        return gaps + [gap for name in both for gap in missing(theirs[name], ours[name], f"{path}.{name}")]
    if isinstance(theirs, list):
        if not isinstance(ours, list) or (theirs and not ours):
            return [f"{path}: {ours!r} has no elements"]
        return missing(theirs[0], ours[0], f"{path}[]") if theirs else []
    number = (int, float)
    if type(theirs) is not type(ours) and not (type(theirs) in number and type(ours) in number):
        return [f"{path}: {ours!r} is no {type(theirs).__name__}"]
    return []


async def reply_like(name: str) -> Any:
    """What we answer to a request of the captures, in a cluster with one of each thing."""
    ended = TaskStatus(state=TaskState.RUNNING, message="started", at_s=1.8e9, pid=71)
    objects = [
        a_node("n1", address="10.99.0.1"),
        a_network("net1", ipam=(an_ipam(gateway="10.77.0.1"),)),
        a_service("s1", name="s1", labels={"a": "b"}),
        msgspec.structs.replace(a_task("t1", state=TaskState.RUNNING, node_id="n1"), status=ended),
    ]
    described = msgspec.structs.replace(
        objects[0],
        description=msgspec.structs.replace(objects[0].description, engine_labels={"disk": "ssd", "rack": "r1"}),
    )
    spec = msgspec.structs.replace(objects[3].spec, args=("sleep", "1"))
    service = msgspec.structs.replace(objects[2], spec=msgspec.structs.replace(objects[2].spec, task=spec))
    task = msgspec.structs.replace(objects[3], spec=spec)
    path = {
        "network": "/networks/net1",
        "distribution": "/distribution/host:latest/json",
        "tasks": "/tasks",
        "service": "/services/s1?insertDefaults=true",
    }.get(name, REPLIES[name]["request"].partition(" ")[2])
    async with an_api(described, objects[1], service, task) as api:
        reply = await api.call("GET", path)
        assert reply.status == 200
        return reply.json


@pytest.mark.parametrize("name", sorted(REPLIES))
async def test_no_member_that_docker_sends_is_missing(name: str) -> None:
    """The command and other clients find every member that they know, with its type."""
    ours = await reply_like(name)
    theirs = REPLIES[name]["reply"]
    if name == "network":
        theirs = {**theirs, "Options": {"parent": "x"}}
    if name == "distribution":
        theirs = {**theirs, "Platforms": []}
    if name == "networks":
        ours = ours[1:]  # the first is the predefined one, without a subnet
    if name == "info":
        theirs = {**theirs, "DriverStatus": None, "Warnings": None, "Labels": [], "Plugins": {"Network": ["host"]}}
    if name == "version":
        theirs = {**theirs, "Components": theirs["Components"][:1]}
    assert missing(theirs, ours) == []


@pytest.mark.parametrize("case", CAPTURES["service_create"], ids=lambda case: case["cmd"][:60])
async def test_each_service_of_the_captures_is_stored_or_refused_by_name(case: dict[str, Any]) -> None:
    """Nothing in between: no field is dropped without a word."""
    async with an_api(a_node("n1", images=("host", "busybox"))) as api:
        reply = await api.call("POST", "/v1.50/services/create", case["body"])
        if reply.status == 201:
            (service,) = await api.get("/services")
            asked = case["body"]["TaskTemplate"]
            shown = service["Spec"]["TaskTemplate"]
            for member in ("Args", "Env", "Command"):
                assert shown["ContainerSpec"].get(member) == asked["ContainerSpec"].get(member)
            assert shown["Placement"] == asked["Placement"]
            assert shown.get("RestartPolicy") == asked.get("RestartPolicy")
        else:
            assert reply.status in (400, 501)
            flags = ("--", "image 10.99.0.1:5000/busybox:1@sha256")
            assert any(flag in reply.message for flag in flags), reply.message


@pytest.mark.parametrize("case", CAPTURES["network_create"], ids=lambda case: case["cmd"][:60])
async def test_each_network_of_the_captures_is_stored_or_refused_by_name(case: dict[str, Any]) -> None:
    async with an_api() as api:
        reply = await api.call("POST", "/v1.50/networks/create", case["body"])
        if reply.status == 201:
            shown = await api.get(f"/networks/{case['body']['Name']}")
            assert shown["IPAM"]["Config"] == case["body"]["IPAM"]["Config"]
            assert shown["Options"] == case["body"]["Options"]
        else:
            assert reply.status in (400, 501)
            assert any(
                word in reply.message for word in ("network driver", "IPAM driver", "--", "attachable", "ipam", "mvcfg")
            )
