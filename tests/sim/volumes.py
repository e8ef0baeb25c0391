"""Cluster volumes of a simulated cluster: who has them, and what tasks and nodes are promised of them."""

from __future__ import annotations

from typing import Any

from beeyard.core.grant import VolumeGrant
from beeyard.core.model import Task
from beeyard.runtime.sim import SimMachine, SimWorld
from tests.sim.api import ClusterApi
from tests.sim.lan import parts_of

VOLUMES_DIR = "/volumes"
NAMES = ("shared-a", "shared-b")


def install(machine: SimMachine) -> None:
    """Give a machine the directories of all volumes."""
    for path in (VOLUMES_DIR, *(f"{VOLUMES_DIR}/{name}" for name in NAMES)):
        machine.hooks.add_path(path)


async def create_volumes(api: ClusterApi) -> None:
    """Volumes that everybody may share, wherever he is: what asks for them is never kept waiting by them."""
    spec = {"Group": "shared", "AccessMode": {"Scope": "multi", "Sharing": "all"}}
    for name in NAMES:
        await api.call("POST", "/volumes/create", {"Name": name, "ClusterVolumeSpec": spec})


def mounts_of(number: int) -> list[dict[str, Any]]:
    """What each task of a service mounts: one volume by its name, two of a group, and most services nothing."""
    by_name = {"Type": "cluster", "Source": NAMES[0], "Target": "/srv/one", "ReadOnly": True}
    of_group = {"Type": "cluster", "Source": "group:shared"}
    both = [of_group | {"Target": "/srv/a"}, of_group | {"Target": "/srv/b", "ReadOnly": True}]
    return {2: [by_name], 5: both}.get(number % 6, [])


def check_volumes_of(task: Task) -> None:
    """A task with a node has a volume for each of its mounts, none twice."""
    uses, mounts = task.volumes, task.spec.volumes
    assert [use.target for use in uses] == [mount.target for mount in mounts], f"task {task.id} got {uses} for {mounts}"
    assert len({use.volume_id for use in uses}) == len(uses), f"task {task.id} got one volume twice: {uses}"


def check_volume_mounts(world: SimWorld) -> None:
    """A task that runs has the directories of its volumes, and no others."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        for task in parts.tasks.by_id.values() if parts is not None else ():
            uses = [use for grant in task.task.grants if isinstance(grant, VolumeGrant) for use in grant.uses]
            expected = [(f"{VOLUMES_DIR}/{use.name}", use.target, use.read_only) for use in uses]
            mounts = [(mount.source, mount.target, mount.read_only) for mount in task.additions.mounts]
            assert mounts == expected, f"task {task.task.id} on {name} got {mounts}"


async def check_volumes_are_where_tasks_are(api: ClusterApi) -> None:
    """At rest each volume is published to the nodes of the tasks that have it, and to no others."""
    shown = (await api.insist("GET", "/volumes"))["Volumes"]
    tasks = await api.insist("GET", "/tasks")
    for volume in shown:
        cluster = volume["ClusterVolume"]
        places = {place["NodeID"]: place["State"] for place in cluster["PublishStatus"]}
        nodes = {
            task["NodeID"]
            for task in tasks
            if task["Status"]["State"] == "running" and any(use["ID"] == cluster["ID"] for use in task["Volumes"] or ())
        }
        assert places == dict.fromkeys(nodes, "published"), (
            f"volume {volume['Name']} is at {places}, its tasks at {nodes}"
        )


__all__ = [
    "NAMES",
    "VOLUMES_DIR",
    "check_volume_mounts",
    "check_volumes_are_where_tasks_are",
    "check_volumes_of",
    "create_volumes",
    "install",
    "mounts_of",
]
