"""What really happens when a disk is full: a small tmpfs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from beeyard.core.errors import DiskError
from beeyard.runtime.real_files import RealFiles
from beeyard.runtime.sqlite_database import SqliteDatabase
from tests.support.conformance import a_record

pytestmark = pytest.mark.netns


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


async def test_database_on_a_full_disk_refuses_whole_and_recovers(small_disk: Path) -> None:
    """Nothing of a refused batch is stored, also after reopening, and commits work again once there is room."""
    path, ballast = str(small_disk / "store.db"), small_disk / "ballast"
    database = await SqliteDatabase.open(path)
    await database.commit([a_record(1, "a", b"old")])
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    ballast.write_bytes(b"x" * (free - 16384))
    batch = [a_record(index, f"n{index}", b"x" * 1000) for index in range(2, 102)]
    for _ in range(2):
        with pytest.raises(DiskError, match="the disk is full"):
            await database.commit(batch)
        assert await database.load() == (1, [a_record(1, "a", b"old")])
    await database.aclose()
    database = await SqliteDatabase.open(path)
    assert await database.load() == (1, [a_record(1, "a", b"old")])
    ballast.unlink()
    await database.commit(batch)
    assert len((await database.load())[1]) == 101
    await database.aclose()


async def test_file_on_a_full_disk_keeps_its_old_content(small_disk: Path) -> None:
    """A replacement that does not fit leaves what was there, and nothing else."""
    path, files = small_disk / "state.json", RealFiles()
    await files.replace(str(path), b"old")
    with pytest.raises(DiskError, match="the disk is full"):
        await files.replace(str(path), b"x" * (2 << 20))
    assert await files.read(str(path)) == b"old"
    assert os.listdir(small_disk) == ["state.json"]
