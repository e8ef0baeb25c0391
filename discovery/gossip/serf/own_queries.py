"""Queries that this member has sent: who has acknowledged and answered, until their time is up.

What an answer means depends on who asked: the application gets each as it comes; votes on a name and changes of keys are
counted and told once, at the end. Source: Serf 0.9.4 serf/query.go, keymanager.go (streamKeyResp), serf.go
(resolveNodeConflict).
"""

from __future__ import annotations

from typing import Protocol

from beeyard.discovery.gossip.message import QUERY_WANTS_ACK, QueryResponse
from beeyard.discovery.gossip.serf.event import Event, QueryAck, QueryAnswer, QueryDone


class Tally(Protocol):
    """What becomes of answers."""

    def acknowledged(self, from_node: str) -> list[Event]:
        """A member has the query."""

    def answered(self, from_node: str, payload: bytes) -> list[Event]:
        """A member has answered."""

    def is_complete(self) -> bool:
        """Whether there is nothing more to wait for."""

    def done(self, n_acks: int, n_answers: int) -> list[Event]:
        """It is complete, or its time is up."""


class ForApplication:
    """Tells everything at once."""

    def __init__(self, query_id: int) -> None:
        self._query_id = query_id

    def acknowledged(self, from_node: str) -> list[Event]:
        """See `Tally.acknowledged`."""
        return [QueryAck(query_id=self._query_id, from_node=from_node)]

    def answered(self, from_node: str, payload: bytes) -> list[Event]:
        """See `Tally.answered`."""
        return [QueryAnswer(query_id=self._query_id, from_node=from_node, payload=payload)]

    def is_complete(self) -> bool:
        """See `Tally.is_complete`."""
        return False  # who joins within the time may answer too

    def done(self, n_acks: int, n_answers: int) -> list[Event]:
        """See `Tally.done`."""
        return [QueryDone(query_id=self._query_id, n_acks=n_acks, n_answers=n_answers)]


class _OwnQuery:
    __slots__ = ("acks", "answers", "deadline_s", "key", "tally")

    def __init__(self, key: tuple[int, int], deadline_s: float, tally: Tally) -> None:
        self.key = key
        self.deadline_s = deadline_s
        self.tally = tally
        self.acks: set[str] = set()
        self.answers: set[str] = set()


class OwnQueries:
    """All that are open."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._by_id: dict[int, _OwnQuery] = {}
        self._by_key: dict[tuple[int, int], int] = {}  # Lamport time and id on the wire, to the id of this process
        self._next_id = 1

    def new_id(self) -> int:
        """An id for a query to be opened."""
        self._next_id += 1
        return self._next_id - 1

    def open(self, query_id: int, l_time: int, wire_id: int, deadline_s: float, tally: Tally) -> None:
        """Wait for answers until the deadline."""
        self._by_id[query_id] = _OwnQuery((l_time, wire_id), deadline_s, tally)
        self._by_key[l_time, wire_id] = query_id

    def close(self, query_id: int) -> None:
        """Wait no longer."""
        query = self._by_id.pop(query_id, None)
        if query is not None:
            self._by_key.pop(query.key, None)

    def take(self, now_s: float, response: QueryResponse, n_members: int) -> bool:
        """An answer or an ack; False: nobody waits for it, or its sender has sent one before.

        `n_members`: how many there are. Twice as many names are believed, so that invented ones end somewhere.
        """
        query_id = self._by_key.get((response.l_time, response.id))
        if query_id is None or (query := self._by_id[query_id]).deadline_s < now_s:
            return False
        is_ack = bool(response.flags & QUERY_WANTS_ACK)
        names = query.acks if is_ack else query.answers
        if response.from_node in names or len(names) >= 2 * n_members + 16:
            return False
        names.add(response.from_node)
        if is_ack:
            self._events.extend(query.tally.acknowledged(response.from_node))
        else:
            self._events.extend(query.tally.answered(response.from_node, response.payload))
            if query.tally.is_complete():
                self._finish(query_id)
        return True

    def next_at(self) -> float:
        """The first deadline."""
        return min((query.deadline_s for query in self._by_id.values()), default=float("inf"))

    def advance(self, now_s: float) -> None:
        """Finish those whose time is up."""
        for query_id in [query_id for query_id, query in self._by_id.items() if query.deadline_s <= now_s]:
            self._finish(query_id)

    def _finish(self, query_id: int) -> None:
        query = self._by_id[query_id]
        self.close(query_id)
        self._events.extend(query.tally.done(len(query.acks), len(query.answers)))


__all__ = ["ForApplication", "OwnQueries", "Tally"]
