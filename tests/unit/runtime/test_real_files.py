"""Small files on a real disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from beeyard.core.errors import DiskError
from beeyard.runtime.real_files import RealFiles
from tests.support.conformance import check_files


async def test_real_files_conform(tmp_path: Path) -> None:
    """The machine's file system keeps what `Files` promises."""
    await check_files(RealFiles(), str(tmp_path / "new"))


async def test_replaced_file_has_exactly_the_mode_asked_for(tmp_path: Path) -> None:
    """Neither the umask nor what was there before decides who may read a key."""
    path, files = tmp_path / "key.pem", RealFiles()
    path.write_bytes(b"old")
    path.chmod(0o644)
    await files.replace(str(path), b"new", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await files.replace(str(path), b"new", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


async def test_failing_sync_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the syncs fails, the file is whole, no other file is left, and a retry succeeds."""
    path, files, n_failed = tmp_path / "state.json", RealFiles(), 0
    real_fsync = os.fsync
    for failing in range(1, 10):
        await files.replace(str(path), b"old")
        n_calls = 0

        def fsync(fd: int, failing: int = failing) -> None:
            nonlocal n_calls
            n_calls += 1
            if n_calls == failing:
                raise OSError(5, "Input/output error")
            real_fsync(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        try:
            await files.replace(str(path), b"new")
            assert await files.read(str(path)) == b"new"
            break
        except DiskError:
            n_failed += 1
            assert await files.read(str(path)) in (b"old", b"new")
            assert os.listdir(tmp_path) == ["state.json"]
        monkeypatch.setattr(os, "fsync", real_fsync)
        await files.replace(str(path), b"again")
    assert n_failed == 2  # the file's content and the directory's names
