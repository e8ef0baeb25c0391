"""Where a daemon's log lines go: to standard error, plainly if that is a file, or to the journal with their fields.

The journal gets them by its own protocol, one datagram a line (systemd.io/JOURNAL_NATIVE_PROTOCOL): `journalctl TASK_ID=...`
finds all that was said about a task. When the journal does not take one, the line goes to standard error with the priority in
front (sd-daemon(3)), which the journal reads too.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import logging
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

JOURNAL = "/run/systemd/journal/socket"
# Source: syslog(3).
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "exception": 3, "critical": 2}
# Fields whose names mean something to the journal, or say less than they should to whoever searches it.
_NAMES = {
    "task": "TASK_ID",
    "agent": "NODE",
    "message": "BEEYARD_MESSAGE",
    "priority": "BEEYARD_PRIORITY",
    "errno": "BEEYARD_ERRNO",
}
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_PROCESSORS = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)
_NEEDS_QUOTES = re.compile(r"\s|^$").search
_level = logging.INFO


def set_level(name: str) -> None:
    """Lines below this level are not written: "debug", "info", "warning" or "error". Counts at once."""
    global _level
    _level = logging.getLevelNamesMapping()[name.upper()]


class LevelledLogger(structlog.make_filtering_bound_logger(logging.DEBUG)):  # type: ignore[misc]
    """A logger whose level may change after it was first used; a line that is not written costs next to nothing."""

    def debug(self, event: str, *args: Any, **fields: Any) -> Any:
        return super().debug(event, *args, **fields) if _level <= logging.DEBUG else None

    def info(self, event: str, *args: Any, **fields: Any) -> Any:
        return super().info(event, *args, **fields) if _level <= logging.INFO else None

    def warning(self, event: str, *args: Any, **fields: Any) -> Any:
        return super().warning(event, *args, **fields) if _level <= logging.WARNING else None


def configure(level: str, identifier: str) -> None:
    """Set up logging for this process. `identifier`: its name in the journal."""
    set_level(level)
    processors: list[Any] | None = None  # structlog's own, with columns and colours
    if is_journal(sys.stderr.fileno()):
        processors = [*_PROCESSORS, JournalWriter(JOURNAL, identifier)]
    elif not sys.stderr.isatty():
        processors = [*_PROCESSORS, PlainWriter()]
    structlog.configure(
        processors=processors,
        wrapper_class=LevelledLogger,
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,  # else every line, also one that is not written, makes a logger first: 8 µs
    )


def is_journal(fd: int) -> bool:
    """Whether a descriptor leads to the journal: the service manager says which file it is."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    if not inode:
        return False
    status = os.fstat(fd)
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


class JournalWriter:
    """The last processor of a line: sends it, or gives back what standard error gets."""

    def __init__(self, path: str, identifier: str) -> None:
        self._path = path
        self._identifier = identifier
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        """Let go of the journal."""
        self._socket.close()

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        level = str(event.pop("level", method))
        priority = _PRIORITIES.get(level, 6)
        message = _sentence(event)
        fields = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": self._identifier}
        for name, value in event.items():
            fields.setdefault(field_name(name), str(value))
        if self._send(encoded(fields)):
            raise structlog.DropEvent
        return "\n".join(f"<{priority}>{line}" for line in message.splitlines())

    def _send(self, data: bytes) -> bool:
        """Whether the journal took it. It is asked without waiting: a full journal must not stop the daemon's loop."""
        try:
            self._socket.sendto(data, socket.MSG_DONTWAIT, self._path)
            return True
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):  # too large for a datagram
                return False
        fd = os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(fd, data)
            # Of who is not root, the journal takes a file in memory only if nobody can change it any more.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            with contextlib.suppress(OSError):
                self._socket.sendmsg([], rights, socket.MSG_DONTWAIT, self._path)
                return True
            return False
        finally:
            os.close(fd)


class PlainWriter:
    """The last processor of a line for a file or a pipe: a fifth of what structlog's columns cost."""

    def __init__(self) -> None:
        self._second = -1
        self._time = ""  # of that second, as it is shown

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._time = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._time} [{event.pop('level', method)}] {_sentence(event)}"


def field_name(name: str) -> str:
    """A field's name as the journal allows it: A-Z, 0-9 and _, no _ in front, 64 at most."""
    known = _NAMES.get(name)
    return known or re.sub(r"[^A-Z0-9_]", "_", name.upper()).lstrip("_0123456789")[:64] or "FIELD"


def encoded(fields: Mapping[str, str]) -> bytes:
    """Fields in the journal's protocol: a value with a line break has its length in front."""
    out = bytearray()
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            out += name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
        else:
            out += name.encode() + b"=" + data + b"\n"
    return bytes(out)


def _sentence(event: MutableMapping[str, Any]) -> str:
    """The text with its fields behind it, and a traceback below; the text and the traceback are taken out of the fields."""
    text = str(event.pop("event", ""))
    trace = event.pop("exception", "")
    message = " ".join([text, *(f"{name}={_shown(value)}" for name, value in event.items())])
    return f"{message}\n{trace}" if trace else message


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if _NEEDS_QUOTES(text) else text


__all__ = [
    "JournalWriter",
    "LevelledLogger",
    "PlainWriter",
    "configure",
    "encoded",
    "field_name",
    "is_journal",
    "set_level",
]
