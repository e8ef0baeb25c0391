"""Asking members whether they are there, and answering and helping others that ask.

Theory of operation
-------------------
One probe runs at a time. A ping; after the timeout some helpers are asked to ping too, and the member itself over TCP; at
the end of the interval nobody's answer is an accusation. With own troubles (`Context.health`) the interval is longer, so a
member that is slow itself accuses late.

Helpers that had no answer either say so (nack). A helper that says nothing means that it is the prober who hears nothing:
its health gets worse by each. Memberlist's nacks take the ping's timeout twice and come just after the verdict, so that each
probe of a dead member makes its prober feel sick; here helpers answer sooner and the prober waits for nacks a little longer.

Source: SWIM, section 3.1; Lifeguard, section IV; memberlist 0.2.2 state.go `probeNode`, net.go `handleIndirectPing`.
"""

from __future__ import annotations

import math

from beeyard.discovery.gossip.command import Exchange, PingByStream
from beeyard.discovery.gossip.message import Ack, Address, IndirectPing, Message, Nack, Ping, Suspect
from beeyard.discovery.gossip.swim.beliefs import Beliefs
from beeyard.discovery.gossip.swim.context import Context
from beeyard.discovery.gossip.swim.mail import Mail
from beeyard.discovery.gossip.swim.roster import (
    ALIVE,
    SUSPECT,
    UNDERSTANDS_CRC,
    UNDERSTANDS_NACK,
    UNDERSTANDS_STREAM_PING,
    Member,
)
from beeyard.discovery.gossip.swim.timers import Timer

# A helper's nack leaves after this part of the timeout, to be there before a peer's verdict at twice the timeout.
NACK_PART = 0.8
# A prober's patience for nacks after the verdict, in timeouts: memberlist's nacks are late by a round trip.
NACK_PATIENCE = 0.5
# Pings done for others at a time. 1,000 members with 2 % loss in both directions and 3 helpers each ask for 120 a second.
ERRANDS_MAX = 256
NUMBERS = 1 << 32  # sequence numbers wrap


class Probe:
    """One question to one member."""

    __slots__ = (
        "asked_others",
        "by_stream",
        "end_s",
        "incarnation",
        "is_over",
        "member",
        "n_expected",
        "n_nacks",
        "refused",
        "sent_s",
        "seq_no",
        "timer",
    )

    def __init__(self, seq_no: int, member: Member, now_s: float, end_s: float) -> None:
        self.seq_no = seq_no
        self.member = member
        self.incarnation = member.incarnation  # what is accused is what was asked
        self.sent_s = now_s
        self.end_s = end_s
        self.timer: Timer | None = None  # the next step
        self.asked_others = False
        self.n_expected = 0  # nacks
        self.n_nacks = 0
        self.by_stream = False  # answered over TCP
        self.refused = False
        self.is_over = False  # the verdict was given, only nacks are counted still


class Errand:
    """A ping done for another member."""

    __slots__ = ("seq_no", "timer", "to", "wanted_by")

    def __init__(self, seq_no: int, wanted_by: int, to: Address) -> None:
        self.seq_no = seq_no
        self.wanted_by = wanted_by  # its sequence number
        self.to = to
        self.timer: Timer | None = None


class Prober:
    """See the module."""

    def __init__(self, context: Context, mail: Mail, beliefs: Beliefs) -> None:
        self._context = context
        self._mail = mail
        self._beliefs = beliefs
        # Numbers start anywhere: answers are matched by number alone, so a stranger should have to guess.
        self._seq_no = context.rng.randrange(NUMBERS)
        self._probes: dict[int, Probe] = {}
        self._errands: dict[int, Errand] = {}
        self._current: Probe | None = None
        self._tick_s = math.inf

    def start(self, now_s: float) -> None:
        """Begin, at a random moment of the interval, so that members that start together do not probe together."""
        self._tick_s = now_s + self._context.rng.random() * self._context.config.probe_interval_s
        self._context.timers.at(self._tick_s, self._tick)

    def abandon(self) -> None:
        """This process did not run for a while: what was asked before is not judged, answers may be lost."""
        timers = [probe.timer for probe in self._probes.values()] + [errand.timer for errand in self._errands.values()]
        for timer in timers:
            if timer is not None:
                self._context.timers.cancel(timer)
        self._probes.clear()
        self._errands.clear()
        self._current = None

    # --- own probes ---

    def _tick(self, now_s: float) -> None:
        context, interval_s = self._context, self._context.config.probe_interval_s
        self._tick_s += interval_s
        if self._tick_s <= now_s:  # missed ones are skipped
            self._tick_s = now_s + interval_s
        context.timers.at(self._tick_s, self._tick)
        if self._current is None:
            member = context.roster.next_to_probe(now_s, context.me, context.config.gossip_to_the_dead_s)
            if member is not None:
                self._probe(now_s, member)

    def _probe(self, now_s: float, member: Member) -> None:
        context, config = self._context, self._context.config
        end_s = now_s + config.probe_interval_s * (context.health + 1)
        probe = self._current = Probe(self._number(), member, now_s, end_s)
        self._probes[probe.seq_no] = probe
        context.counts.probes += 1
        messages: list[Message] = [self._ping(probe.seq_no, member.name)]
        if member.state == SUSPECT:
            # The buddy system: a suspect learns from every probe what it has to refute.
            messages.append(Suspect(incarnation=member.incarnation, node=member.name, from_node=context.me.name))
        crc = member.state == SUSPECT and member.protocol_max >= UNDERSTANDS_CRC
        self._mail.post(member.address, *messages, crc=crc)
        probe.timer = context.timers.at(now_s + config.probe_timeout_s, lambda now_s: self._ask_others(now_s, probe))

    def _ask_others(self, now_s: float, probe: Probe) -> None:
        context, me, member = self._context, self._context.me, probe.member
        probe.asked_others = True
        helpers = context.roster.pick(
            context.config.indirect_checks,
            lambda other: other.state == ALIVE and other is not me and other is not member,
        )
        for helper in helpers:
            nack = helper.protocol_max >= UNDERSTANDS_NACK
            probe.n_expected += nack
            request = IndirectPing(
                seq_no=probe.seq_no,
                target=member.address,
                node=member.name,
                nack=nack,
                source=me.address,
                source_node=me.name,
            )
            self._mail.post(helper.address, request)
        if member.protocol_max >= UNDERSTANDS_STREAM_PING and probe.end_s > now_s:
            ping = self._ping(probe.seq_no, member.name)
            timeout_s = probe.end_s - now_s
            context.out.append(PingByStream(to=member.address, ping=ping, seq_no=probe.seq_no, timeout_s=timeout_s))
        probe.timer = context.timers.at(probe.end_s, lambda now_s: self._verdict(now_s, probe))

    def _verdict(self, now_s: float, probe: Probe) -> None:
        context, member = self._context, probe.member
        probe.is_over = True
        self._current = None
        patience_s = NACK_PATIENCE * context.config.probe_timeout_s
        probe.timer = context.timers.at(now_s + patience_s, lambda _: self._judge_myself(probe))
        if probe.by_stream:
            context.counts.probes_by_stream += 1
            self._tell_by_stream(member)
            return
        context.counts.probes_failed += 1
        said = Suspect(incarnation=probe.incarnation, node=member.name, from_node=context.me.name)
        self._beliefs.suspect(now_s, said)
        if probe.refused:
            self._beliefs.refused(now_s, member)
        if member.state == SUSPECT:
            # It may be there after all: it hears of it now, not with somebody's next probe.
            self._mail.post(member.address, said, crc=member.protocol_max >= UNDERSTANDS_CRC)

    def _tell_by_stream(self, member: Member) -> None:
        """A suspect that TCP alone reaches learns of it in an exchange: packets with the accusation may all be lost."""
        suspicion = member.suspicion
        if suspicion is not None and not suspicion.was_told:
            suspicion.was_told = True
            self._context.out.append(Exchange(to=member.address))

    def _judge_myself(self, probe: Probe) -> None:
        """A probe has failed: was it me? Helpers that say nothing are the sign; without any, take it as one."""
        del self._probes[probe.seq_no]
        self._context.trouble(max(0, probe.n_expected - probe.n_nacks) if probe.n_expected else 1)

    def _number(self) -> int:
        self._seq_no = (self._seq_no + 1) % NUMBERS
        return self._seq_no

    def _ping(self, seq_no: int, node: str) -> Ping:
        # Without the optional source: the answer goes where the packet came from, which is the port that this member is
        # bound to. It would be 40 of the 70 bytes of what is sent most.
        return Ping(seq_no=seq_no, node=node)

    # --- answers ---

    def ack(self, now_s: float, said: Ack) -> None:
        """Somebody answered: the one that was asked, or a helper for it. The first answer counts."""
        probe = self._probes.get(said.seq_no)
        if probe is not None:
            self._beliefs.answered(now_s, probe.member)
            if not probe.is_over:
                self._answered(now_s, probe, said.payload)
            return
        errand = self._errands.get(said.seq_no)
        if errand is not None:
            self._forget(errand)
            self._reply(errand.to, Ack(seq_no=errand.wanted_by))

    def _answered(self, now_s: float, probe: Probe, payload: bytes) -> None:
        if probe.timer is not None:
            self._context.timers.cancel(probe.timer)
        del self._probes[probe.seq_no]
        self._current = None
        self._context.trouble(-1)
        if not probe.asked_others:  # afterwards it may have come by a helper
            self._context.delegate.notify_ping_complete(probe.member.name, now_s - probe.sent_s, payload)

    def nack(self, said: Nack) -> None:
        """A helper had no answer, and is there itself."""
        probe = self._probes.get(said.seq_no)
        if probe is not None and probe.n_nacks < probe.n_expected:
            probe.n_nacks += 1

    def stream_ack(self, now_s: float, seq_no: int) -> None:
        """The member answered over TCP. The probe runs on, for nacks, and ends well."""
        probe = self._probes.get(seq_no)
        if probe is not None:
            probe.by_stream = True
            self._beliefs.answered(now_s, probe.member)

    def stream_refused(self, seq_no: int) -> None:
        """The member's host refused a connection."""
        probe = self._probes.get(seq_no)
        if probe is not None:
            probe.refused = True

    # --- for others ---

    def ping(self, said: Ping, source: Address) -> None:
        """Answer, if I am meant. Strangers get no more than they sent: no coordinate, no news."""
        context = self._context
        if said.node and said.node != context.me.name:
            context.counts.refused += 1
            return
        to = context.reply_address(said.source, source)
        payload = context.delegate.ack_payload() if context.roster.is_address(to) else b""
        self._reply(to, Ack(seq_no=said.seq_no, payload=payload))

    def indirect_ping(self, now_s: float, said: IndirectPing, source: Address) -> None:
        """Ping a member for another. Only members are pinged; for any other target the answer is the nack."""
        context = self._context
        to = context.reply_address(said.source, source)
        target = context.roster.get(said.node)
        if target is None or target.address != said.target or len(self._errands) >= ERRANDS_MAX:
            context.counts.refused += 1
            if said.nack:
                self._reply(to, Nack(seq_no=said.seq_no))
            return
        errand = Errand(self._number(), said.seq_no, to)
        self._errands[errand.seq_no] = errand
        self._mail.post(target.address, self._ping(errand.seq_no, said.node))
        timeout_s = context.config.probe_timeout_s
        if said.nack:
            errand.timer = context.timers.at(
                now_s + NACK_PART * timeout_s, lambda now_s: self._no_answer(now_s, errand)
            )
        else:
            errand.timer = context.timers.at(now_s + timeout_s, lambda _: self._forget(errand))

    def _no_answer(self, now_s: float, errand: Errand) -> None:
        """Say that there was none so far; one that comes yet is passed on."""
        self._reply(errand.to, Nack(seq_no=errand.wanted_by))
        left_s = (1 - NACK_PART) * self._context.config.probe_timeout_s
        errand.timer = self._context.timers.at(now_s + left_s, lambda _: self._forget(errand))

    def _reply(self, to: Address, message: Message) -> None:
        """Answer; news goes along to members alone, or a stranger's small question would get a large answer."""
        self._mail.post(to, message, piggyback=self._context.roster.is_address(to))

    def _forget(self, errand: Errand) -> None:
        del self._errands[errand.seq_no]
        if errand.timer is not None:
            self._context.timers.cancel(errand.timer)


__all__ = ["Probe", "Prober"]
