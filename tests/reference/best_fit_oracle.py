"""The rules of the strategies `pack`, `shape` and `fgd` in plain Python, one node at a time, written from the rule.

`pack` and `shape` are defined in single precision with fused multiply-adds: exact fractions, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

# Shares are doubled, and a little more than the true ones: see core/shares.pyx.
SCALE, MARGIN = 2.0, 1.0 + 2.0**-21


def single(number: Fraction | float) -> float:
    """The nearest number of single precision, halves to even."""
    exact = Fraction(number)
    near = np.float32(float(exact))
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return float(min(around, key=lambda n: (abs(Fraction(float(n)) - exact), int(n.view(np.int32)) & 1)))


def fused(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    return single(Fraction(a) * Fraction(b) + Fraction(c))


class Row:
    def __init__(self, free: Sequence[int], total: Sequence[int]) -> None:
        self.free, self.total = list(free), list(total)

    def fits(self, amounts: Sequence[int]) -> bool:
        return all(amount == 0 or free >= amount for free, amount in zip(self.free, amounts, strict=True))

    def share(self, kind: int) -> float:
        inverse = SCALE / max(self.total[kind], 1)
        return single(MARGIN * max(self.free[kind], 0) * inverse)

    def inverse(self, kind: int) -> float:
        return single(SCALE / max(self.total[kind], 1))

    def key(self, amounts: Sequence[int], shape: bool) -> float:
        """Smaller is better."""
        scored = [kind for kind in range(len(amounts)) if kind < 2 or amounts[kind]]
        if shape and any(amounts):
            both = asks = rooms = 0.0
            for kind in scored:
                wanted, room = single(single(amounts[kind]) * self.inverse(kind)), self.share(kind)
                both, asks, rooms = fused(wanted, room, both), fused(wanted, wanted, asks), fused(room, room, rooms)
            return single(Fraction(single(asks * rooms)) / Fraction(single(both * both)))
        left = [fused(-single(amounts[kind]), self.inverse(kind), self.share(kind)) for kind in scored]
        squares = single(left[0] * left[0])
        for one in left[1:]:
            squares = fused(one, one, squares)
        for kind in range(2, len(amounts)):
            if not amounts[kind]:
                squares = fused(self.share(kind), self.share(kind), squares)
        return single(squares + single(max(left) - min(left)))


Task = tuple[tuple[int, ...], int, int]  # amounts by kind, devices, 1e-3 of each


def copies(free: Sequence[int], devices: Sequence[int], task: Task) -> int:
    """How many such tasks fit."""
    amounts, n_devices, milli = task
    bounds = [have // need for have, need in zip(free, amounts, strict=True) if need]
    if n_devices:
        bounds.append(sum(device // milli for device in devices) // n_devices)
    return max(0, min(bounds, default=1_000_000))


def lost(free: Sequence[int], total: Sequence[int], devices: Sequence[int], mix: Sequence[tuple[Task, int]]) -> int:
    """What the usual tasks cannot use: what stays idle when filled with one class, and what none of it can use now."""
    everything = 0
    for task, weight in mix:
        amounts, n_devices, milli = task
        fitting = copies(free, devices, task)
        if devices and n_devices:
            idle = sum(devices) - fitting * n_devices * milli
            useless = sum(device for device in devices if not fitting or device < milli)
            everything += weight * (idle + useless)
        if not devices and not n_devices:
            for have, all_, need in zip(free, total, amounts, strict=True):
                if have > 0 and all_ > 0:
                    everything += weight * int((have - fitting * need) * 1000.0 / all_)
                    everything += weight * (int(have * 1000.0 / all_) if not fitting else 0)
    return everything
