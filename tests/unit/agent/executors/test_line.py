"""What a connection to a shim or a zygote says when the agent may open no more files."""

from __future__ import annotations

import errno
import os
import pathlib
import socket

import pytest

from beeyard.agent.executors.process.line import ShimGone, connect
from beeyard.agent.executors.process.order import Places, reason_of
from beeyard.agent.executors.process.zygote_client import Zygote
from beeyard.core.errors import ExecutorError
from tests.support.open_files import room_for

ADVICE = "files open that it may have: raise LimitNOFILE of its service, or `ulimit -n`"


def n_open() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("n_files", [0, 1])
async def test_a_shim_for_which_there_is_no_descriptor_is_not_spoken_with_and_none_is_lost(
    tmp_path: pathlib.Path, n_files: int
) -> None:
    """The error names the limit and how to raise it, whichever of the two files cannot be had."""
    with socket.socket(socket.AF_UNIX) as shim:
        shim.bind(f"{tmp_path}/sock")
        shim.listen()
        before = n_open()
        with pytest.raises(ExecutorError) as refused, room_for(n_files) as limit:
            connect(str(tmp_path))
        assert str(refused.value) == f"connect: cannot speak with its shim: this process has all {limit} {ADVICE}"
        assert n_open() == before
        connect(str(tmp_path)).close()
    with pytest.raises(ShimGone):
        connect(str(tmp_path))


# Two files are for the child's connection; the next ones are the zygote's own.
@pytest.mark.parametrize(
    ("n_files", "launcher", "sentence"),
    [
        (0, "", "cannot speak with it"),
        (2, "", "cannot speak with it"),
        (2, "/nowhere/socket", "cannot connect to the launcher /nowhere/socket"),
    ],
)
async def test_a_zygote_for_which_there_is_no_descriptor_is_not_asked_and_none_is_lost(
    tmp_path: pathlib.Path, n_files: int, launcher: str, sentence: str
) -> None:
    zygote = Zygote(Places(str(tmp_path), str(tmp_path), ""), launcher)
    before = n_open()
    with pytest.raises(ExecutorError) as refused, room_for(n_files) as limit:
        await zygote.ask("bury")
    assert str(refused.value) == f"zygote: {sentence}: this process has all {limit} {ADVICE}"
    assert n_open() == before


def test_a_host_without_files_is_told_from_a_process_without() -> None:
    error = OSError(errno.ENFILE, "Too many open files in system")
    assert reason_of(error) == "all files are open that this host may have: raise the sysctl fs.file-max"
