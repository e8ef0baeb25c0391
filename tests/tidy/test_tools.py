"""The linters and the type checker agree with the tree."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["cython-lint", "core", "discovery"],
        ["sh", "-n", "yard"],
        ["sh", "-n", ".ci/run"],
    ],
    ids=" ".join,
)
def test_the_tree_passes(command: list[str]) -> None:
    """Formatting, lint, types and shell syntax are clean."""
    program = BIN / command[0]
    result = subprocess.run(
        [str(program) if program.exists() else command[0], *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/nonexistent"},  # cython-lint runs pycodestyle by name
    )
    assert result.returncode == 0, result.stdout + result.stderr
