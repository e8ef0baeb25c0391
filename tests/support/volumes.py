"""Builders for cluster volumes, and a table of them over a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beeyard.core.model import Node
from beeyard.core.mounts import VolumeMount
from beeyard.core.node_columns import NodeColumns
from beeyard.core.parent_links import ParentLinks
from beeyard.core.states import Availability
from beeyard.core.volume import Published, Volume, VolumeScope, VolumeSharing, VolumeSpec
from beeyard.core.volumes import VolumeTable


def a_volume(
    volume_id: str = "v1",
    *,
    name: str = "",
    group: str = "",
    scope: str = "multi",
    sharing: str = "all",
    driver: str = "",
    requisite: Sequence[Mapping[str, str]] = (),
    availability: str = "active",
    published: Sequence[Published] = (),
) -> Volume:
    """A volume that all nodes and tasks may share; its name is its id with "data-" before it."""
    spec = VolumeSpec(
        name=name or f"data-{volume_id}",
        group=group,
        scope=VolumeScope(scope),
        sharing=VolumeSharing(sharing),
        driver=driver,
        requisite=tuple(map(dict, requisite)),
        availability=Availability(availability),
    )
    return Volume(id=volume_id, spec=spec, published=tuple(published))


def a_mount(source: str = "data-v1", *, read_only: bool = False, target: str = "/data") -> VolumeMount:
    """The volume of `a_volume`, mounted at /data."""
    return VolumeMount(source=source, target=target, read_only=read_only)


def a_table(*objects: Node | Volume) -> VolumeTable:
    """Nodes and volumes."""
    columns, row_of = NodeColumns(ParentLinks()), dict[str, int]()
    table = VolumeTable(columns, row_of)
    for obj in objects:
        if isinstance(obj, Node):
            row_of[obj.id] = len(row_of)
            columns.set(row_of[obj.id], obj)
        else:
            table.set(obj)
    return table
