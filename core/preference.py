"""What the tasks of a service are spread over before single nodes count: racks, zones, anything that labels tell apart."""

from __future__ import annotations

import msgspec


class Preference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One level of the tree that tasks are spread over; the nodes with the same value of the label are one branch.

    A branch gets tasks in proportion to its weight. Nodes without the label are one branch too, named "".
    """

    descriptor: str  # "node.labels.NAME" or "engine.labels.NAME"
    weights: tuple[tuple[str, int], ...] = ()  # by value of the label, in its order; 1 for a value that is not named
    unlabelled_last: bool = False  # the branch "" takes only what finds no room in the others


__all__ = ["Preference"]
