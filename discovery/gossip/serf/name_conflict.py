"""Two members go by one name: the others vote on whose it is, and the one that most do not mean gives up.

Source: Serf 0.9.4 serf/serf.go (resolveNodeConflict), serf/internal_query.go (handleConflict). Two things are ours: one vote
at a time, since every packet of the other one would start another; and if nobody else is there to vote, the smaller address
wins, where both of Serf's would shut down.
"""

from __future__ import annotations

from collections.abc import Callable

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.message import Address, ConflictResponse
from beeyard.discovery.gossip.serf.event import ConflictLost, ConflictWon, Event
from beeyard.discovery.gossip.wire.serf_codec import decode_serf

CONFLICT = "_serf_conflict"


class Vote:
    """Counts what members believe about a name that is this member's, and another's at the address `other`."""

    def __init__(self, name: str, own: Address, other: Address, n_voters: int, finished: Callable[[], None]) -> None:
        self._name = name
        self._own = own
        self._other = other
        self._n_voters = n_voters  # others that are alive
        self._finished = finished
        self._n_answers = 0
        self._n_matching = 0

    def acknowledged(self, from_node: str) -> list[Event]:
        """See `Tally.acknowledged`."""
        return []

    def answered(self, from_node: str, payload: bytes) -> list[Event]:
        """See `Tally.answered`."""
        try:
            response = decode_serf(payload)
        except RemoteProtocolError:
            return []
        if isinstance(response, ConflictResponse):
            self._n_answers += 1
            self._n_matching += response.member is not None and response.member.address == self._own
        return []

    def is_complete(self) -> bool:
        """See `Tally.is_complete`."""
        return False

    def done(self, n_acks: int, n_answers: int) -> list[Event]:
        """See `Tally.done`."""
        self._finished()
        if self._n_answers == 0 and self._n_voters > 0:
            return []  # lost packets decide nothing; the next packet of the other one starts another vote
        if self._n_answers == 0:
            won = _order(self._own) < _order(self._other)
        else:
            won = self._n_matching >= self._n_answers // 2 + 1
        kind = ConflictWon if won else ConflictLost
        return [
            kind(name=self._name, other=self._other, n_answers=self._n_answers, n_matching=self._n_matching),
        ]


def _order(address: Address) -> tuple[int, str, int]:
    return len(address.host), address.host, address.port


__all__ = ["CONFLICT", "Vote"]
