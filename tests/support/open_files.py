"""A process that may open only a few more files."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def room_for(n_files: int) -> Iterator[int]:
    """Let this process open so many more files and no other one; gives its limit of open files meanwhile."""
    opened = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(n_files + 1)]
    for fd in opened:
        os.close(fd)
    # The kernel gives the lowest free number, and the limit is of the numbers.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1], hard))
    try:
        yield opened[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
