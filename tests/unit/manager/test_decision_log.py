"""The decision log on disk: segments that are whole, a bound, and a disk that refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from beeyard.core.errors import DiskError
from beeyard.core.placement import Demand
from beeyard.core.replay import replay
from beeyard.manager import decision_log
from beeyard.manager.config import ManagerConfig
from beeyard.manager.decision_log import FLUSH_S, RETRY_S, SEGMENTS, DecisionLog
from tests.support.builders import a_node

CONFIG = ManagerConfig(state_dir="/state", decision_log_mib=1)
SEGMENT_BYTES = (1 << 20) // SEGMENTS


class MemoryFiles:
    """Files that are there and can be made to refuse; the rest of the port is not asked for."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.refuses = False

    async def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    async def replace(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        raise AssertionError("a log is appended to")

    async def append(self, path: str, data: bytes) -> None:
        await trio.sleep(0.1)
        if self.refuses:
            self.content[path] = self.content.get(path, b"") + data[:7]
            raise DiskError("write", path, "the disk is full")
        self.content[path] = self.content.get(path, b"") + data

    async def remove(self, path: str) -> None:
        self.content.pop(path, None)

    async def list(self, directory: str) -> list[str]:
        return sorted(path.removeprefix(f"{directory}/") for path in self.content)


@asynccontextmanager
async def a_log(files: MemoryFiles, config: ManagerConfig = CONFIG) -> AsyncIterator[DecisionLog]:
    """A log that is written, of an index with two nodes."""
    recorder = DecisionLog(files, config)
    for node_id in ("n1", "n2"):
        recorder.index.set_node(a_node(node_id))
    async with trio.open_nursery() as nursery:
        await nursery.start(recorder.run)
        yield recorder
        nursery.cancel_scope.cancel()


def place(recorder: DecisionLog, number: int, n_tasks: int = 1) -> None:
    """Tasks with long names, which fill a log."""
    task_ids = [f"{number:04}-{n:04}-{'x' * 100}" for n in range(n_tasks)]
    recorder.index.place(Demand("s1"), task_ids)
    for task_id in task_ids:
        recorder.index.drop(task_id)


def n_decisions(files: MemoryFiles) -> list[int]:
    """Of each segment, all of which come out the same."""
    outcomes = [replay(data) for _, data in sorted(files.content.items())]
    assert [outcome.difference for outcome in outcomes] == [""] * len(outcomes)
    return [outcome.n_decisions for outcome in outcomes]


async def test_what_was_decided_is_on_disk_soon(autojump_clock: trio.testing.MockClock) -> None:
    files = MemoryFiles()
    async with a_log(files) as recorder:
        place(recorder, 1)
        await trio.sleep(FLUSH_S + 1)
        assert n_decisions(files) == [1]
        place(recorder, 2)
        place(recorder, 3)
        assert n_decisions(files) == [1]
        await trio.sleep(FLUSH_S + 1)
        assert n_decisions(files) == [3]
    assert list(files.content) == ["/state/decisions/00000001.decisions"]


async def test_segments_are_whole_and_no_decision_is_lost_between_them(autojump_clock: trio.testing.MockClock) -> None:
    """Also what is decided while the old segment is being written."""
    files = MemoryFiles()
    async with a_log(files) as recorder:
        n = 0
        while len(files.content) < 3:
            n += 1
            place(recorder, n, 10)
            await trio.sleep(0.05)
        await trio.sleep(2 * FLUSH_S + 1)
    assert sum(n_decisions(files)) == n
    assert all(SEGMENT_BYTES <= len(data) < 3 * SEGMENT_BYTES for data in list(files.content.values())[:-1])


async def test_old_segments_make_room(autojump_clock: trio.testing.MockClock) -> None:
    files = MemoryFiles()
    async with a_log(files) as recorder:
        for n in range(60):
            place(recorder, n, 500)
            await trio.sleep(FLUSH_S + 1)
    assert SEGMENTS - 1 <= len(files.content) <= SEGMENTS
    assert min(files.content) > "/state/decisions/00000010"
    assert all(n > 0 for n in n_decisions(files)[:-1])


async def test_each_start_begins_a_segment(autojump_clock: trio.testing.MockClock) -> None:
    files = MemoryFiles()
    of_others = ("note.txt", "copy.decisions", "00000002 (1).decisions")
    for name in of_others:
        files.content[f"/state/decisions/{name}"] = b"of somebody else"
    for _ in range(SEGMENTS + 2):
        async with a_log(files) as recorder:
            place(recorder, 1)
            await trio.sleep(FLUSH_S + 1)
    for name in of_others:
        assert files.content.pop(f"/state/decisions/{name}")
    assert [path[-12:-10] for path in files.content] == [f"{n:02}" for n in range(3, SEGMENTS + 3)]
    assert n_decisions(files) == [1] * SEGMENTS


async def test_a_disk_that_refuses_costs_what_was_decided_meanwhile(autojump_clock: trio.testing.MockClock) -> None:
    files = MemoryFiles()
    async with a_log(files) as recorder:
        place(recorder, 1)
        await trio.sleep(FLUSH_S + 1)
        files.refuses = True
        place(recorder, 2)
        recorder.index.place(Demand("s2"), ["stays"])
        await trio.sleep(FLUSH_S + 1)
        place(recorder, 3)
        files.refuses = False
        await trio.sleep(RETRY_S + FLUSH_S + 1)
        place(recorder, 4)
        await trio.sleep(FLUSH_S + 1)
    assert n_decisions(files) == [1, 1]


async def test_a_disk_that_is_full_for_long_costs_no_older_segment_and_no_memory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    files = MemoryFiles()
    for _ in range(SEGMENTS):
        async with a_log(files) as recorder:
            place(recorder, 1)
            await trio.sleep(FLUSH_S + 1)
    files.refuses = True
    async with a_log(files) as recorder:
        for n in range(3 * SEGMENTS):
            await trio.sleep(RETRY_S)
            place(recorder, n, 100)
            assert recorder._n_buffered < SEGMENT_BYTES
        files.refuses = False
        await trio.sleep(RETRY_S + FLUSH_S + 1)
        place(recorder, 99)
        await trio.sleep(FLUSH_S + 1)
    assert n_decisions(files) == [1] * SEGMENTS


async def test_a_disk_that_does_not_keep_up_is_not_waited_for(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "BUFFER_BYTES_MAX", 100_000)
    files = MemoryFiles()
    async with a_log(files, msgspec.structs.replace(CONFIG, decision_log_mib=100)) as recorder:
        await trio.sleep(FLUSH_S + 1)
        for n in range(20):
            place(recorder, n, 100)
        await trio.sleep(FLUSH_S + 1)
        place(recorder, 99)
        await trio.sleep(FLUSH_S + 1)
    assert n_decisions(files) == [0, 1]
