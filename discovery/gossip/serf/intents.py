"""Joining and leaving: what is said about it, to whom it is passed on, and a leave that nobody takes for a failure.

Theory of operation of a graceful leave
---------------------------------------
Memberlist's word that a member is dead and Serf's that it means to leave travel apart. Who hears the first one first calls
the member failed; Serf's own agents do so in up to 5 % of cases. So the second word is held back:

    told       the intent is queued, until it has been sent as often as it should be (at most 5 s)
    settling   others pass it on, for as many rounds of gossip as that takes; and each member is told once more, directly,
               since gossip misses one in some thousand
    dying      memberlist tells of the death, until that has been sent as often as it should be (at most 5 s)
    lingering  others pass that on (1 s), while this member still answers
    done       `LeaveDone`

Source: Serf 0.9.4 serf/serf.go (Leave, broadcastJoin, handleNodeLeaveIntent). Settling is ours.
"""

from __future__ import annotations

import math
from typing import Literal

from beeyard.discovery.gossip.message import JoinIntent, LeaveIntent
from beeyard.discovery.gossip.serf.context import Context
from beeyard.discovery.gossip.serf.event import LeaveDone
from beeyard.discovery.gossip.wire.serf_codec import encode_serf

Phase = Literal["alive", "told", "settling", "dying", "lingering", "done"]

# Rounds of gossip for each tenfold of members, until an intent that its origin has ceased to send is everywhere.
SETTLE_ROUNDS = 3
# Members that are told directly. In a larger cluster that would be a burst, and those of our kind do not need it: they know
# memberlist's word of a leave from that of a failure.
N_TOLD_DIRECTLY_MAX = 128


class Intents:
    """This member's intents, and those of others."""

    def __init__(self, context: Context, gossip_interval_s: float) -> None:
        self._context = context
        self._gossip_interval_s = gossip_interval_s
        self.phase: Phase = "alive"
        self._next_at_s = math.inf
        self._was_sent = False
        self._farewell = b""

    # --- others' -----------------------------------------------------------------------------------------------------------

    def take_join(self, intent: JoinIntent, data: bytes) -> None:
        """A join intent came in a packet."""
        if self.join(intent.node, intent.l_time):
            self._pass_on(data)

    def take_leave(self, intent: LeaveIntent, data: bytes) -> None:
        """A leave intent came in a packet."""
        if self.leave(intent.node, intent.l_time, prune=intent.prune):
            self._pass_on(data)

    def join(self, name: str, l_time: int) -> bool:
        """Somebody joins; True: this was news."""
        if not self._context.clock.believes(l_time):
            return False
        self._context.clock.witness(l_time)
        return self._context.roster.join_intent(self._context.now_s, name, l_time)

    def leave(self, name: str, l_time: int, *, prune: bool) -> bool:
        """Somebody leaves; True: this was news, and true."""
        context = self._context
        if not context.clock.believes(l_time):
            return False
        context.clock.witness(l_time)
        if name == context.name and self.phase == "alive":
            me = context.roster.by_name.get(name)
            if me is None or l_time > me.status_l_time:
                self.tell_join()
            return False
        # Of itself this member goes on to know.
        return context.roster.leave_intent(context.now_s, name, l_time, prune=prune and name != context.name)

    def _pass_on(self, data: bytes) -> None:
        context = self._context
        if not context.broadcasts.put(context.broadcasts.intents, data):
            context.dropped["oversized"] += 1

    # --- own ---------------------------------------------------------------------------------------------------------------

    def tell_join(self) -> None:
        """Say that this member is there, later than anything that was said about it."""
        context = self._context
        l_time = context.clock.time()
        self.join(context.name, l_time)
        self._pass_on(encode_serf(JoinIntent(l_time=l_time, node=context.name)))

    def force_leave(self, name: str, *, prune: bool) -> None:
        """Say that somebody has left."""
        context = self._context
        intent = LeaveIntent(l_time=context.clock.time(), node=name, prune=prune)
        context.clock.increment()
        self.leave(name, intent.l_time, prune=prune)
        if context.has_alive_others():
            self._pass_on(encode_serf(intent))

    def begin_leave(self) -> None:
        """Say that this member leaves. Again: nothing."""
        if self.phase != "alive":
            return
        context = self._context
        intent = LeaveIntent(l_time=context.clock.time(), node=context.name)
        context.clock.increment()
        has_listeners = context.has_alive_others()
        self._enter("told", context.config.broadcast_timeout_s)
        self.leave(context.name, intent.l_time, prune=False)
        if has_listeners:
            self._farewell = encode_serf(intent)
            context.broadcasts.put(context.broadcasts.intents, self._farewell, self._sent)
        else:
            context.memberlist.leave(context.now_s)
            self._finish()

    def _sent(self) -> None:
        self._was_sent = True

    def next_at(self) -> float:
        """When `advance` has something to do."""
        context = self._context
        if (self.phase == "told" and self._was_sent) or (self.phase == "dying" and context.memberlist.leave_told()):
            return -math.inf
        return self._next_at_s

    def advance(self) -> None:
        """One step, if it is time."""
        context = self._context
        if self.next_at() > context.now_s:
            return
        if self.phase == "told":
            self._tell_directly()
            n_tens = math.ceil(math.log10(len(context.roster.by_name) + 1))
            self._enter("settling", SETTLE_ROUNDS * n_tens * self._gossip_interval_s)
        elif self.phase == "settling":
            context.memberlist.leave(context.now_s)
            self._enter("dying", context.config.broadcast_timeout_s)
        elif self.phase == "dying":
            self._enter("lingering", context.config.leave_propagate_s)
        elif self.phase == "lingering":
            self._finish()

    def _tell_directly(self) -> None:
        context = self._context
        others = [m for m in context.roster.by_name.values() if m.status == "alive" and m.name != context.name]
        if len(others) <= N_TOLD_DIRECTLY_MAX:
            for member in others:
                context.memberlist.send_user(member.address, self._farewell)

    def _enter(self, phase: Phase, at_most_s: float) -> None:
        self.phase = phase
        self._next_at_s = self._context.now_s + at_most_s

    def _finish(self) -> None:
        self._enter("done", math.inf)
        self._context.events.append(LeaveDone())


__all__ = ["Intents", "Phase"]
