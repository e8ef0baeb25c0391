"""Identifiers as Swarm's are."""

from __future__ import annotations

import random

ID_DIGITS = 25
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
# Two digits at a time halve the divisions of a 129-bit number; an id is drawn for every task and grant.
_PAIRS = tuple(high + low for high in _BASE36 for low in _BASE36)


def new_id(rng: random.Random) -> str:
    """25 base36 digits, 129 bits: no two are equal, and none can be guessed when `rng` is the system's.

    One draw: the system's randomness costs a system call each.
    """
    rest = rng.randrange(36**ID_DIGITS)
    pairs = []
    for _ in range(ID_DIGITS // 2):
        rest, pair = divmod(rest, 36 * 36)
        pairs.append(_PAIRS[pair])
    return _BASE36[rest] + "".join(pairs)


__all__ = ["new_id"]
