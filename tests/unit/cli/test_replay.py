"""`beeyard replay FILE`: what it says and its exit codes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from beeyard.cli.main import main
from beeyard.core import decision_log as log
from beeyard.core.demand import Demand
from beeyard.core.recorded_index import RecordedIndex
from tests.support.builders import a_node


def a_log() -> list[bytes]:
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    index.set_node(a_node("n1"))
    index.place(Demand("s1"), ["t1", "t2"])
    return written


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_that_comes_out_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: type[bytes]) -> None:
    file = tmp_path / "log"
    file.write_bytes(pack(b"".join(a_log())))
    assert main(["replay", str(file)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "1 decision, 2 tasks placed: all the same"
    assert len(said[1]) == len("digest ") + 64


def test_a_log_that_was_cut_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"".join(a_log()) + b"\xff\xff\0\0abc")
    assert main(["replay", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "the last 7 bytes are of a message that was cut off or is damaged"
    ]


def test_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    changed = log.frame(log.Place(0, ("t1",), (), 0.0, (("n2", (), ()),)))
    file.write_bytes(b"".join([*a_log()[:-1], changed]))
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().out == "decision 1: task t1 went to node n2 then, went to node n1 now\n"


DAMAGED = b"\x1f\x8b\x08" + bytes(7) + b"garbage"


@pytest.mark.parametrize(
    "content", [None, b"", b"\x1f\x8bnot compressed", DAMAGED, gzip.compress(b"x" * 99, mtime=0)[:20]]
)
def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None) -> None:
    file = tmp_path / "log"
    if content is not None:
        file.write_bytes(content)
    assert main(["replay", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("beeyard replay: ")
    assert "Errno" not in said
