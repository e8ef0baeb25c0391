"""Queries: asking all members and answering them.

An answer goes straight to who asked, and on request once more through others, against loss. Answers and relays go to members
alone: a question with a forged address would otherwise make the whole cluster shoot at somebody.
Source: Serf 0.9.4 serf/serf.go (Query, handleQuery, handleQueryResponse), serf/query.go (relayResponse),
serf/internal_query.go.
"""

from __future__ import annotations

import math

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.message import (
    QUERY_NO_BROADCAST,
    QUERY_WANTS_ACK,
    Address,
    ConflictResponse,
    MemberRecord,
    Query,
    QueryResponse,
    Relay,
)
from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.event import STATUSES, KeyringChanged, Member, QueryAsked
from beeyard.discovery.gossip.serf.filters import is_meant
from beeyard.discovery.gossip.serf.keys import KEY_QUERIES, carry_out, encode_response, response_overhead
from beeyard.discovery.gossip.serf.name_conflict import CONFLICT, Vote
from beeyard.discovery.gossip.serf.own_queries import OwnQueries, Tally
from beeyard.discovery.gossip.serf.questions import OpenQuestions, Question, SeenQueries
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.serf_codec import encode_serf

INTERNAL = "_serf_"
# Copies of an answer that are made on request. Serf makes up to 255, of every member's answer: a way to flood somebody.
RELAYS_MAX = 8
VOTE_INTERVAL_S = 10.0  # from the end of a vote to the next; each is a query to everyone
ID_BITS = 31  # Source: Serf takes rand.Int31


class Queries:
    """Own ones and those of others."""

    def __init__(self, context: Context, keyring: Keyring | None, gossip_interval_s: float) -> None:
        self._context = context
        self._gossip_interval_s = gossip_interval_s
        self._keyring = keyring
        self.seen = SeenQueries(context.config.n_query_times)
        self.own = OwnQueries(context.events)
        self._questions = OpenQuestions(context.config)
        self._is_voting = False
        self._no_vote_before_s = -math.inf

    # --- own ---------------------------------------------------------------------------------------------------------------

    def ask(
        self,
        name: str,
        payload: bytes,
        tally: Tally,
        query_id: int,
        *,
        timeout_s: float,
        filters: tuple[bytes, ...] = (),
        ack: bool = False,
        relay_factor: int = 0,
    ) -> None:
        """Send a query.

        Raises:
            InvalidSpec: it is too large, or another value of it is out of range.
        """
        context = self._context
        if not 0 <= relay_factor <= 255:
            raise InvalidSpec("relay_factor", f"is 0 to 255, not {relay_factor}")
        if not 0 < timeout_s <= context.config.query_timeout_s_max:
            raise InvalidSpec("timeout", f"is more than 0 and at most {context.config.query_timeout_s_max:g} s")
        query = Query(
            l_time=self.seen.clock.time(),
            id=context.rng.getrandbits(ID_BITS),
            address=context.address,
            source_node=context.name,
            name=name,
            payload=payload,
            filters=filters,
            flags=QUERY_WANTS_ACK if ack else 0,
            relay_factor=relay_factor,
            timeout_ns=round(timeout_s * 1e9),
        )
        data = encode_serf(query)
        if len(data) > context.config.query_bytes_max:
            limit = context.config.query_bytes_max
            raise InvalidSpec("query", f"takes at most {limit} bytes with name, payload and filters, not {len(data)}")
        self.own.open(query_id, query.l_time, query.id, context.now_s + timeout_s, tally)
        context.broadcasts.put(context.broadcasts.queries, data)
        self._take(query)

    def take_response(self, response: QueryResponse) -> None:
        """An answer or an ack came."""
        if not self.own.take(self._context.now_s, response, len(self._context.roster.by_name)):
            self._context.dropped["response"] += 1

    # --- others' -----------------------------------------------------------------------------------------------------------

    def take(self, query: Query, data: bytes) -> None:
        """A query came in a packet."""
        context = self._context
        if (
            self._take(query)
            and not query.flags & QUERY_NO_BROADCAST
            and not context.broadcasts.put(context.broadcasts.queries, data)
        ):
            context.dropped["oversized"] += 1

    def _take(self, query: Query) -> bool:
        context = self._context
        if not self.seen.take(query):
            return False
        me = context.roster.by_name.get(context.name)
        if not is_meant(query.filters, context.name, {} if me is None else me.tags):
            return True
        query_id, question = self._questions.ask(context.now_s, query)
        if query.flags & QUERY_WANTS_ACK:
            self._send(question, QUERY_WANTS_ACK, b"")
        if query.name.startswith(INTERNAL):
            self._questions.close(query_id)
            self._answer_internal(question, query)
        else:
            context.events.append(
                QueryAsked(
                    query_id=query_id,
                    l_time=query.l_time,
                    name=query.name,
                    payload=query.payload,
                    source_node=query.source_node,
                    deadline_s=question.deadline_s,
                )
            )
        return True

    def answer(self, query_id: int, payload: bytes) -> None:
        """See `Serf.answer`."""
        question = self._questions.peek(self._context.now_s, query_id)
        self._check_size(question, payload)
        self._questions.close(query_id)
        self._send(question, 0, payload)

    def _answer_internal(self, question: Question, query: Query) -> None:
        context = self._context
        if query.name in KEY_QUERIES:
            response, has_changed = carry_out(self._keyring, query.name, query.payload)
            limit = context.config.query_response_bytes_max - response_overhead(context.name)
            self._send(question, 0, encode_response(response, limit))
            if has_changed:
                context.events.append(KeyringChanged())
        elif query.name == CONFLICT:
            name = query.payload.decode("utf-8", "replace")
            if name != context.name:  # the ones it is about do not vote
                self._send(question, 0, encode_serf(ConflictResponse(member=_record(context.roster.by_name.get(name)))))
        # Others need no answer: `_serf_ping` is for its ack.

    def _send(self, question: Question, flags: int, payload: bytes) -> None:
        context = self._context
        response = QueryResponse(
            l_time=question.l_time, id=question.id, from_node=context.name, flags=flags, payload=payload
        )
        if question.address == context.address:
            self.take_response(response)
            return
        if not (
            context.is_known(question.address, question.source_node)
            or (question.is_vote and context.is_rival(question.address))
        ):
            context.dropped["stranger"] += 1
            return
        data = encode_serf(response)
        context.memberlist.send_user(question.address, data)
        self._send_relays(question, data)

    def _send_relays(self, question: Question, data: bytes) -> None:
        """Copies through others, when there are more of them than copies."""
        context = self._context
        n_relays = question.relay_factor
        if n_relays == 0 or len(context.roster.by_name) < n_relays + 1:
            return
        relay = encode_serf(
            Relay(destination=question.address, destination_node=question.source_node, inner=data),
        )
        if len(relay) > context.config.query_response_bytes_max:
            return
        for node in context.memberlist.random_alive(min(n_relays, RELAYS_MAX), exclude=question.source_node):
            if node.vsn[1:2] >= b"\x05":  # protocol max: it knows relays
                context.memberlist.send_user(node.address, relay)

    def pass_on(self, relay: Relay) -> None:
        """Send an answer on to who asked; nothing else, and to nobody but a member."""
        context = self._context
        if relay.inner[:1] != b"\x05":
            context.dropped["relay"] += 1
        elif not context.is_known(relay.destination, relay.destination_node):
            context.dropped["stranger"] += 1
        else:
            context.memberlist.send_user(relay.destination, relay.inner)

    def _check_size(self, question: Question, payload: bytes) -> None:
        limit = self._context.config.query_response_bytes_max
        n_bytes = len(payload) + response_overhead(self._context.name)
        if n_bytes > limit:
            raise InvalidSpec("answer", f"takes at most {limit} bytes, not {n_bytes} with its frame")

    # --- votes -------------------------------------------------------------------------------------------------------------

    def default_timeout_s(self) -> float:
        """See `Serf.default_query_timeout_s`. Source: Serf's DefaultQueryTimeout."""
        context = self._context
        return (
            self._gossip_interval_s
            * context.config.query_timeout_mult
            * math.ceil(math.log10(max(1, context.memberlist.n_alive) + 1))  # nobody is up once the last one has left
        )

    def vote(self, other: Address) -> None:
        """Ask all who goes by the name of this member; one vote at a time."""
        context = self._context
        if self._is_voting or context.now_s < self._no_vote_before_s:
            return
        self._is_voting = True
        n_voters = sum(member.status == "alive" for member in context.roster.by_name.values()) - 1
        tally = Vote(context.name, context.address, other, n_voters, self._end_vote)
        query_id = self.own.new_id()
        try:
            self.ask(CONFLICT, context.name.encode(), tally, query_id, timeout_s=self.default_timeout_s())
        except InvalidSpec:  # a name so long that it does not fit: nobody can be asked
            self._is_voting = False

    def _end_vote(self) -> None:
        self._is_voting = False
        self._no_vote_before_s = self._context.now_s + VOTE_INTERVAL_S


def _record(member: Member | None) -> MemberRecord | None:
    if member is None:
        return None
    return MemberRecord(
        name=member.name,
        address=member.address,
        tags=member.tags,
        status=STATUSES.index(member.status),
        protocol=member.protocol,
        delegate=member.delegate,
    )


__all__ = ["INTERNAL", "Queries"]
