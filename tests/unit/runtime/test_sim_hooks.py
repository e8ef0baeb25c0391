"""The simulated node hooks keep what the real ones keep, and die with their agent."""

from __future__ import annotations

import pytest
import trio

from beeyard.core.errors import NodeHookError
from beeyard.runtime.sim_hooks import HANGS as HANGING
from beeyard.runtime.sim_hooks import GatedHooks, HookScript, SimHooks
from beeyard.runtime.sim_life import Life, PauseSwitch
from tests.support.hooks_conformance import ANSWER, ANSWERS, EXIT_CODE, HANGS, MESSAGE, REFUSES, check_hooks

SCRIPTS = {
    ANSWERS: HookScript(answer=ANSWER),
    REFUSES: HookScript(exit_code=EXIT_CODE, stderr=MESSAGE),
    HANGS: HANGING,
}


class SimMachine:
    """A `HookMachine` in memory."""

    def __init__(self) -> None:
        self.hooks = SimHooks()
        self.hooks.add_path(self.place())

    def install(self, name: str, kind: str) -> None:
        self.hooks.hooks[name] = lambda moment, document: SCRIPTS[kind]

    def remove(self, name: str) -> None:
        del self.hooks.hooks[name]
        self.hooks.unsafe = ""

    def spoil(self, name: str) -> None:
        self.hooks.unsafe = name

    def ended(self, n_calls: int) -> bool:
        return len(self.hooks.calls) == n_calls and all(call.end != "runs" for call in self.hooks.calls)

    def place(self) -> str:
        return "/srv"


async def test_simulated_hooks_keep_the_promises_of_the_port(autojump_clock: object) -> None:
    await check_hooks(SimMachine())


async def test_hooks_of_a_paused_machine_wait_and_those_of_a_dead_agent_fail(autojump_clock: object) -> None:
    """The port of one life, on a machine that outlives it."""
    switch = PauseSwitch()
    hooks = SimHooks(switch.running)
    hooks.hooks["h"] = lambda moment, document: HookScript(takes_s=1)
    life = Life("n1", switch)
    gated = GatedHooks(life, hooks)
    switch.pause()
    with trio.move_on_after(5) as scope:
        await gated.names()
    assert scope.cancelled_caught
    switch.resume()
    assert await gated.names() == ("h",)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_crash, gated)
        await trio.sleep(0.5)
        life.end()
    with pytest.raises(NodeHookError, match="crashed"):
        await gated.look("/srv")


async def _expect_crash(gated: GatedHooks) -> None:
    with pytest.raises(NodeHookError, match="crashed"):
        await gated.run("h", "prepare", "t1", b"{}", timeout_s=10)
