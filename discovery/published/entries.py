"""Entries of a published list: HOST:PORT, in the forms in which classic Swarm has them written.

Source: docker/pkg/discovery `Generate`, `NewEntry` and file/file.go `parseFileContent` of classic Swarm 1.2.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from beeyard.core.errors import InvalidSpec

# What one range, and one list, may come to: a typing mistake must not cost the memory of the machine.
ENTRIES_MAX = 100_000
_RANGE = re.compile(r"\[([0-9]+):([0-9]+)\]")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]")


def checked_entry(text: str) -> str:
    """An entry as it is listed.

    Raises:
        InvalidSpec: it is not HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise InvalidSpec(
            "discovery entry",
            f"{text!r}: it is written HOST:PORT with a port from 1 to 65535, an IPv6 host in brackets",
        )
    return f"{host}:{int(port)}"


def entries_of(pattern: str) -> list[str]:
    """What one item stands for: itself, or each number of its one range, as in 10.0.0.[11:100]:2375, both ends included.

    Raises:
        InvalidSpec: one of them is not HOST:PORT, or there are too many.
    """
    pattern = pattern.strip()
    found = _RANGE.search(pattern)
    if found is None:
        return [checked_entry(pattern)]
    first, last = int(found[1][:10]), int(found[2][:10])
    if last < first:
        raise InvalidSpec("discovery entry", f"{pattern!r}: the range ends below its beginning")
    if last - first >= ENTRIES_MAX:
        raise InvalidSpec("discovery entry", f"{pattern!r}: the range has more than {ENTRIES_MAX} numbers")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [checked_entry(f"{before}{number}{after}") for number in range(first, last + 1)]


def parse_list(text: str) -> list[str]:
    """The entries of a text with one item a line; # begins a comment, at the start of a line or behind an item.

    Raises:
        InvalidSpec: names the line.
    """
    entries: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        item = line.partition("#")[0].strip()
        if not item:
            continue
        try:
            entries += entries_of(item)
        except InvalidSpec as error:
            raise InvalidSpec(f"line {number}", error.reason) from None
        if len(entries) > ENTRIES_MAX:
            raise InvalidSpec(f"line {number}", f"the list has more than {ENTRIES_MAX} entries")
    return entries


def legible(value: bytes) -> tuple[str, ...]:
    """What can be read of a value that another program has written; one broken line is no reason to lose the others."""
    entries: dict[str, None] = {}
    for line in value.decode("utf-8", "replace").splitlines()[:ENTRIES_MAX]:
        try:
            entries |= dict.fromkeys(parse_list(line))
        except InvalidSpec:
            continue
    return tuple(entries)


def written(entries: Iterable[str]) -> bytes:
    """A list as a value under a key: one entry a line, sorted, each once."""
    return "".join(f"{entry}\n" for entry in sorted(set(entries))).encode()


__all__ = ["ENTRIES_MAX", "checked_entry", "entries_of", "legible", "parse_list", "written"]
