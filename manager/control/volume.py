"""Creating, changing and removing cluster volumes."""

from __future__ import annotations

import re

import msgspec

from beeyard.core.errors import FailedPrecondition, InvalidSpec
from beeyard.core.volume import DIR_DRIVER, Volume, VolumeSpec
from beeyard.manager.store import Store, Transaction, View

# As Docker's names of volumes; it becomes the name of a directory on nodes.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}")


async def create_volume(store: Store, volume_id: str, spec: VolumeSpec) -> Volume:
    """Store a new volume.

    Raises:
        InvalidSpec, NameConflict, DiskError
    """
    _check_name("Name", spec.name)
    _check_name("Driver", spec.driver)
    if spec.group:
        _check_name("ClusterVolumeSpec.Group", spec.group)

    def build(tx: Transaction) -> Volume:
        _check_driver(tx, spec.driver)
        return tx.create(Volume(id=volume_id, spec=spec))

    return await store.commit(build)


async def update_volume(store: Store, volume_id: str, version: int, spec: VolumeSpec) -> Volume:
    """Change a volume's availability: all else of it is fixed, because tasks may count on it.

    Raises:
        NotFound, OutOfSequence, DiskError
        InvalidSpec: something else is to be changed.
    """

    def build(tx: Transaction) -> Volume:
        volume = tx.find(Volume, volume_id)
        for field in ("group", "scope", "sharing", "requisite"):
            if getattr(spec, field) != getattr(volume.spec, field):
                raise InvalidSpec(f"volume {volume.name}", f"its {field} cannot be changed, only its availability can")
        changed = msgspec.structs.replace(volume.spec, availability=spec.availability)
        return tx.update(msgspec.structs.replace(volume, spec=changed), expected_version=version)

    return await store.commit(build)


async def remove_volume(store: Store, volume_id: str, *, force: bool) -> None:
    """Forget a volume; what is in it stays where it is.

    Raises:
        NotFound, DiskError
        FailedPrecondition: a task has it and `force` is not given.
    """

    def build(tx: Transaction) -> None:
        volume = tx.find(Volume, volume_id)
        if not force and (user := _user_of(tx, volume_id)):
            raise FailedPrecondition(f"volume {volume.name} is in use by {user}")
        tx.delete(Volume, volume_id)

    await store.commit(build)


def _user_of(view: View, volume_id: str) -> str:
    """A task that has a volume, for a person; "" when none has."""
    for task in view.tasks.values():
        if task.holds_room and any(use.volume_id == volume_id for use in task.volumes):
            return f"task {task.service_name}.{task.slot} ({task.id})"
    return ""


def _check_driver(view: View, driver: str) -> None:
    """Refuse a driver that no node has said it has: a volume's driver cannot be changed, and its tasks would wait for ever.

    SwarmKit takes any name, because its storage plugins are services that may come later; dockerd refuses an unknown one for
    a volume of its own. Here drivers come with agents, so what nodes have reported, also those that are down, is all there
    is. `dir` may come before the first node does.
    """
    there = {DIR_DRIVER, *(name for node in view.nodes.values() for name in node.description.volume_drivers)}
    if driver not in there:
        known = ", ".join(sorted(there))
        raise InvalidSpec("Driver (--driver)", f"{driver!r:.80} is none that a node of this cluster has: {known}")


def _check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            field, f"{name!r:.80} must be of letters, digits, _, . and -, and begin with one of the first two"
        )


__all__ = ["create_volume", "remove_volume", "update_volume"]
