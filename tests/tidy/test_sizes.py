"""Files and functions stay small enough to read, and hold nothing that was left for later."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def tracked(*suffixes: str) -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        path = ROOT / name
        if name and path.suffix in suffixes and path.is_file() and not path.is_symlink():
            yield path


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    """A longer file is split where the idea splits."""
    long = [
        f"{path.relative_to(ROOT)}: {n_lines} lines"
        for path in tracked(".py", ".pyx", ".pxd", ".c", ".h")
        if (n_lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    ]
    assert long == []


def test_no_function_is_longer_than_a_screen() -> None:
    """A longer function is several ideas."""
    long = []
    for path in tracked(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if n_lines > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {n_lines} lines")
    assert long == []


def test_nothing_is_left_for_later_in_the_code() -> None:
    """What is not done is written down in docs/, where a reader looks."""
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".py", ".pyx", ".pxd", ".c", ".h", ".toml")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_public_functions_of_the_kernel_have_docstrings() -> None:
    """Every `def` of a compiled module says shapes, units and errors."""
    bare = []
    for path in tracked(".pyx"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(r"\s*def (?!__)", line):
                end = next((i for i in range(number, len(lines)) if lines[i].rstrip().endswith(":")), number)
                if '"""' not in "".join(lines[end + 1 : end + 2]):
                    bare.append(f"{path.relative_to(ROOT)}:{number + 1} {line.strip()}")
    assert bare == []
