"""Identifiers as Swarm's are."""

from __future__ import annotations

import random

ID_DIGITS = 25
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
# Two digits at a time halve the divisions of a 129-bit number; an id is drawn for every task and grant.
_PAIRS = tuple(high + low for high in _BASE36 for low in _BASE36)
# A random byte is one digit; the last four values are thrown away, so that every digit is as likely as any other.
_DIGITS = bytes(ord(_BASE36[byte % 36]) for byte in range(256))
_SURPLUS = bytes(range(252, 256))
_POOL_BYTES = 8192


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


class IdPool:
    """Ids drawn many at a time: one system call and one pass over its bytes make some 300 of them.

    A process that forks has to `clear` it in the child, or both would draw the same.
    """

    def __init__(self, rng: random.Random) -> None:
        """`rng`: the system's."""
        self._rng = rng
        self._ids: list[str] = []

    def draw(self) -> str:
        """As `new_id`."""
        if not self._ids:
            digits = self._rng.randbytes(_POOL_BYTES).translate(_DIGITS, _SURPLUS).decode("ascii")
            self._ids = [digits[i : i + ID_DIGITS] for i in range(0, len(digits) - ID_DIGITS + 1, ID_DIGITS)]
        return self._ids.pop()

    def clear(self) -> None:
        """Forget what was drawn ahead."""
        self._ids = []


__all__ = ["IdPool", "new_id"]
