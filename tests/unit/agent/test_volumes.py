"""Cluster volumes on a node: directories below one that its operator names."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.agent.volumes import VolumeStep, drivers_of
from beeyard.core.errors import ExecutorError
from beeyard.core.grant import VolumeGrant
from beeyard.core.volume import VolumeUse
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Mount
from beeyard.runtime.sim_hooks import SimHooks
from tests.support.agent_tasks import an_assigned


def a_use(name: str = "data", target: str = "/srv/data", *, driver: str = "dir", read_only: bool = False) -> VolumeUse:
    return VolumeUse(volume_id="v1", name=name, driver=driver, source=name, target=target, read_only=read_only)


def with_volumes(*uses: VolumeUse) -> AssignedTask:
    return msgspec.structs.replace(an_assigned("t1"), grants=(VolumeGrant(id="g1", hook="volume", uses=uses),))


def a_step(hooks: SimHooks) -> VolumeStep:
    return VolumeStep(hooks, "/volumes", own_dirs=["/var/lib/beeyard"])


async def test_a_node_has_the_driver_when_its_directory_is_there(autojump_clock: object) -> None:
    hooks = SimHooks()
    assert await drivers_of(hooks, "") == ()
    assert await drivers_of(hooks, "/volumes") == ()
    hooks.add_path("/volumes", "file")
    assert await drivers_of(hooks, "/volumes") == ()
    hooks.add_path("/volumes")
    assert await drivers_of(hooks, "/volumes") == ("dir",)
    assert await drivers_of(hooks, "/volumes/../etc") == ()


async def test_a_task_gets_the_directories_of_its_volumes(autojump_clock: object) -> None:
    hooks = SimHooks()
    hooks.add_path("/volumes")
    hooks.add_path("/volumes/data", leads_to="/mnt/nfs/data")
    hooks.add_path("/volumes/models")
    task = with_volumes(a_use(), a_use("models", "/srv/models", read_only=True))
    assert (await a_step(hooks).before(task)).mounts == (
        Mount(source="/mnt/nfs/data", target="/srv/data", read_only=False),
        Mount(source="/volumes/models", target="/srv/models", read_only=True),
    )
    assert await a_step(hooks).before(an_assigned("t2")) is NO_ADDITIONS


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (a_use("gone"), "volume: gone: there is no directory /volumes/gone on this node: make it, or mount it"),
        (a_use("file"), "there is no directory /volumes/file"),
        (a_use(driver="nfs"), "volume: data: this node has no driver nfs"),
        (a_use(target="/proc/x"), "may not mount at /proc/x: /proc is never covered"),
        (a_use(target="/var/lib/beeyard/agent"), "/var/lib/beeyard is never covered"),
        (a_use(target="srv"), "an absolute path below / and without '..' is right"),
    ],
)
async def test_what_is_not_there_refuses_the_task(autojump_clock: object, use: VolumeUse, reason: str) -> None:
    hooks = SimHooks()
    for path in ("/volumes", "/volumes/data"):
        hooks.add_path(path)
    hooks.add_path("/volumes/file", "file")
    with pytest.raises(ExecutorError) as caught:
        await a_step(hooks).before(with_volumes(use))
    assert reason in str(caught.value)
