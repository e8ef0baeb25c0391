"""What gossip tells the dispatcher: which members others have tried to reach in vain. They are asked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from beeyard.core.model import Node
from beeyard.manager.dispatch.liveness import LIVE_STATES, Liveness
from beeyard.manager.dispatch.session import Session

# Between two questions to a node that answers while gossip goes on doubting it.
ASK_AGAIN_S = 1.0
# Up to so many sessions all others are asked too, with each question: a node is believed to be gone only while others are
# heard. In a larger cluster half of the heartbeats come within half a period by themselves.
WITNESSES_MAX = 32


class Doubts(Protocol):
    """Gossip as the dispatcher sees it; asked once a second."""

    def doubted(self) -> Mapping[str, bool]:
        """Members that do not answer, by name: False while they are suspected, True once gossip holds them for failed.

        Those that left on purpose are not in it.
        """


class NoDoubts:
    """A manager that does not gossip."""

    def doubted(self) -> Mapping[str, bool]:
        """None."""
        return {}


def ask_doubted(
    doubts: Doubts, nodes: Mapping[str, Node], sessions: Mapping[str, Session], liveness: Liveness, now_s: float
) -> None:
    """Ask the nodes that gossip doubts whether they are there, and have `liveness` know which were asked.

    Which member a node is its agent has said over its session. Whoever says so falsely can have a node asked, and no more.
    """
    doubted = doubts.doubted()
    for node_id in list(liveness.asked):
        if _is_doubted(nodes.get(node_id), doubted) is None or not _can_be_asked(sessions.get(node_id)):
            liveness.trust(node_id)
    if not doubted:
        return
    asked = []
    for node_id, session in sessions.items():
        given_up = _is_doubted(nodes.get(node_id), doubted)
        if given_up is None or not _can_be_asked(session):
            continue
        if not liveness.is_asked(node_id):
            if now_s - liveness.last_contact_s(node_id) < ASK_AGAIN_S:
                continue  # It has just spoken.
            session.probe()
            asked.append(node_id)
        liveness.doubt(node_id, now_s, given_up=given_up)
    if asked and len(sessions) <= WITNESSES_MAX:
        for node_id, session in sessions.items():
            if not liveness.is_asked(node_id) and _can_be_asked(session):
                session.probe()


def _is_doubted(node: Node | None, doubted: Mapping[str, bool]) -> bool | None:
    """None: no."""
    if node is None or node.status.state not in LIVE_STATES or node.description.membership is None:
        return None
    return doubted.get(node.description.membership.name)


def _can_be_asked(session: Session | None) -> bool:
    return session is not None and session.answers_probes and session.served and not session.ended


__all__ = ["Doubts", "NoDoubts", "ask_doubted"]
