"""Log lines for the journal."""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from beeyard.runtime import real_log
from beeyard.runtime.real_log import JournalWriter, PlainWriter, encoded, field_name


def parsed(data: bytes) -> dict[str, str]:
    """The fields of one entry in the journal's own protocol."""
    fields = {}
    while data:
        name, mark, rest = data.partition(b"\n")
        if b"=" in name:
            key, _, value = name.partition(b"=")
            fields[key.decode()] = value.decode()
            data = rest
        else:
            assert mark
            (length,) = struct.unpack_from("<Q", rest)
            fields[name.decode()] = rest[8 : 8 + length].decode()
            data = rest[8 + length + 1 :]
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "journal"))
        listener.settimeout(5)
        yield listener


def write(path: Path, **event: object) -> str | None:
    writer = JournalWriter(str(path / "journal"), "beeyard")
    try:
        return writer(None, str(event.get("level", "info")), dict(event))
    except structlog.DropEvent:
        return None
    finally:
        writer.close()


def test_a_line_arrives_with_its_fields(tmp_path: Path, journal: socket.socket) -> None:
    assert write(tmp_path, event="task failed", level="warning", task="t1", node="n 1", service="web", errno=5) is None
    assert parsed(journal.recv(65536)) == {
        "MESSAGE": "task failed task=t1 node='n 1' service=web errno=5",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "beeyard",
        "TASK_ID": "t1",
        "NODE": "n 1",
        "SERVICE": "web",
        "BEEYARD_ERRNO": "5",
    }


def test_a_value_of_several_lines_and_a_traceback_arrive_whole(tmp_path: Path, journal: socket.socket) -> None:
    write(tmp_path, event="a\nb", level="error", exception="Traceback:\n  here")
    fields = parsed(journal.recv(65536))
    assert fields["MESSAGE"] == "a\nb\nTraceback:\n  here"
    assert fields["PRIORITY"] == "3"


def test_a_line_too_large_for_a_datagram_goes_through_a_file(tmp_path: Path, journal: socket.socket) -> None:
    text = "x" * 1_000_000
    assert write(tmp_path, event=text) is None
    data, ancillary, _, _ = journal.recvmsg(16, socket.CMSG_SPACE(4))
    assert data == b""
    (fd,) = array.array("i", ancillary[0][2][:4])
    with os.fdopen(fd, "rb") as file:
        wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & wanted == wanted, "the journal refuses it of an unprivileged user"
        file.seek(0)
        assert parsed(file.read())["MESSAGE"] == text


def test_without_a_journal_the_line_goes_to_standard_error_with_its_priority(tmp_path: Path) -> None:
    assert write(tmp_path, event="a\nb", level="error", n=1) == "<3>a\n<3>b n=1"


@pytest.mark.parametrize(
    ("name", "field"),
    [("task", "TASK_ID"), ("_secret", "SECRET"), ("käse", "K_SE"), ("message", "BEEYARD_MESSAGE"), ("__", "FIELD")],
)
def test_field_names_are_what_the_journal_allows(name: str, field: str) -> None:
    assert field_name(name) == field


def test_a_field_cannot_pretend_to_be_another() -> None:
    assert parsed(encoded({"A": "x\nPRIORITY=0", "B": ""})) == {"A": "x\nPRIORITY=0", "B": ""}


def test_the_level_may_change_after_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A reload changes what is written, also by loggers that exist."""
    logger = real_log.LevelledLogger(structlog.PrintLogger(), [lambda *a: a[2]["event"]], {})
    real_log.set_level("warning")
    logger.info("one")
    real_log.set_level("debug")
    logger.debug("two")
    real_log.set_level("info")
    logger.debug("three")
    assert capsys.readouterr().out == "two\n"


def test_only_the_stream_that_the_service_manager_named_is_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "stream", "w") as stream, open(tmp_path / "other", "w") as other:
        about = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino}")
        assert real_log.is_journal(stream.fileno())
        assert not real_log.is_journal(other.fileno())
    monkeypatch.delenv("JOURNAL_STREAM")
    with open(tmp_path / "stream") as stream:
        assert not real_log.is_journal(stream.fileno())


def test_a_line_for_a_file_has_time_level_fields_and_traceback() -> None:
    event = {"event": "task failed", "level": "error", "task": "t1", "node": "n 1", "exception": "Traceback:\n  here"}
    line = PlainWriter()(None, "exception", event)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[error\] task failed task=t1 node='n 1'\nTraceback:\n  here", line
    )
