"""What the program of a task is started with: command, environment, user, directory.

All of it reaches the node in one piece and becomes one `execve`, so what that cannot take is refused here, where the user is
told at once, and not when the tasks fail.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.manager.api.fields import Fields

# Source: Linux MAX_ARG_STRLEN, 32 pages, with the zero byte at the end.
STRING_BYTES_MAX = 131_071
# Half of what Linux takes by default (a quarter of the stack's 8 MiB), counted as it does: each string with its zero byte
# and a pointer.
STRINGS_BYTES_MAX = 1 << 20
POINTER_BYTES = 8
PATH_BYTES_MAX = 4095  # Source: Linux PATH_MAX, with the zero byte at the end.
# 2**32 - 1 is what setresuid and setresgid take for "leave it as it is": a task with that id would stay root.
ID_MAX = (1 << 32) - 2
# What useradd gives, and what directory services have besides: capitals, dots, DOMAIN\name, name@domain.
_ACCOUNT = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\-]{0,254}\$?")

_SIGNALS = {s.name for s in signal.Signals}
_NAMES_OF_SIGNALS = {int(s): s.name for s in signal.Signals}


class Program(NamedTuple):
    """The part of a task spec that is read here; fields as there."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[str, ...]
    user: str
    dir: str
    hostname: str
    stop_signal: str


def read_program(container: Fields) -> Program:
    """The program of a container spec.

    Raises:
        InvalidSpec, Unsupported: by the name of the field or flag.
    """
    program = Program(
        command=container.texts("Command"),
        args=container.texts("Args"),
        env=_env(container),
        user=_user(container),
        dir=_dir(container),
        hostname=_hostname(container),
        stop_signal=_stop_signal(container),
    )
    n_bytes = 0
    for name, strings in (
        ("Command (--entrypoint)", program.command),
        ("Args (--args)", program.args),
        ("Env (--env)", program.env),
    ):
        n_bytes += _strings_bytes(container.name_of(name), strings)
    if n_bytes > STRINGS_BYTES_MAX:
        reason = f"command, arguments and environment have {n_bytes} bytes together, more than {STRINGS_BYTES_MAX}"
        raise InvalidSpec(container.name_of("Args"), reason)
    return program


def _strings_bytes(field: str, strings: Sequence[str]) -> int:
    """What the kernel counts for the strings, once each of them is short enough for it."""
    total = 0
    for text in strings:
        n_bytes = len(text.encode())
        if n_bytes > STRING_BYTES_MAX:
            raise InvalidSpec(field, f"{text[:40]!r}… has {n_bytes} bytes, more than {STRING_BYTES_MAX}")
        total += n_bytes + 1 + POINTER_BYTES
    return total


def _user(container: Fields) -> str:
    """ "user" or "user:group", each a name or an id; whether a name exists only the node can tell."""
    given = container.text("User")
    for account in given.split(":", 1):
        if account.isascii() and account.isdigit():
            # Length first: Python refuses to convert thousands of digits.
            if len(account) > 10 or int(account) > ID_MAX:
                raise InvalidSpec(_user_field(container), f"{account:.40} is not an id from 0 to {ID_MAX}")
        elif account and not _ACCOUNT.fullmatch(account):
            raise InvalidSpec(_user_field(container), f"{account!r:.80} is neither a name nor an id")
    return given


def _user_field(container: Fields) -> str:
    return f"{container.name_of('User')} (--user)"


def _env(container: Fields) -> tuple[str, ...]:
    entries = container.texts("Env")
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise InvalidSpec(container.name_of("Env"), f"{entry!r:.80} must be NAME=value")
        _refuse_template(value, "--env")
    return entries


def _hostname(container: Fields) -> str:
    hostname = container.text("Hostname")
    _refuse_template(hostname, "--hostname")
    if hostname and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", hostname):
        raise InvalidSpec(container.name_of("Hostname"), f"{hostname!r:.80} is not a host name")
    return hostname


def _refuse_template(value: str, flag: str) -> None:
    if re.search(r"\{\{\s*\.(Service|Node|Task)\b", value):
        raise Unsupported(f"a template such as {{{{.Task.Slot}}}} in {flag}")


def _dir(container: Fields) -> str:
    path = container.text("Dir")
    if path and not path.startswith("/"):
        raise InvalidSpec(container.name_of("Dir"), f"{path!r:.80} must be an absolute path")
    if len(path.encode()) > PATH_BYTES_MAX:
        raise InvalidSpec(container.name_of("Dir"), f"{path!r:.80} is longer than {PATH_BYTES_MAX} bytes")
    return path


def _stop_signal(container: Fields) -> str:
    """A signal's full name; Docker takes "SIGINT", "INT" and "2"."""
    given = container.text("StopSignal", "SIGTERM").upper()
    name = _NAMES_OF_SIGNALS.get(int(given), "") if given.isascii() and given.isdigit() else given
    if not name.startswith("SIG"):
        name = f"SIG{name}"
    if name not in _SIGNALS:
        raise InvalidSpec(container.name_of("StopSignal"), f"there is no signal {given!r:.40}")
    return name


__all__ = ["Program", "read_program"]
