"""Cluster volumes over the API, as the docker command makes, lists, changes and removes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from beeyard.core.grant import VolumeGrant
from beeyard.core.states import NodeState, TaskState
from beeyard.core.volume import Published, PublishState, VolumeUse
from tests.support.api_world import ApiWorld, an_api
from tests.support.builders import a_node, a_task
from tests.support.volumes import a_volume


def a_body(name: str = "data", **cluster: Any) -> dict[str, Any]:
    """What `docker volume create --scope multi --sharing all NAME` sends."""
    spec = {
        "Group": "",
        "AccessMode": {"Scope": "multi", "Sharing": "all", "MountVolume": {}},
        "AccessibilityRequirements": {},
        "CapacityRange": {},
        "Availability": "active",
        **cluster,
    }
    return {"ClusterVolumeSpec": spec, "Driver": "local", "DriverOpts": {}, "Labels": {}, "Name": name}


async def create(api: ApiWorld, body: dict[str, Any]) -> dict[str, Any]:
    reply = await api.call("POST", "/volumes/create", body)
    assert reply.status == 201, reply.body
    shown: dict[str, Any] = reply.json
    return shown


async def test_a_volume_is_made_shown_changed_and_removed(autojump_clock: object) -> None:
    async with an_api() as api:
        zones = {"Requisite": [{"Segments": {"zone": "z1"}}, {"Segments": {"zone": "z2", "rack": "r1"}}]}
        body = a_body(Group="fast", AccessibilityRequirements=zones) | {"Labels": {"tier": "gold"}}
        made = await create(api, body)
        assert made == await api.get("/volumes/data")
        assert (made["Name"], made["Driver"], made["Scope"], made["Labels"]) == (
            "data",
            "dir",
            "global",
            {"tier": "gold"},
        )
        cluster = made["ClusterVolume"]
        assert cluster["Spec"] == {
            "Group": "fast",
            "AccessMode": {"Scope": "multi", "Sharing": "all", "MountVolume": {}},
            "AccessibilityRequirements": zones,
            "CapacityRange": {},
            "Availability": "active",
        }
        # The docker command calls it "created" only when it has the storage provider's id.
        assert cluster["Info"] == {"VolumeID": cluster["ID"], "AccessibleTopology": zones["Requisite"]}
        assert cluster["PublishStatus"] == []

        path, version = f"/volumes/{cluster['ID']}", cluster["Version"]["Index"]
        changed = {"Spec": cluster["Spec"] | {"Availability": "drain"}}
        assert (await api.call("PUT", path, changed, version=version)).status == 200
        assert (await api.get("/volumes/data"))["ClusterVolume"]["Spec"]["Availability"] == "drain"
        stale = await api.call("PUT", path, changed | {"Spec": cluster["Spec"]}, version=version)
        assert (stale.status, "update out of sequence" in stale.message) == (500, True)
        for wrong in ({"Group": "slow"}, {"AccessMode": {"Scope": "single", "Sharing": "all"}}):
            reply = await api.call("PUT", path, {"Spec": cluster["Spec"] | wrong}, version=version)
            assert (reply.status, "only its availability can" in reply.message) == (400, True)

        assert (await api.call("DELETE", "/volumes/data")).status == 204
        assert (await api.get("/volumes"))["Volumes"] == []
        gone = await api.call("GET", "/volumes/data")
        assert (gone.status, gone.message) == (404, "get data: no such volume")


async def test_volumes_are_listed_by_what_is_asked_for(autojump_clock: object) -> None:
    place = Published(node_id="n1", state=PublishState.PUBLISHED)
    async with an_api(a_volume("v1", group="fast", published=[place]), a_volume("v2", driver="nfs")) as api:

        async def names(**filters: list[str]) -> list[str]:
            return [volume["Name"] for volume in (await api.get("/volumes", filters=filters))["Volumes"]]

        assert await names() == ["data-v1", "data-v2"]
        assert await names(name=["v2"]) == ["data-v2"]
        assert await names(driver=["nfs"]) == ["data-v2"]
        assert await names(group=["fast"]) == ["data-v1"]
        assert await names(dangling=["true"]) == ["data-v2"]
        assert await names(label=["x"]) == []
        assert (await api.call("GET", "/volumes", filters={"size": ["1"]})).status == 400
        shown = await api.get("/volumes/v1")
        assert shown["ClusterVolume"]["PublishStatus"] == [{"NodeID": "n1", "State": "published"}]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"Name": "v", "Driver": "local"}, 501, "a volume of one node"),
        (a_body(AccessMode={"Scope": "multi", "BlockVolume": {}}), 501, "beeyard: say --type mount"),
        (a_body(CapacityRange={"RequiredBytes": 1}), 501, "--required-bytes or --limit-bytes"),
        (a_body(Secrets=[{"Key": "k", "Secret": "s"}]), 501, "--secret for a volume"),
        (a_body(AccessibilityRequirements={"Preferred": [{"Segments": {"a": "b"}}]}), 501, "--topology-preferred"),
        (a_body() | {"Driver": "nfs"}, 400, "Driver (--driver): 'nfs' is none that a node of this cluster has: dir"),
        (a_body() | {"DriverOpts": {"o": "rw"}}, 501, "--opt for a cluster volume"),
        (a_body(AccessibilityRequirements={"Requisite": [{"Segments": {"a": ""}}]}), 400, "as zone=z1"),
        (a_body(AccessMode={"Scope": "many"}), 400, "'many' is none of single, multi"),
        (a_body(Availability="asleep"), 400, "'asleep' is none of active, pause, drain"),
        (a_body("../etc"), 400, "invalid Name: '../etc' must be of letters"),
        (a_body(""), 400, "invalid Name"),
        (a_body(Group="a b"), 400, "invalid ClusterVolumeSpec.Group"),
        (a_body("data-v1"), 409, "volume with name data-v1 already exists"),
    ],
)
async def test_what_cannot_be_is_refused(
    autojump_clock: object, body: dict[str, Any], status: int, message: str
) -> None:
    async with an_api(a_volume()) as api:
        reply = await api.call("POST", "/volumes/create", body)
        assert (reply.status, message in reply.message) == (status, True), reply.message
        assert len(api.store.volumes) == 1


async def test_a_driver_that_a_node_has_is_taken() -> None:
    """Also of a node that is away: a volume may be made while its hosts are down."""
    away = a_node("n2", state=NodeState.DOWN, volume_drivers=("btrfs", "dir"))
    async with an_api(a_node("n1"), away) as api:
        reply = await api.call("POST", "/volumes/create", a_body() | {"Driver": "btrfs"})
        assert (reply.status, reply.json["Driver"]) == (201, "btrfs")
        reply = await api.call("POST", "/volumes/create", a_body("other") | {"Driver": "zfs"})
        assert (reply.status, "'zfs' is none that a node of this cluster has: btrfs, dir" in reply.message) == (
            400,
            True,
        )


def a_service_with(*mounts: dict[str, Any]) -> dict[str, Any]:
    """What `docker service create --mount type=cluster,src=data,dst=/data` sends."""
    return {
        "Name": "db",
        "TaskTemplate": {"ContainerSpec": {"Image": "host", "Args": ["true"], "Mounts": list(mounts)}},
    }


DATA = {"Type": "cluster", "Source": "data", "Target": "/data", "ClusterOptions": {}}


async def test_a_service_mounts_cluster_volumes(autojump_clock: object) -> None:
    async with an_api() as api:
        group = {"Type": "cluster", "Source": "group:fast", "Target": "/cache", "ReadOnly": True}
        reply = await api.call("POST", "/services/create", a_service_with(DATA, group))
        assert reply.status == 201, reply.body
        shown = (await api.get("/services/db"))["Spec"]["TaskTemplate"]["ContainerSpec"]["Mounts"]
        assert shown == [{"Type": "cluster", "Source": "data", "Target": "/data"}, group]
        (service,) = api.store.services.values()
        assert [mount.source for mount in service.spec.task.volumes] == ["data", "group:fast"]
        # What is shown can be sent back, as `docker service update` does.
        again = await api.call("POST", "/services/create", a_service_with(*shown) | {"Name": "db2"})
        assert again.status == 201


@pytest.mark.parametrize(
    ("mounts", "status", "message"),
    [
        ([{"Type": "bind", "Source": "/etc", "Target": "/x"}], 501, "--mount type=bind is not supported"),
        ([{"Type": "volume", "Source": "v", "Target": "/x"}], 501, "--mount type=volume is not supported"),
        ([{"Type": "cluster", "Target": "/x"}], 400, "Mounts[0].Source: a cluster volume or group:NAME"),
        ([DATA | {"Target": "/"}], 400, "'/' is no absolute path below /"),
        ([DATA | {"Target": "/x/../etc"}], 400, "is no absolute path below /"),
        ([DATA, DATA], 400, "Duplicate mount point: /data"),
        ([DATA | {"Target": f"/x{n}"} for n in range(65)], 400, "65 are too many: at most 64"),
        ([DATA | {"BindOptions": {"Propagation": "shared"}}], 400, "there is no such field"),
    ],
)
async def test_what_a_service_cannot_mount_is_refused(
    autojump_clock: object, mounts: list[dict[str, Any]], status: int, message: str
) -> None:
    async with an_api() as api:
        reply = await api.call("POST", "/services/create", a_service_with(*mounts))
        assert (reply.status, message in reply.message) == (status, True), reply.message


async def test_a_volume_in_use_is_removed_by_force_alone(autojump_clock: object) -> None:
    use = VolumeUse(volume_id="v1", name="data-v1", driver="", source="data-v1", target="/data")
    grant = VolumeGrant(id="g1", hook="volume", uses=(use,))
    task = msgspec.structs.replace(a_task("t1", state=TaskState.RUNNING, node_id="n1"), grants=(grant,))
    async with an_api(a_volume(), task) as api:
        shown = await api.get("/tasks/t1")
        assert shown["Volumes"] == [{"ID": "v1", "Source": "data-v1", "Target": "/data"}]
        reply = await api.call("DELETE", "/volumes/data-v1")
        assert (reply.status, reply.message) == (400, "volume data-v1 is in use by task web.1 (t1)")
        assert (await api.call("POST", "/volumes/prune")).status == 501
        assert (await api.call("DELETE", "/volumes/data-v1", force="1")).status == 204
        assert api.store.volumes == {}
