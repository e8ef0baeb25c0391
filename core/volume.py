"""The stored object of a cluster volume: storage that is not one node's own, and who may use it from where.

Words and meaning are those of the Container Storage Interface as Docker shows it. Beeyard asks no storage provider: a volume
exists as soon as it is stored, and its driver is one of those that nodes say they have (`NodeDescription.volume_drivers`).
"""

from __future__ import annotations

import enum

import msgspec

from beeyard.core.states import Availability

# "group:fast": any volume of the group fast.
GROUP_PREFIX = "group:"
# The driver that agents come with: a directory of the node, below one that its operator names. Docker's "local" is this one.
DIR_DRIVER = "dir"


class VolumeScope(enum.StrEnum):
    """On how many nodes it may be used at a time."""

    SINGLE = "single"
    MULTI = "multi"


class VolumeSharing(enum.StrEnum):
    """By how many tasks it may be used at a time."""

    NONE = "none"
    READ_ONLY = "readonly"
    ONE_WRITER = "onewriter"
    ALL = "all"


class PublishState(enum.StrEnum):
    """How far a volume is on its way to a node and back. In Docker's words."""

    PENDING_PUBLISH = "pending-publish"
    PUBLISHED = "published"
    PENDING_NODE_UNPUBLISH = "pending-node-unpublish"
    PENDING_UNPUBLISH = "pending-controller-unpublish"


class VolumeSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a user asked for."""

    name: str
    labels: dict[str, str] = {}
    group: str = ""
    driver: str = ""  # "": every node has it
    scope: VolumeScope = VolumeScope.SINGLE
    sharing: VolumeSharing = VolumeSharing.NONE
    # By key, the label that nodes must have; one of these must match whole. None: it can be reached from everywhere.
    requisite: tuple[dict[str, str], ...] = ()
    availability: Availability = Availability.ACTIVE


class Published(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that has a volume, or is about to."""

    node_id: str
    state: PublishState


class Volume(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="volume"):
    """Storage that tasks on several nodes can mount."""

    id: str
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    spec: VolumeSpec
    published: tuple[Published, ...] = ()  # scheduler's commit and volume orchestrator, in order of publishing

    @property
    def name(self) -> str:
        """What users call it, and mounts ask for."""
        return self.spec.name


class VolumeUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The volume that a task got for one of its mounts."""

    volume_id: str
    name: str
    driver: str
    source: str  # as the mount has it
    target: str
    read_only: bool = False


__all__ = [
    "DIR_DRIVER",
    "GROUP_PREFIX",
    "PublishState",
    "Published",
    "Volume",
    "VolumeScope",
    "VolumeSharing",
    "VolumeSpec",
    "VolumeUse",
]
