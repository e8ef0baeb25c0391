"""The rule of cluster volumes in plain Python: every way to share them out is tried."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from beeyard.core.model import Node
from beeyard.core.mounts import VolumeMount
from beeyard.core.volume import Volume

# (volume id, node id, read only)
Use = tuple[str, str, bool]


class VolumeOracle:
    def __init__(self) -> None:
        self.volumes: dict[str, Volume] = {}

    def candidates(self, source: str) -> list[Volume]:
        volumes = sorted(self.volumes.values(), key=lambda volume: volume.name)
        if source.startswith("group:"):
            return [volume for volume in volumes if volume.spec.group and f"group:{volume.spec.group}" == source]
        return [volume for volume in volumes if volume.name == source]

    def choose(self, mounts: Sequence[VolumeMount], node: Node, uses: Sequence[Use]) -> list[str] | None:
        """Ids of volumes for the mounts: the first way in which all have one, mounts by name first, then those that write."""
        order = sorted(range(len(mounts)), key=lambda n: (mounts[n].source.startswith("group:"), mounts[n].read_only))
        for volumes in itertools.product(*(self.candidates(mounts[n].source) for n in order)):
            of_mount = dict(zip(order, volumes, strict=True))
            ids = [of_mount[n].id for n in range(len(mounts))]
            alone = all(ids.count(ids[n]) == 1 for n in order if mounts[n].source.startswith("group:"))
            if alone and all(self.can(of_mount[n], mounts[n].read_only, node, uses) for n in order):
                return ids
        return None

    def can(self, volume: Volume, read_only: bool, node: Node, uses: Sequence[Use]) -> bool:
        spec = volume.spec
        labels = {**node.description.engine_labels, **node.spec.labels}
        inside = [all(labels.get(key) == value for key, value in topology.items()) for topology in spec.requisite]
        users = [(node_id, reads) for volume_id, node_id, reads in uses if volume_id == volume.id]
        places = {node_id for node_id, _ in users} | {place.node_id for place in volume.published}
        return all(
            [
                spec.availability == "active",
                spec.driver == "" or spec.driver in node.description.volume_drivers,
                not inside or any(inside),
                spec.scope == "multi" or places <= {node.id},
                spec.sharing != "none" or not users,
                spec.sharing != "readonly" or read_only,
                spec.sharing != "onewriter" or read_only or all(reads for _, reads in users),
            ]
        )
