"""Identifiers as Swarm's are."""

from __future__ import annotations

import random

ID_DIGITS = 25
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id(rng: random.Random) -> str:
    """25 base36 digits, 129 bits: no two are equal, and none can be guessed when `rng` is the system's."""
    return "".join(rng.choices(_BASE36, k=ID_DIGITS))


__all__ = ["new_id"]
