"""Keeps the decision log on disk: segments, each whole in itself, of which the oldest make room for new ones.

Theory of operation
-------------------
The index writes into a buffer in memory as it decides; a task of its own appends the buffer to a file, at most once in
`FLUSH_S`. A crash so loses what came within that time and perhaps a part of one message, which readers leave out. Nothing
waits for the disk. A new segment begins with what is in the index at that moment, and each start of the manager begins one.

When the disk refuses, the manager goes on without its log and tries again later with a new segment. Nothing is buffered
meanwhile, and a segment that has nothing whole in it yet is begun again: however long a disk is full, older ones stay.
"""

from __future__ import annotations

import re

import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.core.recorded_index import RecordedIndex
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.host import Files

SEGMENTS = 8
FLUSH_S = 1.0
RETRY_S = 60.0
# What is told of a large cluster within a second; more than this in memory means that the disk does not keep up.
BUFFER_BYTES_MAX = 64 << 20

_SUFFIX = ".decisions"
_NAME = re.compile(rf"[0-9]+{re.escape(_SUFFIX)}")  # others in the directory are somebody else's

log = structlog.get_logger(__name__)


class DecisionLog:
    """Has an index that is recorded, and writes the record while `run` runs."""

    def __init__(self, files: Files, config: ManagerConfig) -> None:
        """The log's directory and size are of the configuration, whose `decision_log_mib` is not 0."""
        self._files = files
        self._directory = f"{config.state_dir}/decisions"
        self._segment_bytes = (config.decision_log_mib << 20) // SEGMENTS
        self._buffer: list[bytes] = []
        self._n_buffered = 0
        self._some = trio.Event()
        self._names: list[str] = []  # of the segments, the one that is written at the end
        self._size = 0  # of that one, without what was in the index when it began
        self._is_empty = False  # nothing whole is in that one yet
        self._is_lost = False  # a part of it: a new one has to be begun
        self.index = RecordedIndex(self._take, strategy=config.strategy)

    def _take(self, data: bytes) -> None:
        if not self._is_lost:
            self._buffer.append(data)
            self._n_buffered += len(data)
        self._some.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled."""
        task_status.started()
        while True:
            await self._some.wait()
            await trio.sleep(FLUSH_S)
            try:
                await self._write()
            except DiskError as error:
                log.warning("decisions are not recorded", error=str(error), again_in_s=RETRY_S)
                self._is_lost = True
                self._emptied()
                self._some.set()
                await trio.sleep(RETRY_S)

    async def _write(self) -> None:
        """Append what is buffered, and begin a new segment where that is due."""
        if not self._names:
            names = await self._files.list(self._directory)
            self._names = sorted(filter(_NAME.fullmatch, names), key=_number)
            await self._begin_segment()
        if self._is_lost or self._n_buffered > BUFFER_BYTES_MAX:
            self._is_lost = False
            self._begin_log()
            if self._is_empty:
                await self._files.remove(self._path)  # a part of a message at most
            else:
                await self._begin_segment()
        data = self._emptied()
        is_full = self._size + len(data) >= self._segment_bytes
        if is_full:
            # Before anybody can tell the index more: what is told from now on stands in the new segment.
            self._begin_log()
        else:
            self._size += len(data)
        await self._files.append(self._path, data)
        self._is_empty = False
        if is_full:
            await self._begin_segment()

    def _emptied(self) -> bytes:
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._n_buffered = 0
        self._some = trio.Event()
        return data

    def _begin_log(self) -> None:
        """Buffer what is in the index instead of what was buffered."""
        self._emptied()
        self.index.begin_log()
        self._size = -self._n_buffered

    async def _begin_segment(self) -> None:
        """Choose the next name, and make room for its file."""
        last = _number(self._names[-1]) if self._names else 0
        self._names.append(f"{last + 1:08}{_SUFFIX}")
        self._is_empty = True
        while len(self._names) > SEGMENTS:
            await self._files.remove(f"{self._directory}/{self._names[0]}")
            del self._names[0]

    @property
    def _path(self) -> str:
        """Of the segment that is written."""
        return f"{self._directory}/{self._names[-1]}"


def _number(name: str) -> int:
    """Of a segment: later ones have greater ones."""
    return int(name.removesuffix(_SUFFIX))


__all__ = ["FLUSH_S", "SEGMENTS", "DecisionLog"]
