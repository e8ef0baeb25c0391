"""What gossip tells the dispatcher: which members others have tried to reach in vain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Doubts(Protocol):
    """Gossip as the dispatcher sees it; asked once a second."""

    def doubted(self) -> Mapping[str, bool]:
        """Members that do not answer, by name: False while they are suspected, True once gossip holds them for failed.

        Those that left on purpose are not in it.
        """


__all__ = ["Doubts"]
