"""Queries of others: which were seen, and which wait here for an answer.

Source: Serf 0.9.4 serf/serf.go (handleQuery), serf/event.go (Query.Respond).
"""

from __future__ import annotations

from typing import NamedTuple

from beeyard.core.errors import NotFound
from beeyard.discovery.gossip.message import Address, Query
from beeyard.discovery.gossip.serf.config import SerfConfig
from beeyard.discovery.gossip.serf.lamport import LamportClock
from beeyard.discovery.gossip.serf.name_conflict import CONFLICT

N_SEEN_MAX = 65536  # ids kept; Serf has no limit to those of one Lamport time


class Question(NamedTuple):
    """What has to be known to answer a query."""

    l_time: int
    id: int
    address: Address
    source_node: str
    relay_factor: int
    deadline_s: float
    is_vote: bool  # on a name: whom it is about may hear the answers though it is no member


class SeenQueries:
    """The newest `n_times` Lamport times and the ids of queries at each."""

    def __init__(self, n_times: int) -> None:
        self.clock = LamportClock()
        self.min_time = 0
        self._n_times = n_times
        self._seen: dict[int, set[int]] = {}
        self._n_seen = 0

    def take(self, query: Query) -> bool:
        """Remember a query; False: it is known, or too old."""
        l_time = query.l_time
        if not self.clock.believes(l_time):
            return False
        self.clock.witness(l_time)
        if l_time < self.min_time or l_time < self.clock.time() - self._n_times:
            return False
        ids = self._seen.setdefault(l_time, set())
        if query.id in ids:
            return False
        ids.add(query.id)
        self._n_seen += 1
        if len(self._seen) > self._n_times:
            oldest = self.clock.time() - self._n_times
            for old in [t for t in self._seen if t < oldest]:
                self._n_seen -= len(self._seen.pop(old))
        while self._n_seen > N_SEEN_MAX:
            old = min(self._seen)
            self._n_seen -= len(self._seen.pop(old))
            self.min_time = max(self.min_time, old + 1)  # what is forgotten would be taken for new
        return True


class OpenQuestions:
    """What the application has been asked and not answered yet, by an id of this process."""

    def __init__(self, config: SerfConfig) -> None:
        self._config = config
        self._open: dict[int, Question] = {}
        self._next_id = 1

    def ask(self, now_s: float, query: Query) -> tuple[int, Question]:
        """Keep what is needed to answer; its id."""
        timeout_s = min(max(query.timeout_ns, 0) / 1e9, self._config.query_timeout_s_max)
        question = Question(
            query.l_time,
            query.id,
            query.address,
            query.source_node,
            query.relay_factor,
            deadline_s=now_s + timeout_s,
            is_vote=query.name == CONFLICT,
        )
        query_id = self._next_id
        self._next_id += 1
        self._open[query_id] = question
        if len(self._open) > self._config.n_open_queries_max:
            self._let_go(now_s)
        return query_id, question

    def peek(self, now_s: float, query_id: int) -> Question:
        """An open one.

        Raises:
            NotFound: it was answered, its time is up, or there never was one.
        """
        question = self._open.get(query_id)
        if question is None or question.deadline_s < now_s:
            self._open.pop(query_id, None)
            raise NotFound("open query", str(query_id))
        return question

    def close(self, query_id: int) -> None:
        """It has been answered."""
        self._open.pop(query_id, None)

    def _let_go(self, now_s: float) -> None:
        for query_id in [query_id for query_id, question in self._open.items() if question.deadline_s < now_s]:
            del self._open[query_id]
        while len(self._open) > self._config.n_open_queries_max:
            del self._open[next(iter(self._open))]


__all__ = ["OpenQuestions", "Question", "SeenQueries"]
