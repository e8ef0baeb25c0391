"""Which cluster volumes a task can have on which nodes, and who uses which.

A mount names a volume or a group. From a group it gets the first volume in order of their names that can be had on the node
and that no other mount of the task has got. Mounts that name a volume choose first, then those that write: what they can have
the others can have too, so this finds volumes for all mounts whenever there are any.

Source: SwarmKit `manager/scheduler/volumes.go`, `topology.go`. Other than there all mounts of a task must be satisfied, not
any one of them; a volume that changes counts as it is now; a volume of one node's scope stays with its node until it was
taken from there; and a node's topology are its labels, because its plugins report none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beeyard.core.mounts import VolumeMount
from beeyard.core.node_columns import NodeColumns
from beeyard.core.states import Availability
from beeyard.core.volume import GROUP_PREFIX, Volume, VolumeScope, VolumeSharing, VolumeUse

Rows = NDArray[np.bool_]

# How many tasks more may use a volume does not depend on how many do.
_WITHOUT_LIMIT = (VolumeSharing.ALL, VolumeSharing.READ_ONLY)


class User(NamedTuple):
    """A task's use of a volume."""

    node_id: str
    read_only: bool


class VolumeTable:
    """Volumes and their users.

    Args:
        columns: of the nodes, by row.
        row_of: node id → row.
    """

    def __init__(self, columns: NodeColumns, row_of: Mapping[str, int]) -> None:
        self._columns = columns
        self._row_of = row_of
        self._volumes: dict[str, Volume] = {}
        self._id_by_name: dict[str, str] = {}
        self._ids_by_group: dict[str, set[str]] = {}
        self._users: dict[str, dict[str, User]] = {}
        self._uses: dict[str, tuple[VolumeUse, ...]] = {}
        self._reach: dict[str, tuple[int, Volume, Rows]] = {}

    def copy(self, columns: NodeColumns, row_of: Mapping[str, int]) -> VolumeTable:
        """One of its own to try things on, over copies of the nodes."""
        twin = VolumeTable(columns, row_of)
        twin._volumes, twin._id_by_name, twin._uses = dict(self._volumes), dict(self._id_by_name), dict(self._uses)
        twin._ids_by_group = {group: set(ids) for group, ids in self._ids_by_group.items()}
        twin._users = {volume_id: dict(users) for volume_id, users in self._users.items()}
        return twin

    # --- volumes -----------------------------------------------------------------------------------------------------

    def set(self, volume: Volume) -> None:
        """Add or change a volume."""
        self.remove(volume.id)
        self._volumes[volume.id] = volume
        self._id_by_name[volume.name] = volume.id
        if volume.spec.group:
            self._ids_by_group.setdefault(volume.spec.group, set()).add(volume.id)

    def remove(self, volume_id: str) -> None:
        """Forget a volume; who uses it still does. Idempotent."""
        volume = self._volumes.pop(volume_id, None)
        if volume is None:
            return
        self._reach.pop(volume_id, None)
        if self._id_by_name.get(volume.name) == volume_id:
            del self._id_by_name[volume.name]
        ids = self._ids_by_group.get(volume.spec.group)
        if ids is not None:
            ids.discard(volume_id)
            if not ids:
                del self._ids_by_group[volume.spec.group]

    def find(self, source: str) -> list[Volume]:
        """The volumes that a mount may get, in order of their names."""
        if source.startswith(GROUP_PREFIX):
            ids = self._ids_by_group.get(source[len(GROUP_PREFIX) :], set())
            return sorted((self._volumes[volume_id] for volume_id in ids), key=lambda volume: volume.name)
        volume_id = self._id_by_name.get(source)
        return [] if volume_id is None else [self._volumes[volume_id]]

    # --- users -------------------------------------------------------------------------------------------------------

    def reserve(self, task_id: str, node_id: str, uses: Sequence[VolumeUse]) -> None:
        """Note what a task has. A task that has something already keeps it."""
        if task_id in self._uses or not uses:
            return
        self._uses[task_id] = tuple(uses)
        for use in uses:
            users = self._users.setdefault(use.volume_id, {})
            before = users.get(task_id)
            users[task_id] = User(node_id, use.read_only and (before is None or before.read_only))

    def release(self, task_id: str) -> tuple[VolumeUse, ...]:
        """Give back what a task has, and say what it was. Idempotent."""
        uses = self._uses.pop(task_id, ())
        for use in uses:
            users = self._users.get(use.volume_id, {})
            users.pop(task_id, None)
            if not users:
                self._users.pop(use.volume_id, None)
        return uses

    def uses_of(self, task_id: str) -> tuple[VolumeUse, ...]:
        """What a task has, one for each of its mounts."""
        return self._uses.get(task_id, ())

    def users(self, volume_id: str) -> Mapping[str, User]:
        """Who uses a volume, by task."""
        return self._users.get(volume_id, {})

    # --- what can be had ---------------------------------------------------------------------------------------------

    def fitting(self, mounts: Sequence[VolumeMount]) -> Rows:
        """By row: whether a task with these mounts can have them all."""
        return self._choose(mounts, slice(None))[0]

    def choose(self, mounts: Sequence[VolumeMount], node_id: str) -> tuple[VolumeUse, ...] | None:
        """A volume for each mount of a task on a node, None when some mount can have none."""
        row = self._row_of[node_id]
        fits, picks = self._choose(mounts, slice(row, row + 1))
        if not fits[0]:
            return None
        gets = [self.find(mount.source)[pick[0]] for mount, pick in zip(mounts, picks, strict=True)]
        return tuple(
            VolumeUse(
                volume_id=volume.id,
                name=volume.name,
                driver=volume.spec.driver,
                source=mount.source,
                target=mount.target,
                read_only=mount.read_only,
            )
            for mount, volume in zip(mounts, gets, strict=True)
        )

    def are_settled(self, mounts: Iterable[VolumeMount]) -> bool:
        """Whether one task more with these mounts leaves to the next exactly what there is now."""
        return all(
            volume.spec.sharing in _WITHOUT_LIMIT
            and (volume.spec.scope is VolumeScope.MULTI or bool(self._nodes_with(volume)))
            for mount in mounts
            for volume in self.find(mount.source)
        )

    def _choose(self, mounts: Sequence[VolumeMount], rows: slice) -> tuple[Rows, list[NDArray[np.int32]]]:
        """By row: whether there is a volume for each mount; by mount and row: which one of those it may get."""
        fits = np.ones(len(range(len(self._columns.nodes))[rows]), dtype=bool)
        picks = [np.full(len(fits), -1, dtype=np.int32) for _ in mounts]
        taken: dict[str, Rows] = {}
        for number in sorted(range(len(mounts)), key=lambda n: (_is_of_group(mounts[n]), mounts[n].read_only)):
            mount, without = mounts[number], fits.copy()
            for place, volume in enumerate(self.find(mount.source)):
                gets = without & self._available(volume, mount.read_only, rows)
                if _is_of_group(mount) and volume.id in taken:
                    gets &= ~taken[volume.id]
                picks[number][gets] = place
                taken[volume.id] = taken.get(volume.id, np.zeros_like(gets)) | gets
                without &= ~gets
            fits &= ~without
        return fits, picks

    def _available(self, volume: Volume, read_only: bool, rows: slice) -> Rows:
        """By row: whether one task more can have a volume there."""
        reach = self._reached(volume)
        if not self._is_shared(volume, read_only):
            return np.zeros_like(reach[rows])
        if volume.spec.scope is VolumeScope.SINGLE and (nodes := self._nodes_with(volume)):
            only = np.zeros_like(reach)
            # It can be on several already if its scope was another once: then no node can have it more.
            if len(nodes) == 1 and (row := self._row_of.get(next(iter(nodes)))) is not None:
                only[row] = reach[row]
            reach = only
        return reach[rows]

    def _is_shared(self, volume: Volume, read_only: bool) -> bool:
        """Whether there may be one user more, wherever it is."""
        if volume.spec.availability is not Availability.ACTIVE:
            return False
        users = self._users.get(volume.id, {}).values()
        match volume.spec.sharing:
            case VolumeSharing.NONE:
                return not users
            case VolumeSharing.READ_ONLY:
                return read_only
            case VolumeSharing.ONE_WRITER:
                return read_only or all(user.read_only for user in users)
        return True

    def _nodes_with(self, volume: Volume) -> dict[str, None]:
        """Nodes on which a volume is, or is about to be."""
        users = self._users.get(volume.id, {}).values()
        return dict.fromkeys([*(user.node_id for user in users), *(place.node_id for place in volume.published)])

    def _reached(self, volume: Volume) -> Rows:
        """By row: whether the node has the volume's driver and lies where the volume can be reached from."""
        known = self._reach.get(volume.id)
        if known is not None and known[0] == self._columns.epoch and known[1] is volume:
            return known[2]
        spec = volume.spec
        columns = self._columns
        driver = columns.rows_where(
            "volume plugins", ("volume driver", spec.driver), lambda names: spec.driver in names
        )
        reach = driver if spec.driver else np.ones_like(driver)
        if spec.requisite:
            reach = reach & np.logical_or.reduce([self._lies_in(topology) for topology in spec.requisite])
        self._reach[volume.id] = self._columns.epoch, volume, reach
        return reach

    def _lies_in(self, topology: Mapping[str, str]) -> Rows:
        """By row: whether the node has all labels of a topology; its own labels come before its engine's."""
        inside = np.ones(len(self._columns.nodes), dtype=bool)
        for key, value in topology.items():
            question, answer = ("is", value), partial(_equals, value)
            own = self._columns.rows_where(f"node.labels.{key}", question, answer)
            missing = self._columns.rows_where(f"node.labels.{key}", ("is", ""), partial(_equals, ""))
            inside &= own | (missing & self._columns.rows_where(f"engine.labels.{key}", question, answer))
        return inside


def _equals(wanted: str, actual: str) -> bool:
    return wanted == actual


def _is_of_group(mount: VolumeMount) -> bool:
    return mount.source.startswith(GROUP_PREFIX)


__all__ = ["User", "VolumeTable"]
