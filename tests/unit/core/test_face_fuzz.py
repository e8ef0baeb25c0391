"""Nobody who calls the kernel with nonsense gets anything but an exception: no crash, no memory of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("how", [("random", "0", "12", "60"), ("random", "1000", "1012", "60")])
def test_wrong_shapes_types_and_numbers_never_crash_the_interpreter(how: tuple[str, ...]) -> None:
    """In a process of its own: what is looked for would end this one. The debug build says when memory of others is read."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.face_fuzz", *how], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-4000:]}"
    n_done, _, _, n_refused = done.stdout.replace(",", " ,").split()[:4] if done.stdout else ("0", "", "", "0")
    assert int(n_done) > 50, done.stdout
    assert int(n_refused) > 50, done.stdout
