"""What follows node hooks finds what it is there for."""

from __future__ import annotations

import pytest

from beeyard.runtime.sim import SimWorld
from beeyard.runtime.sim_hooks import HookCall
from tests.sim.node_hooks import check_hook_order, check_hooks_are_paired


def a_world_with(*calls: str) -> SimWorld:
    """A machine whose one hook was called so: "moment" or "moment: how it ended"."""
    world = SimWorld(1)
    machine = world.machine("a1")
    for call in calls:
        moment, _, end = call.partition(": ")
        machine.hooks.calls.append(HookCall("10-site", moment, "t1", {}, 0.0, end or "exit 0"))
    return world


@pytest.mark.parametrize(
    ("calls", "paired", "in_order"),
    [
        ((), True, True),
        (("prepare", "start", "stop"), True, True),
        (("prepare: exit 1", "stop", "stop"), True, True),
        (("prepare", "stop: killed", "stop"), True, True),
        (("prepare", "stop: exit 1", "stop: late", "stop: exit 1"), True, True),
        (("prepare: killed", "stop", "prepare", "start", "stop"), True, True),
        (("prepare", "start"), False, True),
        (("prepare: killed",), False, True),
        (("prepare", "stop: exit 1", "stop: killed"), False, True),
        (("prepare", "stop", "prepare"), False, True),
        (("prepare", "prepare", "stop"), True, False),
        (("start",), True, False),
    ],
)
async def test_hooks_without_their_stop_are_found(calls: tuple[str, ...], paired: bool, in_order: bool) -> None:
    """Whoever was called for `prepare` is called for `stop`, before it is called for `prepare` again."""
    world = a_world_with(*calls)
    for check, holds in ((check_hooks_are_paired, paired), (check_hook_order, in_order)):
        if holds:
            check(world)
            continue
        with pytest.raises(AssertionError, match="task t1"):
            check(world)
