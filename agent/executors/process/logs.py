"""The output of removed tasks: kept for a person to read, but not for ever. Standard library alone."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import NamedTuple

from beeyard.agent.executors.process.order import Places

# A log and the one that it was turned over from. Only what looks like ours is touched: the directory may be an operator's.
_NAME = re.compile(r"([0-9a-z]{25})(?:\.hooks)?\.log(?:\.1)?")


class Keep(NamedTuple):
    """How much is kept of tasks that are removed, the newest first."""

    # 1,000: a day of a node on which a task fails every minute and a half. What matters is the end of the list; each costs a
    # directory entry, and a look at it whenever the directory is pruned.
    n_tasks: int = 1000
    # 1 GiB: small beside the disk of any host that runs tasks, and fifty logs of the greatest size.
    n_bytes: int = 1 << 30


KEEP = Keep()


class _Log(NamedTuple):
    """What is there of one task. Tuples compare, the oldest first."""

    written_at_ns: int
    task_id: str
    n_bytes: int
    names: tuple[str, ...]


def prune(places: Places, keep: Keep) -> None:
    """Remove the oldest logs of removed tasks, as far as there are too many. Idempotent: yes."""
    n_bytes = 0
    for n_tasks, log in enumerate(sorted(_removed(places), reverse=True), 1):
        n_bytes += log.n_bytes
        if n_tasks > keep.n_tasks or n_bytes > keep.n_bytes:
            for name in log.names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{places.log_dir}/{name}")


def _removed(places: Places) -> list[_Log]:
    """Logs of tasks that are not here any more."""
    found: dict[str, _Log] = {}
    try:
        names = os.listdir(places.log_dir)
    except FileNotFoundError:
        return []
    for name in names:
        match = _NAME.fullmatch(name)
        # A task that is here has this directory since before it had a log.
        if match is None or os.path.exists(places.shim_dir(match[1])):
            continue
        try:
            status = os.lstat(f"{places.log_dir}/{name}")
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            other = found.get(match[1], _Log(0, match[1], 0, ()))
            written_at_ns = max(other.written_at_ns, status.st_mtime_ns)
            found[match[1]] = _Log(written_at_ns, match[1], other.n_bytes + status.st_size, (*other.names, name))
    return list(found.values())


__all__ = ["KEEP", "Keep", "prune"]
