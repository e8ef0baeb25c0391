"""What both daemons do before they are daemons."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from beeyard.runtime import real_main
soft, hard, real_main.FILES = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
real_main.allow_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "files", "after"),
    [(100, 500, 300, (300, 500)), (100, 200, 300, (200, 200)), (400, 500, 300, (400, 500))],
)
def test_a_daemon_may_open_as_many_files_as_it_is_allowed(
    soft: int, hard: int, files: int, after: tuple[int, int]
) -> None:
    """Up to what it wants, and never fewer than before."""
    words = [sys.executable, "-c", SCRIPT, str(soft), str(hard), str(files)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert tuple(map(int, done.stdout.split())) == after
