"""Who has been heard of, who counts as failed, and when that judgement is not to be trusted.

Theory of operation
-------------------
Every message of a node counts as word from it. A node that is silent for three heartbeat periods is down. So is one that
speaks but for so long has taken nothing of what it must run, session after session (a path that loses large packets):
its tasks can neither be started nor stopped. Three rules
keep a manager that is itself in trouble from declaring its whole cluster dead:

* *Restart*: a manager that has just started has heard of nobody. It gives all nodes six periods to come back.
* *Clock gap*: a manager whose own loop did not run for a while (paused, starved) gives the same grace anew: the silence
  was its own.
* *Mass failure*: when more than half of the nodes, and two at least, seem to fail at once, the manager is probably the
  one cut off. The nodes are marked down, but whoever would replace their tasks asks `mass_failure` first and waits. It
  ends when at most half of the nodes are failing: because they are back, because an operator removed or drained them, or
  because others joined.

Nodes that fail by the same cause fall silent within one period of each other, since their heartbeats are staggered over
it. So when the first of them has been silent for three periods, the others have been for two: those count as failing
already, and a mass failure is seen before the first node is marked down.

*Gossip* may shorten the wait, and never decides. A node that gossip doubts is asked over its session; one word of it, and
it is alive whatever gossip says. When it does not answer for half a period, it is down after one period of silence if gossip
has given it up, after two if gossip only suspects it. That holds while so many others are heard meanwhile that the rest, were
they all gone, would be no mass failure. A node without a session is not hurried: its host has closed the connection, so
it is there, and its tasks probably run.

A node that went down in a mass failure says so in its stored status, so that a restart of the manager does not forget it.
No I/O here: times are seconds of trio's clock, given by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from beeyard.core.model import Node
from beeyard.core.states import Availability, NodeState

# Source: SwarmKit `manager/dispatcher`: gracePeriodMultiplier 3, a new leader's grace twice that.
MISSED_PERIODS = 3.0
GRACE_PERIODS = 6.0
# Two periods less the jitter of heartbeats; a healthy node is never silent for more than one period and its jitter.
SUSPECT_PERIODS = 1.8
# Of a node that gossip has given up, or suspects, and that does not answer its probe. An answer takes a round trip; half a
# period, 2.5 s, is more than a loaded host needs for it. One period: a heartbeat at least must be missing too.
UNANSWERED_PERIODS = 0.5
GIVEN_UP_PERIODS = 1.0
SUSPECTED_PERIODS = 2.0
# Above what a busy loop ever lags, below what could make a healthy node miss three heartbeats.
CLOCK_GAP_S = 3.0

HEARTBEAT_FAILURE = "heartbeat failure"
UNSERVED = "it is heard, but does not take what it must run: its connection loses large packets or is far too slow"
GOSSIP_FAILURE = "heartbeat failure: it answers neither this manager nor the other members of gossip"
MASS_HEARTBEAT_FAILURE = "heartbeat failure, together with more than half of the nodes"

# States in which a node is believed to be alive. UNKNOWN: it was READY when the manager was restarted.
LIVE_STATES = (NodeState.READY, NodeState.UNKNOWN, NodeState.DISCONNECTED)


class Doubt(NamedTuple):
    """Gossip doubts a node, which was asked and has not answered."""

    asked_s: float
    given_up: bool


class Liveness:
    """The failure detector of one manager."""

    def __init__(self, now_s: float, period_s: float) -> None:
        self.period_s = period_s
        self._started_s = now_s
        self._grace_until_s = now_s + GRACE_PERIODS * period_s
        self._heard_s: dict[str, float] = {}
        # Since when nodes have not been told what they must run although they have sessions.
        self._unserved_s: dict[str, float] = {}
        self._doubts: dict[str, Doubt] = {}
        # Those whose silence is believed early, as `judge` last found. A dict for its order.
        self._early: dict[str, None] = {}
        # When nodes were found to have failed, kept for as long as another failure counts as "at once".
        self._failed_s: dict[str, float] = {}
        # The nodes of the mass failure that lasts, empty when there is none. A dict for its order.
        self._mass: dict[str, None] = {}

    def restore(self, nodes: Iterable[Node]) -> None:
        """Continue a mass failure that a previous life of this manager saw."""
        for node in nodes:
            if node.status.state is NodeState.DOWN and node.status.message == MASS_HEARTBEAT_FAILURE:
                self._mass[node.id] = None

    def heard(self, node_id: str, now_s: float) -> None:
        """Note word from a node."""
        if now_s - self._heard_s.get(node_id, now_s) >= MISSED_PERIODS * self.period_s:
            self._unserved_s.pop(node_id, None)  # It was away: what an earlier session met says nothing any more.
        self._heard_s[node_id] = now_s
        self._doubts.pop(node_id, None)
        self._early.pop(node_id, None)

    def doubt(self, node_id: str, now_s: float, *, given_up: bool) -> None:
        """Gossip doubts the node. The first call after its last word says that it is asked now whether it is there."""
        known = self._doubts.get(node_id)
        self._doubts[node_id] = Doubt(now_s if known is None else known.asked_s, given_up)

    @property
    def asked(self) -> Iterable[str]:
        """The nodes that were asked and have not answered."""
        return self._doubts

    def is_asked(self, node_id: str) -> bool:
        """Whether the node was asked and has not answered."""
        return node_id in self._doubts

    def trust(self, node_id: str) -> None:
        """Gossip doubts the node no more, or it cannot be asked. Idempotent."""
        self._doubts.pop(node_id, None)
        self._early.pop(node_id, None)

    def opened(self, node_id: str, now_s: float) -> None:
        """A session begins; whether the node can be told what it must run is not known yet."""
        self._unserved_s.setdefault(node_id, now_s)

    def took(self, node_id: str, now_s: float, *, served: bool) -> None:
        """The node took a part of what it must run; `served`: it has all of it."""
        if served:
            self._unserved_s.pop(node_id, None)
        else:
            self._unserved_s[node_id] = now_s

    def is_unserved(self, node_id: str, now_s: float) -> bool:
        """Whether the node speaks, but has for three periods taken nothing of what it must run."""
        return now_s - self._unserved_s.get(node_id, now_s) >= MISSED_PERIODS * self.period_s

    def forget(self, node_id: str) -> None:
        """A node was removed from the cluster. Idempotent."""
        for table in (self._heard_s, self._unserved_s, self._doubts, self._early, self._failed_s, self._mass):
            table.pop(node_id, None)

    def last_contact_s(self, node_id: str) -> float:
        """When the node was last heard of; the start of this manager if not since then (it may have been until then)."""
        return self._heard_s.get(node_id, self._started_s)

    def is_silent(self, node_id: str, now_s: float) -> bool:
        """Whether the node has missed three heartbeats, is unserved for so long, or silent early, and no grace lasts."""
        is_over = node_id in self._early or self._silence_periods(node_id, now_s) >= MISSED_PERIODS
        return is_over and now_s >= self._grace_until_s

    def clock_gap(self, now_s: float) -> None:
        """The manager did not run for a while: nobody is declared down for six periods."""
        self._grace_until_s = now_s + GRACE_PERIODS * self.period_s

    def judge(self, nodes: Mapping[str, Node], now_s: float) -> list[Node]:
        """The nodes that must be marked down now; a mass failure, if this is one, is in force on return."""
        self._end_mass_failure(nodes, now_s)
        self._early = dict.fromkeys(self._find_early(nodes, now_s))
        expired = [n for n in nodes.values() if n.status.state in LIVE_STATES and self.is_silent(n.id, now_s)]
        if not expired:
            return []
        window_s = MISSED_PERIODS * self.period_s
        self._failed_s = {i: at for i, at in self._failed_s.items() if now_s - at < window_s}
        self._failed_s.update((node.id, now_s) for node in expired)
        failing = [n.id for n in _counted(nodes) if self._is_failing(n, now_s)]
        alive_before = sum(n.status.state in LIVE_STATES or n.id in self._failed_s for n in _counted(nodes))
        if self._mass or _is_mass(len(failing), alive_before):
            self._mass.update(dict.fromkeys(failing))
        return expired

    def settled(self, nodes: Mapping[str, Node]) -> list[Node]:
        """Nodes whose status still tells of a mass failure that is over; rewriting it also wakes who waited for the end."""
        return [
            node
            for node in nodes.values()
            if node.status.message == MASS_HEARTBEAT_FAILURE and node.id not in self._mass
        ]

    def down_message(self, node_id: str, now_s: float) -> str:
        """What the status of a node that is marked down says."""
        if node_id in self._mass:
            return MASS_HEARTBEAT_FAILURE
        if node_id in self._early:
            return GOSSIP_FAILURE
        return UNSERVED if self.is_unserved(node_id, now_s) else HEARTBEAT_FAILURE

    def mass_failure(self, nodes: Mapping[str, Node], now_s: float) -> str:
        """Why tasks of nodes that are down must not be replaced now, as a sentence; "" when they may."""
        failing, total = self._count_mass(nodes, now_s)
        if not _is_mass(failing, total):
            return ""
        return (
            f"{failing} of {total} nodes seem to have failed at once: this manager is probably the one cut off; "
            "replacement waits until at least half are ready, or an operator removes or drains those that are gone"
        )

    def _end_mass_failure(self, nodes: Mapping[str, Node], now_s: float) -> None:
        if self._mass and not self.mass_failure(nodes, now_s):
            self._mass.clear()

    def _count_mass(self, nodes: Mapping[str, Node], now_s: float) -> tuple[int, int]:
        """How many nodes of the mass failure are still failing, and of how many in all."""
        if not self._mass:
            return 0, 0
        failing = total = 0
        for node in _counted(nodes):
            if node.id in self._mass and (node.status.state is NodeState.DOWN or self._is_failing(node, now_s)):
                failing += 1
                total += 1
            elif node.status.state in LIVE_STATES:
                total += 1
        return failing, total

    def _is_failing(self, node: Node, now_s: float) -> bool:
        if node.status.state in LIVE_STATES:
            return node.id in self._early or self._silence_periods(node.id, now_s) >= SUSPECT_PERIODS
        return node.id in self._failed_s

    def _find_early(self, nodes: Mapping[str, Node], now_s: float) -> list[str]:
        """Nodes whose silence is long enough because gossip doubts them too."""
        early = []
        for node_id, doubt in self._doubts.items():
            needed = GIVEN_UP_PERIODS if doubt.given_up else SUSPECTED_PERIODS
            is_unanswered = now_s - doubt.asked_s >= UNANSWERED_PERIODS * self.period_s
            if is_unanswered and self._silence_periods(node_id, now_s) >= needed:
                early.append((node_id, doubt.asked_s))
        return [node_id for node_id, asked_s in early if self._are_others_heard(nodes, asked_s)]

    def _are_others_heard(self, nodes: Mapping[str, Node], since_s: float) -> bool:
        """Whether the nodes that were not heard since would be no mass failure, were they all gone."""
        live = [node.id for node in _counted(nodes) if node.status.state in LIVE_STATES]
        n_heard = sum(self._heard_s.get(node_id, -math.inf) > since_s for node_id in live)
        return n_heard > 0 and not _is_mass(len(live) - n_heard, len(live))

    def _silence_periods(self, node_id: str, now_s: float) -> float:
        since_s = min(self.last_contact_s(node_id), self._unserved_s.get(node_id, math.inf))
        return (now_s - since_s) / self.period_s


def _is_mass(failing: int, total: int) -> bool:
    """Two at least: one node that fails alone says nothing about the others."""
    return failing >= 2 and 2 * failing > total


def _counted(nodes: Mapping[str, Node]) -> Iterable[Node]:
    """The nodes that say something about the cluster's health: an operator has not taken them out."""
    return (node for node in nodes.values() if node.availability is not Availability.DRAIN)
