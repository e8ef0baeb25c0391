"""What every implementation of the port `NodeHooks` keeps, the simulated one as well as the real one."""

from __future__ import annotations

from typing import Protocol

import pytest
import trio

from beeyard.core.errors import NodeHookError
from beeyard.runtime.host import NodeHooks, SeenPath

TASK = "t" * 25
# What a hook does that is installed: ends with an answer, refuses, hangs.
ANSWERS, REFUSES, HANGS = "answers", "refuses", "hangs"
ANSWER = b'{"env": {"A": "1"}}'
MESSAGE = "not today"
EXIT_CODE = 3


class HookMachine(Protocol):
    """A machine with hooks."""

    @property
    def hooks(self) -> NodeHooks: ...

    def install(self, name: str, kind: str) -> None:
        """Put a hook there that does what its kind says."""

    def remove(self, name: str) -> None:
        """Take one away."""

    def spoil(self, name: str) -> None:
        """Make one that is there unsafe to call."""

    def ended(self, n_calls: int) -> bool:
        """Whether so many calls were begun, and nothing of any runs."""

    def place(self) -> str:
        """The path of a directory that is there."""


async def check_hooks(machine: HookMachine) -> None:
    """All promises of the port; ends with no hook installed."""
    hooks = machine.hooks
    assert await hooks.names() == ()
    machine.install("20-b", REFUSES)
    machine.install("10-a", ANSWERS)
    assert await hooks.names() == ("10-a", "20-b")
    answer = await hooks.run("10-a", "prepare", TASK, b"{}", timeout_s=30)
    assert (answer.exit_code, answer.stdout.strip(), answer.stderr, answer.late) == (0, ANSWER, "", False)
    answer = await hooks.run("20-b", "prepare", TASK, b"{}", timeout_s=30)
    assert (answer.exit_code, answer.stdout, answer.stderr.strip()) == (EXIT_CODE, b"", MESSAGE)
    assert not answer.late
    assert TASK in answer.output_path
    assert machine.ended(2)

    machine.install("30-c", HANGS)
    began_s = trio.current_time()
    answer = await hooks.run("30-c", "prepare", TASK, b"{}", timeout_s=0.5)
    assert answer.late
    assert trio.current_time() - began_s >= 0.5
    assert machine.ended(3)
    with trio.move_on_after(0.5) as scope:
        await hooks.run("30-c", "prepare", TASK, b"{}", timeout_s=3600)
    assert scope.cancelled_caught
    assert machine.ended(4)

    machine.remove("30-c")
    assert await hooks.names() == ("10-a", "20-b")
    with pytest.raises(NodeHookError, match=r"^node hook 30-c is not in .* any more$"):
        await hooks.run("30-c", "stop", TASK, b"{}", timeout_s=30)

    assert await hooks.look(machine.place()) == SeenPath(path=machine.place(), kind="directory")
    assert await hooks.look(f"{machine.place()}/no/such") is None

    machine.spoil("20-b")
    with pytest.raises(
        NodeHookError, match=r"^node hook 20-b is not safe to call: .*others than its owner may not write it$"
    ):
        await hooks.names()
    machine.remove("10-a")
    machine.remove("20-b")
    assert await hooks.names() == ()


__all__ = ["ANSWER", "ANSWERS", "EXIT_CODE", "HANGS", "MESSAGE", "REFUSES", "HookMachine", "check_hooks"]
