"""What the tasks of a service are spread over before single nodes count: racks, zones, anything that labels tell apart.

Docker has `--placement-pref spread=node.labels.zone`, several of which are levels of a tree, in their order. Beeyard takes
more behind a colon: `node.labels.zone:a=2,b=1` gives branches weights, and `unlabelled=last` uses nodes without the label
only when the others have no room.
"""

from __future__ import annotations

import re

import msgspec

from beeyard.core.errors import InvalidSpec

WEIGHT_MAX = 1000
# More levels than that say nothing: each divides a branch of the one before.
LEVELS_MAX = 8

_DESCRIPTOR = re.compile(r"(node\.labels|engine\.labels|node\.tags)\.([a-z0-9\-_.]+)", re.IGNORECASE | re.ASCII)
_UNLABELLED_LAST = "unlabelled=last"


class Preference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One level of the tree that tasks are spread over; the nodes with the same value of the label are one branch.

    A branch gets tasks in proportion to its weight. Nodes without the label are one branch too, named "".
    """

    descriptor: str  # "node.labels.NAME", "engine.labels.NAME" or "node.tags.KEY"
    weights: tuple[tuple[str, int], ...] = ()  # by value of the label; 1 for a value that is not named
    unlabelled_last: bool = False  # the branch "" takes only what finds no room in the others

    def __str__(self) -> str:
        """As `parse_preference` reads it."""
        more = [f"{value}={weight}" for value, weight in self.weights]
        more += [_UNLABELLED_LAST] if self.unlabelled_last else []
        return f"{self.descriptor}:{','.join(more)}" if more else self.descriptor


def parse_preference(text: str) -> Preference:
    """Read one level.

    Raises:
        InvalidSpec: it is not about a label, or what follows the colon is neither a weight nor `unlabelled=last`.
    """
    label, colon, more = text.strip().partition(":")
    found = _DESCRIPTOR.fullmatch(label.strip())
    if not found:
        reason = f"{text!r:.200}: tasks are spread over node.labels.NAME, engine.labels.NAME or node.tags.KEY"
        raise InvalidSpec("placement preference", reason)
    weights: dict[str, int] = {}
    unlabelled_last = False
    for entry in (part.strip() for part in more.split(",")) if colon else ():
        if entry.lower() == _UNLABELLED_LAST:
            unlabelled_last = True
            continue
        value, equals, weight = (part.strip() for part in entry.rpartition("="))
        if not equals or not re.fullmatch(r"[0-9]{1,4}", weight) or not 0 < int(weight) <= WEIGHT_MAX:
            reason = f"{entry!r:.200} is neither VALUE=WEIGHT, 1 to {WEIGHT_MAX}, nor {_UNLABELLED_LAST}"
            raise InvalidSpec("placement preference", reason)
        if value in weights:
            raise InvalidSpec("placement preference", f"{text!r:.200} gives {value!r:.80} two weights")
        weights[value] = int(weight)
    descriptor = f"{found[1].lower()}.{found[2]}"
    return Preference(descriptor=descriptor, weights=tuple(weights.items()), unlabelled_last=unlabelled_last)


__all__ = ["LEVELS_MAX", "WEIGHT_MAX", "Preference", "parse_preference"]
