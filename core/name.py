"""What networks and nodes may be called, so that a name is one word in a command, a file name and a line of a log."""

from __future__ import annotations

import re

NAME_CHARS_MAX = 255
NAME_RULE = (
    f'a name has at most {NAME_CHARS_MAX} ASCII letters, digits, "_", "." and "-" and begins with one of the first two'
)
# Source: Docker's `names.RestrictedNamePattern`, with the length of a file name.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")


def is_name(text: str) -> bool:
    """Whether something may be called so."""
    return len(text) <= NAME_CHARS_MAX and _NAME.fullmatch(text) is not None


__all__ = ["NAME_CHARS_MAX", "NAME_RULE", "is_name"]
