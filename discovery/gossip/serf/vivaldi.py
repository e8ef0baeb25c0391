"""Network coordinates: a place for each member such that distance between two is their round trip time.

Source: Serf 0.9.4 coordinate/ (client.go, coordinate.go, config.go), after Dabek et al., "Vivaldi" (SIGCOMM 2004); Ledlie et
al., "Network coordinates in the wild" (NSDI 2007) for the filter and gravity; Lee et al. (ToN 2010) for the adjustment.
The order of every sum is theirs, so that the same observations give the same bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from beeyard.core.membership import DIMENSIONS, ERROR_MAX, raw_distance_s, rtt_s
from beeyard.discovery.gossip.message import Coordinate

CE = 0.25  # the most that one observation moves the error
CC = 0.25  # and the place
N_ADJUSTMENTS = 20
HEIGHT_MIN_S = 10.0e-6
N_LATENCIES = 3  # the median of so many counts
GRAVITY_RHO = 150.0
RTT_MAX_S = 10.0
ZERO = 1.0e-6  # below this two places are one

# A place so far away cannot come from round trips of at most 10 s: Serf takes it and is thrown across space by it.
DISTANCE_MAX_S = 1000.0

ORIGIN = Coordinate()


def distance_s(one: Coordinate, other: Coordinate) -> float:
    """Estimated round trip time. Whole nanoseconds, as Go's durations are."""
    distance = rtt_s(one, other)
    if not distance < 1e9:  # NaN too
        return math.inf
    seconds, nanoseconds = divmod(int(distance * 1.0e9), 1_000_000_000)
    return float(seconds) + float(nanoseconds) / 1e9


class Vivaldi:
    """The place of one member, moved by each round trip that it measures."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.here = ORIGIN
        self.n_resets = 0
        self._latencies_s: dict[str, list[float]] = {}
        self._adjustments_s = [0.0] * N_ADJUSTMENTS
        self._next_adjustment = 0

    def update(self, node: str, other: Coordinate, rtt_s: float) -> bool:
        """Move by a round trip to `node`, which says that it is at `other`; False: that cannot be, nothing was done."""
        if not (
            0.0 <= rtt_s <= RTT_MAX_S and _is_plausible(other) and raw_distance_s(self.here, other) < DISTANCE_MAX_S
        ):
            return False
        rtt_s = self._median_s(node, rtt_s)
        self._attract(other, rtt_s)
        self._adjust(other, rtt_s)
        self._fall_to_origin()
        if not _is_finite(self.here):
            self.here = ORIGIN
            self.n_resets += 1
        return True

    def forget(self, node: str) -> None:
        """Drop what was measured to a member that is gone for good."""
        self._latencies_s.pop(node, None)

    def _median_s(self, node: str, rtt_s: float) -> float:
        samples = self._latencies_s.setdefault(node, [])
        samples.append(rtt_s)
        if len(samples) > N_LATENCIES:
            samples.pop(0)
        return sorted(samples)[len(samples) // 2]

    def _attract(self, other: Coordinate, rtt_s: float) -> None:
        here = self.here
        distance = distance_s(here, other)
        rtt_s = max(rtt_s, ZERO)
        wrongness = abs(distance - rtt_s) / rtt_s
        weight = here.error / max(here.error + other.error, ZERO)
        error = min(CE * weight * wrongness + here.error * (1.0 - CE * weight), ERROR_MAX)
        force = CC * weight * (rtt_s - distance)
        self.here = self._pushed(_with(here, error=error), force, other)

    def _adjust(self, other: Coordinate, rtt_s: float) -> None:
        self._adjustments_s[self._next_adjustment] = rtt_s - raw_distance_s(self.here, other)
        self._next_adjustment = (self._next_adjustment + 1) % N_ADJUSTMENTS
        total = 0.0
        for sample in self._adjustments_s:  # in this order; sum() adds more exactly than Go from Python 3.12 on
            total += sample
        self.here = _with(self.here, adjustment=total / (2.0 * N_ADJUSTMENTS))

    def _fall_to_origin(self) -> None:
        """Keep the whole cluster from drifting away."""
        pull = distance_s(ORIGIN, self.here) / GRAVITY_RHO
        self.here = self._pushed(self.here, -1.0 * (pull * pull), ORIGIN)

    def _pushed(self, here: Coordinate, force: float, other: Coordinate) -> Coordinate:
        """Where `here` gets to when pushed away from `other`."""
        unit, magnitude = self._unit_vector(here.vec, other.vec)
        vec = tuple([a + b * force for a, b in zip(here.vec, unit, strict=True)])
        height = here.height
        if magnitude > ZERO:
            height = max(height + force * (height + other.height) / magnitude, HEIGHT_MIN_S)
        return Coordinate(vec=vec, error=here.error, adjustment=here.adjustment, height=height)

    def _unit_vector(self, one: Sequence[float], other: Sequence[float]) -> tuple[list[float], float]:
        """The direction from `other` to `one` and how far it is; any direction and 0 when they are in one place."""
        difference = _difference(one, other)
        if (magnitude := _magnitude(difference)) > ZERO:
            return [x * (1.0 / magnitude) for x in difference], magnitude
        anywhere = [self._rng.random() - 0.5 for _ in difference]
        if (magnitude := _magnitude(anywhere)) > ZERO:
            return [x * (1.0 / magnitude) for x in anywhere], 0.0
        return [1.0] + [0.0] * (len(difference) - 1), 0.0


def _with(here: Coordinate, *, error: float | None = None, adjustment: float | None = None) -> Coordinate:
    return Coordinate(
        vec=here.vec,
        error=here.error if error is None else error,
        adjustment=here.adjustment if adjustment is None else adjustment,
        height=here.height,
    )


def _difference(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(one, other, strict=True)]


def _magnitude(vec: Sequence[float]) -> float:
    total = 0.0
    for x in vec:
        total += x * x
    return math.sqrt(total)


def _is_finite(here: Coordinate) -> bool:
    return math.isfinite(here.error + here.adjustment + here.height) and all(map(math.isfinite, here.vec))


def _is_plausible(other: Coordinate) -> bool:
    return len(other.vec) == DIMENSIONS and _is_finite(other) and other.error >= 0.0 and other.height >= 0.0


__all__ = ["ORIGIN", "Vivaldi", "distance_s"]
