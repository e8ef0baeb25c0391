"""The form in which a shim gets what it has to do: a flat list of steps, each a name and fields, as text.

The shim (`native/`) is a small C program that does one step after the other and thinks about none of them. Everything that
can be known before is decided in Python, where it can be read and tested; `native/order.h` has the wire form,
`native/order.c` what each step takes. Standard library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from beeyard.agent.executors.process.launch import LaunchError

Step = tuple[str, ...]

# The last character is the version of what the steps mean, as in native/order.h.
MAGIC = b"bee-ord1"
_HEADER = struct.Struct("=8sII")
# 16 MiB: what one program can be given as arguments and environment is less. As in native/order.h.
BYTES_MAX = 16 << 20

# Of "write": a file that is not there is fine.
IF_THERE = 1
# Of "mount": when it is made.
IF_DIRECTORY, IF_PRESENT, IF_POSSIBLE = 1, 2, 4


def step(name: str, *fields: str | int) -> Step:
    """One step; numbers are written in decimal."""
    return (name, *map(str, fields))


def write(path: str, text: str, *, if_there: bool = False, naming_value: bool = True) -> Step:
    """Write a file of the kernel's, which must be there.

    `naming_value`: whether a failure tells what should have been written.
    """
    said = f"cannot write {text!r} to {path}" if naming_value else path
    return step("write", path, text, IF_THERE if if_there else 0, said)


def encode(steps: Iterable[Step]) -> bytes:
    """The text of an order.

    Raises:
        LaunchError: a field has what no program can be given.
    """
    parts = []
    for fields in steps:
        text = "\0".join(fields)
        if text.count("\0") != len(fields) - 1:
            culprit = next(field for field in fields if "\0" in field)
            raise LaunchError(f"a zero byte is in {culprit[:60]!r}: no program can be given it")
        parts.append(f"{len(fields) - 1}\0{text}\0")
    try:
        return "".join(parts).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LaunchError(f"a character that is none is in {error.object[error.start : error.end]!r}") from None


def pack(text: bytes, blob: bytes = b"") -> bytes:
    """An order as it goes over the wire.

    Raises:
        LaunchError: there is too much of it.
    """
    for size in (len(text), len(blob)):
        if size > BYTES_MAX:
            raise LaunchError(f"the task's description has {size} bytes, at most {BYTES_MAX} are possible")
    return b"".join((_HEADER.pack(MAGIC, len(text), len(blob)), text, blob))


__all__ = [
    "BYTES_MAX",
    "IF_DIRECTORY",
    "IF_POSSIBLE",
    "IF_PRESENT",
    "IF_THERE",
    "MAGIC",
    "Step",
    "encode",
    "pack",
    "step",
    "write",
]
