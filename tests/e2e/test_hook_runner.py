"""Nothing of a node hook is left when one of the processes that hold it is killed."""

from __future__ import annotations

import os
import pathlib
import time

import pytest
import trio

from beeyard.agent.executors.process.executor import ProcessExecutor
from beeyard.core.errors import NodeHookError
from beeyard.runtime.real_hooks import RealHooks
from tests.support.processes import with_argument

pytestmark = pytest.mark.netns

TASK = "t" * 25
# The parent of a hook, and that one's: what the kernel may choose when memory is short.
KILLED = {"inner": "$PPID", "outer": "$(awk '/^PPid/ {print $2}' /proc/$PPID/status)"}


@pytest.mark.parametrize("forks", ["the agent", "the zygote"])
@pytest.mark.parametrize("which", ["inner", "outer"])
async def test_what_a_hook_has_left_ends_though_its_runner_was_killed(
    tmp_path: pathlib.Path, forks: str, which: str
) -> None:
    marker = f"4{os.getpid():07}{time.monotonic_ns() % 1000:03}"
    directory = tmp_path / "hooks.d"
    directory.mkdir(mode=0o755)
    script = f"sleep {marker} & setsid setsid sleep {marker} &\nsleep 0.2; kill -9 {KILLED[which]}; exec sleep {marker}"
    (directory / "10-a").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "10-a").chmod(0o755)
    executor = ProcessExecutor(f"{tmp_path}/state", f"{tmp_path}/log")
    spawn = None if forks == "the agent" else executor.spawn_hook
    hooks = RealHooks(str(directory), "", python_path=(), spawn=spawn)
    try:
        if which == "inner":
            with pytest.raises(NodeHookError, match="node hook 10-a was lost at prepare"):
                await hooks.run("10-a", "prepare", TASK, b"{}", timeout_s=20)
        else:
            assert (await hooks.run("10-a", "prepare", TASK, b"{}", timeout_s=20)).exit_code == 128 + 9
        with trio.fail_after(10):
            while with_argument(marker):  # noqa: ASYNC110 - processes send no event
                await trio.sleep(0.02)
    finally:
        await executor.aclose()
