"""Who is believed to be alive: what an alive, a suspect and a dead message do, and what this member says of itself.

Theory of operation
-------------------
A member's state is told with its incarnation, a number that only the member itself raises. Of two messages the one with the
greater incarnation wins; with the same one, dead beats suspect beats alive. Everybody may accuse; the accused refutes with a
greater incarnation. What changed a belief is passed on, once; what did not is dropped, so news dies out.

    (unknown) --alive--> ALIVE --suspect--> SUSPECT --time is up, or dead--> DEAD (LEFT, if it said so itself)
                           ^-----alive with a greater incarnation-----'---------'   both forgotten in the end

Source: SWIM, section 4.2; memberlist 0.2.2 state.go `aliveNode`, `suspectNode`, `deadNode`, `refute`.
"""

from __future__ import annotations

import ipaddress

from beeyard.discovery.gossip.message import Address, Alive, Dead, NodeRecord, Suspect
from beeyard.discovery.gossip.swim.context import Context
from beeyard.discovery.gossip.swim.mail import Mail
from beeyard.discovery.gossip.swim.roster import ALIVE, DEAD, LEFT, SUSPECT, Member
from beeyard.discovery.gossip.swim.suspicion import Suspicion
from beeyard.discovery.gossip.wire.limits import META_BYTES_MAX

# A suspect whose time is up is asked once more, for so much of the probe interval. Otherwise a member that was frozen for six
# seconds has 0.2 s to speak, of 20, which is little on a busy machine. Who vanished is found later by as much.
LAST_WORD_PART = 0.25
# Incarnations have 32 bits. Whoever is accused under the last one cannot refute it (memberlist's number wraps to 0), counts
# as dead, is forgotten after a while and then taken in anew.
INCARNATION_MAX = 0xFFFF_FFFF


class Beliefs:
    """Applies the rules to the roster, and tells mail and delegate."""

    def __init__(self, context: Context, mail: Mail) -> None:
        self._context = context
        self._mail = mail
        self._reminded: dict[str, bool] = {}  # accusers told of the present incarnation directly

    # --- alive ---

    def alive(self, now_s: float, said: Alive) -> None:
        """A member says where and what it is."""
        context = self._context
        member = context.roster.get(said.node)
        if member is context.me:
            self._alive_me(said)
            return
        address = said.address if said.address.port else Address(said.address.host, context.me.address.port)
        if member is not None and said.incarnation <= member.incarnation and address == member.address:
            return  # an echo, as most are
        if not self._is_acceptable(said, address, member):
            context.counts.refused += 1
            return
        if not context.delegate.is_welcome(said):
            context.counts.unwelcome += 1
            return
        if member is None:
            member = Member(said.node, address, said.meta, said.vsn, now_s)
            context.roster.add(member)
        takes_over = address != member.address
        if takes_over and not self._may_move(now_s, member):
            context.counts.conflicts += 1
            context.delegate.notify_conflict(member.record(), _record(said, address))
            return
        self._mail.broadcast(said, said.node)
        self._revive(now_s, member, said, address)

    def _is_acceptable(self, said: Alive, address: Address, member: Member | None) -> bool:
        """Whether it can be a member: bounds on what a stranger may make us keep, and versions that go with ours."""
        config = self._context.config
        if len(said.meta) > META_BYTES_MAX or not is_compatible(said.vsn, self._context.me.vsn):
            return False
        if member is not None and member.address == address:
            return True
        if member is None and (
            not said.node
            or not said.incarnation  # it would never be alive
            or len(said.node.encode("utf-8", "surrogatepass")) > config.name_bytes_max
            or len(self._context.roster) >= config.members_max
        ):
            return False
        return is_unicast(address)

    def _may_move(self, now_s: float, member: Member) -> bool:
        """Whether another address may take over the name: of one that left, and of one that was dead for long enough.

        Whoever is dead for longer than it is gossiped to is only kept until the round of probes is over.
        """
        config = self._context.config
        after_s = min(config.reclaim_s or config.gossip_to_the_dead_s, config.gossip_to_the_dead_s)
        return member.state == LEFT or (member.state == DEAD and now_s - member.changed_s > after_s)

    def _revive(self, now_s: float, member: Member, said: Alive, address: Address) -> None:
        context = self._context
        was_up, old = member.is_up, (member.meta, member.vsn)
        self._drop_suspicion(member)
        member.meta = said.meta
        member.vsn = said.vsn or member.vsn
        context.roster.move(member, address)
        context.roster.set_incarnation(member, said.incarnation)
        context.roster.set_state(member, ALIVE, now_s)
        if not was_up:
            context.delegate.notify_join(member.record())
        elif old != (member.meta, member.vsn):
            context.delegate.notify_update(member.record())

    def _alive_me(self, said: Alive) -> None:
        """Somebody tells me about myself: an echo, an earlier life of mine, or somebody with my name."""
        context, me = self._context, self._context.me
        if context.has_left:
            return
        if said.address.port and said.address != me.address:
            context.counts.conflicts += 1
            context.delegate.notify_conflict(me.record(), _record(said, said.address))
        elif said.incarnation > me.incarnation or (
            said.incarnation == me.incarnation and (said.meta != me.meta or said.vsn != me.vsn)
        ):
            self.refute(said.incarnation)

    # --- suspect ---

    def suspect(self, now_s: float, said: Suspect) -> None:
        """Somebody believes that a member is dead, or I do."""
        context = self._context
        member = context.roster.get(said.node)
        if member is None:
            return
        if said.incarnation < member.incarnation:
            if member is context.me:
                self._remind(said.from_node)
            return
        if member.suspicion is not None:
            if member.suspicion.confirm(said.from_node):
                self._mail.broadcast(said, said.node)
                self._set_timer(now_s, member)
        elif member is context.me:
            if not context.has_left:
                self.refute(said.incarnation, said.from_node)
        elif member.state == ALIVE:
            self._mail.broadcast(said, said.node)
            context.counts.suspicions += 1
            context.roster.set_incarnation(member, said.incarnation)
            context.roster.set_state(member, SUSPECT, now_s)
            member.suspicion = Suspicion(context.config, now_s, len(context.roster), said.from_node)
            self._set_timer(now_s, member)

    def refused(self, now_s: float, member: Member) -> None:
        """The suspect's host refused a connection: no process is there."""
        if member.suspicion is not None and not member.suspicion.refused:
            member.suspicion.refused = True
            self._set_timer(now_s, member)

    def answered(self, now_s: float, member: Member) -> None:
        """A suspect is there after all; it will refute, until then refused connections no longer count."""
        if member.suspicion is not None and member.suspicion.refused:
            member.suspicion.refused = False
            self._set_timer(now_s, member)

    def stalled(self, by_s: float) -> None:
        """This process did not run for a while: no suspicion gets older by that."""
        for member in self._context.roster.by_name.values():
            if member.suspicion is not None:
                member.suspicion.since_s += by_s

    def _set_timer(self, now_s: float, member: Member) -> None:
        suspicion, timers = member.suspicion, self._context.timers
        assert suspicion is not None  # callers have just looked
        if suspicion.timer is not None:
            timers.cancel(suspicion.timer)
        due_s = suspicion.due_s + (self._last_word_s(suspicion) if suspicion.was_asked_last else 0.0)
        # What is overdue already is dead with the next turn: now it may be in the middle of a datagram that refutes.
        suspicion.timer = timers.at(max(now_s, due_s), lambda now_s: self._time_is_up(now_s, member))

    def _time_is_up(self, now_s: float, member: Member) -> None:
        context, suspicion = self._context, member.suspicion
        assert suspicion is not None  # the timer ends with it
        me = context.me.name
        last_word_s = self._last_word_s(suspicion)
        if not suspicion.was_asked_last and last_word_s:
            suspicion.was_asked_last = True
            if suspicion.is_accuser(me):  # those that only heard of it wait in silence, or a thousand would ask
                said = Suspect(incarnation=member.incarnation, node=member.name, from_node=me)
                self._mail.post(member.address, said, piggyback=False)
            suspicion.timer = context.timers.at(now_s + last_word_s, lambda now_s: self._time_is_up(now_s, member))
            return
        self.dead(now_s, Dead(incarnation=member.incarnation, node=member.name, from_node=me))

    def _last_word_s(self, suspicion: Suspicion) -> float:
        """How long a suspect is waited for when its time is up; not at all where no process is."""
        return 0.0 if suspicion.refused else LAST_WORD_PART * self._context.config.probe_interval_s

    def _drop_suspicion(self, member: Member) -> None:
        if member.suspicion is not None:
            if member.suspicion.timer is not None:
                self._context.timers.cancel(member.suspicion.timer)
            member.suspicion = None

    # --- dead ---

    def dead(self, now_s: float, said: Dead) -> None:
        """A member is dead, or says that it leaves."""
        context = self._context
        member = context.roster.get(said.node)
        if member is None or said.incarnation < member.incarnation or not member.is_up:
            return
        if member is context.me and not context.has_left:
            self.refute(said.incarnation, said.from_node)
            return
        self._drop_suspicion(member)
        self._mail.broadcast(said, said.node, self._leave_told if member is context.me else None)
        context.roster.set_incarnation(member, said.incarnation)
        context.roster.set_state(member, LEFT if said.from_node == said.node else DEAD, now_s)
        context.delegate.notify_leave(member.record())

    # --- me ---

    def _leave_told(self) -> None:
        self._context.leave_told = True

    def refute(self, accused: int, accuser: str = "") -> None:
        """Contradict what was said of me under the incarnation `accused`, at once, and to the accuser directly.

        Its suspicion may be about to run out: a member that was frozen has tenths of a second left.
        """
        self._context.counts.refutations += 1
        self._context.trouble(+1)
        self.tell_me(max(self._context.me.incarnation, accused) + 1)
        self._mail.hurry()
        self._remind(accuser)

    def tell_me(self, incarnation: int) -> None:
        """Tell everyone what I am, under this incarnation."""
        self._context.roster.set_incarnation(self._context.me, min(incarnation, INCARNATION_MAX))
        self._reminded.clear()
        self._mail.broadcast(self._me(), self._context.me.name)

    def _me(self) -> Alive:
        me = self._context.me
        return Alive(incarnation=me.incarnation, node=me.name, address=me.address, meta=me.meta, vsn=me.vsn)

    def _remind(self, accuser: str) -> None:
        """Send my present incarnation to an accuser, once for each incarnation: he has not heard of it."""
        context = self._context
        member = context.roster.get(accuser)
        if member is None or member is context.me or not member.is_up or context.has_left or accuser in self._reminded:
            return
        self._reminded[accuser] = True
        self._mail.post(member.address, self._me(), piggyback=False)  # the news is this very message


def _record(said: Alive, address: Address) -> NodeRecord:
    return NodeRecord(
        name=said.node, address=address, meta=said.meta, incarnation=said.incarnation, state=ALIVE, vsn=said.vsn
    )


def is_compatible(theirs: bytes, mine: bytes) -> bool:
    """Whether each speaks what the other understands, in both layers. Who does not say (short or empty) is let in.

    Memberlist refuses a whole exchange if one record in it does not fit, so that one bad member keeps all from joining: here
    only that member is refused. Source: memberlist 0.2.2 memberlist.go `verifyProtocol`.
    """
    if theirs == mine or len(theirs) < 6 or len(mine) < 6:
        return True
    return all(
        0 < theirs[i] <= mine[i + 2] <= theirs[i + 1] and mine[i] <= theirs[i + 2] <= mine[i + 1]
        for i in (0, 3)  # memberlist's minimum, maximum and current version; the delegate's
    )


def is_unicast(address: Address) -> bool:
    """Whether it is one host's address: what is told as a member's is sent packets to."""
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return False
    return not (ip.is_multicast or ip.is_unspecified or address.host == "255.255.255.255")


__all__ = ["Beliefs", "is_compatible", "is_unicast"]
