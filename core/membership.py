"""What gossip says of a node, as its agent reports it: its member's name, its tags, and where it is in the network.

A *coordinate* is a point of Vivaldi's space: the distance of two is an estimate of the round-trip time between them, learned
from the answers to probes. It is no measurement: 10 to 30 % off is usual, and below a millisecond it says little.

Source: Serf 0.9.4 `coordinate/coordinate.go`; Dabek, Cox, Kaashoek, Morris: "Vivaldi" (SIGCOMM 2004); Ledlie, Gardner,
Seltzer: "Network Coordinates in the Wild" (NSDI 2007) for height and adjustment.
"""

from __future__ import annotations

import math

import msgspec

DIMENSIONS = 8
# A member that has measured nothing yet has this; see `Coordinate.error`.
ERROR_MAX = 1.5


class Coordinate(msgspec.Struct, frozen=True, kw_only=True):
    """A place in Vivaldi's space, in seconds."""

    vec: tuple[float, ...] = (0.0,) * DIMENSIONS
    error: float = ERROR_MAX  # how far off it believes itself to be, as a part of 1
    adjustment: float = 0.0
    height: float = 1e-5


class Membership(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an agent says of its member in the gossip cluster."""

    name: str
    tags: dict[str, str] = {}
    coordinate: Coordinate | None = None  # None: nothing is known yet


def raw_distance_s(one: Coordinate, other: Coordinate) -> float:
    """Distance in space and both heights, without adjustments. They have the same number of dimensions."""
    squares = 0.0
    for a, b in zip(one.vec, other.vec, strict=True):
        squares += (a - b) * (a - b)
    return math.sqrt(squares) + one.height + other.height


def rtt_s(one: Coordinate, other: Coordinate) -> float:
    """The estimated round-trip time between two places, in seconds."""
    raw = raw_distance_s(one, other)
    adjusted = raw + one.adjustment + other.adjustment
    return adjusted if adjusted > 0.0 else raw


def coordinate_fault(coordinate: Coordinate) -> str:
    """What is wrong with a coordinate of somebody else, as a sentence; "" when it can be reckoned with."""
    if len(coordinate.vec) != DIMENSIONS:
        return f"a coordinate has {len(coordinate.vec)} dimensions, not {DIMENSIONS}"
    if not all(map(math.isfinite, (*coordinate.vec, coordinate.error, coordinate.adjustment, coordinate.height))):
        return "a coordinate has a number that is not finite"
    return ""


__all__ = ["DIMENSIONS", "ERROR_MAX", "Coordinate", "Membership", "coordinate_fault", "raw_distance_s", "rtt_s"]
