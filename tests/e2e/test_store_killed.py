"""What was acknowledged survives `kill -9` at any moment."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from beeyard.runtime.sqlite_database import SqliteDatabase

PROGRAM = """
import sys, trio
from beeyard.runtime.sqlite_database import SqliteDatabase
from beeyard.runtime.host import Record

async def main():
    database = await SqliteDatabase.open(sys.argv[1])
    index, _ = await database.load()
    while True:
        await database.commit([Record(index=index + n, kind="task", id=str(index + n), data=b"x" * 500) for n in (1, 2, 3)])
        index += 3
        print(index, flush=True)

trio.run(main)
"""


async def test_acknowledged_batches_survive_a_kill_and_none_is_torn(tmp_path: Path) -> None:
    """Eight lives, each killed at a random moment: nothing that was printed is missing, batches are whole."""
    path, rng, acknowledged = str(tmp_path / "store.db"), random.Random(1), 0
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.05))  # noqa: ASYNC251 - nothing else runs in this loop
            writer.kill()
            lines = [line for line in (first, *writer.stdout.read().splitlines(keepends=True)) if line.endswith("\n")]
            acknowledged = int(lines[-1])
        database = await SqliteDatabase.open(path)
        index, records = await database.load()
        await database.aclose()
        assert index >= acknowledged
        assert index % 3 == 0
        assert [record.index for record in records] == list(range(1, index + 1))
