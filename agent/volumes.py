"""Cluster volumes on a node: those of driver `dir` are directories below one that the node's operator names.

What makes such a directory the same on several nodes, a network file system or a disk that moves, is the operator's business;
a volume's topology says on which nodes it is there. The task sees the directory where its mount says, and whoever it runs as
must be allowed to read and write there.
"""

from __future__ import annotations

from collections.abc import Sequence

from beeyard.agent import hook_policy
from beeyard.agent.steps import Step
from beeyard.core.errors import ExecutorError
from beeyard.core.grant import VolumeGrant
from beeyard.core.volume import DIR_DRIVER, VolumeUse
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions, Mount, NodeHooks

PHASE = "volume"


async def drivers_of(host_files: NodeHooks, volumes_dir: str) -> tuple[str, ...]:
    """The drivers of volumes that a node can serve.

    Args:
        host_files: knows what is at a path of the host.
        volumes_dir: as configured, "" for none.
    """
    seen = await host_files.look(volumes_dir) if hook_policy.is_clean_path(volumes_dir) else None
    return (DIR_DRIVER,) if seen is not None and seen.kind == "directory" else ()


class VolumeStep(Step):
    """Mounts the directories of a task's volumes.

    Args:
        own_dirs: of Beeyard's: never covered.
    """

    def __init__(self, host_files: NodeHooks, volumes_dir: str, *, own_dirs: Sequence[str]) -> None:
        self._host_files = host_files
        self._volumes_dir = volumes_dir
        self._own_dirs = tuple(own_dirs)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        uses = [use for grant in task.grants if isinstance(grant, VolumeGrant) for use in grant.uses]
        return Additions(mounts=tuple([await self._mount(use) for use in uses])) if uses else NO_ADDITIONS

    async def _mount(self, use: VolumeUse) -> Mount:
        """Raises ExecutorError: the volume is not on this node, or cannot be mounted where the task wants it."""
        if use.driver not in await drivers_of(self._host_files, self._volumes_dir):
            raise ExecutorError(PHASE, f"{use.name}: this node has no driver {use.driver}")
        path = f"{self._volumes_dir}/{use.name}"
        seen = await self._host_files.look(path)
        if seen is None or seen.kind != "directory":
            raise ExecutorError(PHASE, f"{use.name}: there is no directory {path} on this node: make it, or mount it")
        fault = hook_policy.target_fault(use.target, own_dirs=self._own_dirs)
        if fault:
            raise ExecutorError(PHASE, f"{use.name}: {fault}")
        return Mount(source=seen.path, target=use.target, read_only=use.read_only)


__all__ = ["VolumeStep", "drivers_of"]
