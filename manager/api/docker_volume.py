"""Docker's cluster volumes ↔ `Volume`."""

from __future__ import annotations

from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.mounts import LOCAL_DRIVER
from beeyard.core.states import Availability
from beeyard.core.volume import DIR_DRIVER, Volume, VolumeScope, VolumeSharing, VolumeSpec
from beeyard.manager.api.docker_value import compact, time_of
from beeyard.manager.api.fields import Fields

_SPEC_UNSUPPORTED = {
    "Secrets": "--secret for a volume",
    "CapacityRange": "--required-bytes or --limit-bytes",
}


def read_volume(body: object) -> VolumeSpec:
    """What `docker volume create` sends.

    Raises:
        InvalidSpec, Unsupported
    """
    fields = Fields(body)
    if not fields.has("ClusterVolumeSpec"):
        raise Unsupported("a volume of one node", "make a cluster volume: --scope single or multi")
    cluster = fields.nested("ClusterVolumeSpec")
    driver = fields.text("Driver", DIR_DRIVER)
    spec = _read_spec(
        cluster,
        name=fields.text("Name"),
        driver=DIR_DRIVER if driver == LOCAL_DRIVER else driver,
        labels=fields.labels("Labels"),
    )
    fields.finish({"DriverOpts": "--opt for a cluster volume"})
    return spec


def read_volume_update(body: object, volume: Volume) -> VolumeSpec:
    """What `docker volume update` sends: the whole specification anew.

    Raises:
        InvalidSpec, Unsupported
    """
    fields = Fields(body)
    spec = _read_spec(
        fields.nested("Spec"), name=volume.name, driver=volume.spec.driver, labels=dict(volume.spec.labels)
    )
    fields.finish()
    return spec


def _read_spec(cluster: Fields, *, name: str, driver: str, labels: dict[str, str]) -> VolumeSpec:
    mode = cluster.nested("AccessMode")
    topology = cluster.nested("AccessibilityRequirements")
    if mode.take("BlockVolume") is not None:
        # What the docker command sends when it is told nothing.
        raise Unsupported("--type block", "say --type mount")
    spec = VolumeSpec(
        name=name,
        labels=labels,
        group=cluster.text("Group"),
        driver=driver,
        scope=VolumeScope(mode.choice("Scope", tuple(VolumeScope), VolumeScope.SINGLE)),
        sharing=VolumeSharing(mode.choice("Sharing", tuple(VolumeSharing), VolumeSharing.NONE)),
        requisite=_read_topologies(topology),
        availability=Availability(cluster.choice("Availability", tuple(Availability), Availability.ACTIVE)),
    )
    mode.finish({"MountVolume": "a file system type or mount flags for a volume"})
    topology.finish({"Preferred": "--topology-preferred"})
    cluster.finish(_SPEC_UNSUPPORTED)
    return spec


def _read_topologies(fields: Fields) -> tuple[dict[str, str], ...]:
    topologies = []
    for topology in fields.nested_list("Requisite"):
        segments = topology.labels("Segments")
        if not segments or not all(segments.values()):
            raise InvalidSpec(topology.name_of("Segments"), "each must name labels of nodes with a value, as zone=z1")
        topology.finish()
        topologies.append(segments)
    return tuple(topologies)


def show_volume(volume: Volume) -> dict[str, Any]:
    """A volume as `docker volume inspect` prints it."""
    spec = volume.spec
    topologies = [{"Segments": topology} for topology in spec.requisite]
    return {
        "ClusterVolume": {
            "ID": volume.id,
            "Version": {"Index": volume.version},
            "CreatedAt": time_of(volume.created_at_s),
            "UpdatedAt": time_of(volume.updated_at_s),
            "Spec": {
                **compact(Group=spec.group),
                "AccessMode": {"Scope": str(spec.scope), "Sharing": str(spec.sharing), "MountVolume": {}},
                "AccessibilityRequirements": compact(Requisite=topologies),
                "CapacityRange": {},
                "Availability": str(spec.availability),
            },
            "PublishStatus": [{"NodeID": place.node_id, "State": str(place.state)} for place in volume.published],
            # No storage provider has to make it, so it is there as soon as it is stored.
            "Info": {"VolumeID": volume.id, **compact(AccessibleTopology=topologies)},
        },
        "CreatedAt": time_of(volume.created_at_s),
        "Driver": spec.driver,
        "Labels": spec.labels,
        "Mountpoint": "",
        "Name": volume.name,
        "Options": {},
        "Scope": "global",
    }


__all__ = ["read_volume", "read_volume_update", "show_volume"]
