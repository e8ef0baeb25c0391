"""Docker's mounts of a task ↔ `Mount`: cluster volumes, and nothing of the node's own."""

from __future__ import annotations

import posixpath
from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.mounts import Mount
from beeyard.manager.api.docker_value import compact
from beeyard.manager.api.fields import Fields

MOUNTS_MAX = 64


def read_mounts(container: Fields) -> tuple[Mount, ...]:
    """The mounts of a container.

    Raises:
        InvalidSpec, Unsupported
    """
    mounts = [_read_mount(fields) for fields in container.nested_list("Mounts")]
    if len(mounts) > MOUNTS_MAX:
        raise InvalidSpec(container.name_of("Mounts"), f"{len(mounts)} are too many: at most {MOUNTS_MAX}")
    targets = [mount.target for mount in mounts]
    for target in targets:
        if targets.count(target) > 1:
            raise InvalidSpec(container.name_of("Mounts"), f"Duplicate mount point: {target}")
    return tuple(mounts)


def _read_mount(fields: Fields) -> Mount:
    kind = fields.text("Type", "volume")
    if kind != "cluster":
        raise Unsupported(f"--mount type={kind:.40}", "mount a cluster volume: type=cluster")
    source, target = fields.text("Source"), fields.text("Target")
    if not source:
        raise InvalidSpec(fields.name_of("Source"), "a cluster volume or group:NAME must be named")
    if not target.startswith("/") or posixpath.normpath(target) != target or target == "/":
        raise InvalidSpec(fields.name_of("Target"), f"{target!r:.80} is no absolute path below / without '..'")
    mount = Mount(type=kind, source=source, target=target, read_only=fields.flag("ReadOnly"))
    fields.finish()
    return mount


def show_mounts(mounts: tuple[Mount, ...]) -> list[dict[str, Any]]:
    """The same as Docker shows them."""
    return [
        {
            "Type": mount.type,
            **compact(Source=mount.source),
            "Target": mount.target,
            **compact(ReadOnly=mount.read_only),
        }
        for mount in mounts
    ]


__all__ = ["MOUNTS_MAX", "read_mounts", "show_mounts"]
