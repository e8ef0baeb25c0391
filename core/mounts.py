"""Storage and output of a task that depends on what its node offers: mounts and the driver of its log."""

from __future__ import annotations

import msgspec

# What every node has, so that nobody has to look for it.
LOCAL_DRIVER = "local"
NO_LOG = "none"  # the driver of a log that is not kept


class Mount(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A directory that a task sees at another place."""

    type: str = "bind"  # Docker's: bind, volume, tmpfs, cluster, …
    source: str = ""  # path, or name of a volume; of type cluster also "group:NAME"
    target: str
    read_only: bool = False
    driver: str = ""  # of type volume; "": local


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cluster volume that a task asks for: its name, or "group:NAME" for any of a group."""

    source: str
    target: str
    read_only: bool = False


class LogDriver(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a task's output goes. Name "": the node's own choice; "none": nowhere."""

    name: str = ""
    options: dict[str, str] = {}


__all__ = ["LOCAL_DRIVER", "NO_LOG", "LogDriver", "Mount", "VolumeMount"]
