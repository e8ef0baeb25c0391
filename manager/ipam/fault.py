"""What can go wrong with a plugin, each with a sentence of its own."""

from __future__ import annotations

import enum

from beeyard.core.errors import PeerError

# What a plugin says is shown to users, so it is cut to this and made printable.
QUOTE_CHARS_MAX = 200


class FaultKind(enum.StrEnum):
    """Who is to blame, which decides what happens next."""

    MISSING = "missing"  # no such plugin: an operator has to act
    UNREACHABLE = "unreachable"  # nobody answers there
    HUNG = "hung"  # somebody does, but not in time
    REFUSED = "refused"  # it answered with an error
    JUNK = "junk"  # what it answered makes no sense


class PluginFault(PeerError):
    """A plugin did not do what it was asked for.

    `in_doubt`: it may have done it all the same; only what is known not to have been sent, or was refused, is not in doubt.
    """

    def __init__(self, plugin: str, kind: FaultKind, reason: str, *, in_doubt: bool = False) -> None:
        super().__init__(reason)
        self.plugin = plugin
        self.kind = kind
        self.in_doubt = in_doubt

    def __str__(self) -> str:
        return f"IPAM plugin {self.plugin}: {self.reason}"

    @property
    def is_outage(self) -> bool:
        """Whether asking for something else would end in the same way."""
        return self.kind in (FaultKind.MISSING, FaultKind.UNREACHABLE, FaultKind.HUNG)


def quote(text: str) -> str:
    """What a plugin said, in one line that harms no terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= QUOTE_CHARS_MAX else f"{line[:QUOTE_CHARS_MAX]}…"


__all__ = ["QUOTE_CHARS_MAX", "FaultKind", "PluginFault", "quote"]
