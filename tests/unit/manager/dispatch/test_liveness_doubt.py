"""The failure detector when gossip doubts nodes: earlier, but never by itself, and never for most nodes at once."""

from __future__ import annotations

import pytest

from beeyard.core.model import Node
from beeyard.core.states import NodeState
from beeyard.manager.dispatch.liveness import GOSSIP_FAILURE, Liveness
from tests.support.builders import a_node

PERIOD_S = 5.0
NOW_S = 5000.0  # when all were heard last


def a_cluster(n_nodes: int) -> tuple[dict[str, Node], Liveness]:
    nodes = {f"n{n}": a_node(f"n{n}") for n in range(n_nodes)}
    liveness = Liveness(1000.0, PERIOD_S)
    for node_id in nodes:
        liveness.heard(node_id, NOW_S)
    return nodes, liveness


def down(liveness: Liveness, nodes: dict[str, Node], after_s: float) -> list[str]:
    return [node.id for node in liveness.judge(nodes, NOW_S + after_s)]


@pytest.mark.parametrize(
    ("given_up", "asked_s", "after_s", "is_down"),
    [
        (True, 2.0, 4.9, False),  # not one heartbeat is missing yet
        (True, 2.0, 5.0, True),
        (True, 4.0, 6.4, False),  # it has not had the time to answer
        (True, 4.0, 6.5, True),
        (False, 2.0, 9.9, False),
        (False, 2.0, 10.0, True),
        (False, 9.0, 11.4, False),
    ],
)
def test_an_unanswered_question_shortens_the_wait(
    given_up: bool, asked_s: float, after_s: float, is_down: bool
) -> None:
    nodes, liveness = a_cluster(3)
    liveness.doubt("n0", NOW_S + asked_s, given_up=given_up)
    for name in ("n1", "n2"):
        liveness.heard(name, NOW_S + asked_s + 0.1)
    assert down(liveness, nodes, after_s) == (["n0"] if is_down else [])
    if is_down:
        assert liveness.down_message("n0", NOW_S + after_s) == GOSSIP_FAILURE
        assert liveness.mass_failure(nodes, NOW_S + after_s) == ""


def test_suspicion_that_becomes_certainty_counts_from_the_question() -> None:
    nodes, liveness = a_cluster(2)
    liveness.doubt("n0", NOW_S + 2, given_up=False)
    liveness.heard("n1", NOW_S + 4)
    assert down(liveness, nodes, 7) == []
    liveness.doubt("n0", NOW_S + 7, given_up=True)
    assert down(liveness, nodes, 7) == ["n0"]


def test_one_word_of_the_node_outweighs_gossip() -> None:
    """Also one that comes between the judgement and its commit."""
    nodes, liveness = a_cluster(2)
    liveness.doubt("n0", NOW_S + 2, given_up=True)
    liveness.heard("n1", NOW_S + 4)
    assert down(liveness, nodes, 7) == ["n0"]
    liveness.heard("n0", NOW_S + 7)
    assert not liveness.is_silent("n0", NOW_S + 7.1)
    assert not liveness.is_asked("n0")
    assert down(liveness, nodes, 12) == []


def test_gossip_that_takes_it_back_leaves_the_heartbeats() -> None:
    nodes, liveness = a_cluster(2)
    liveness.doubt("n0", NOW_S + 2, given_up=True)
    liveness.trust("n0")
    liveness.heard("n1", NOW_S + 14)
    assert down(liveness, nodes, 14.9) == []
    assert down(liveness, nodes, 15.0) == ["n0"]


@pytest.mark.parametrize(
    ("n_nodes", "n_heard", "is_down"),
    [
        (1, 0, False),  # nobody else vouches for this manager's own connection
        (2, 0, False),
        (2, 1, True),
        (4, 2, True),
        (5, 2, False),  # three of five at once would be a mass failure
        (5, 3, True),
    ],
)
def test_it_is_believed_only_while_enough_others_are_heard(n_nodes: int, n_heard: int, is_down: bool) -> None:
    """A manager that is cut off hears nobody, and its gossip doubts everybody: then the heartbeats' own time runs."""
    nodes, liveness = a_cluster(n_nodes)
    liveness.doubt("n0", NOW_S + 2, given_up=True)
    for number in range(n_nodes - n_heard, n_nodes):
        liveness.heard(f"n{number}", NOW_S + 3)
    assert down(liveness, nodes, 7) == (["n0"] if is_down else [])


def test_a_mass_failure_stays_one_when_gossip_hurries() -> None:
    """A manager that is cut off from four of five: all are marked down at their time, and nothing is replaced."""
    nodes, liveness = a_cluster(5)
    for number in range(4):
        liveness.doubt(f"n{number}", NOW_S + 2 + number / 10, given_up=True)
    for second in range(3, 15):
        liveness.heard("n4", NOW_S + second)
        assert down(liveness, nodes, second) == []
    assert len(down(liveness, nodes, 15)) == 4
    assert "4 of 5 nodes seem to have failed at once" in liveness.mass_failure(nodes, NOW_S + 15)


def test_a_manager_that_stood_still_gives_its_grace_whatever_gossip_says() -> None:
    nodes, liveness = a_cluster(2)
    liveness.doubt("n0", NOW_S + 2, given_up=True)
    liveness.clock_gap(NOW_S + 6)
    liveness.heard("n1", NOW_S + 6)
    assert down(liveness, nodes, 35) == []
    liveness.heard("n1", NOW_S + 36)
    assert down(liveness, nodes, 36) == ["n0"]


def test_a_node_that_is_gone_leaves_nothing() -> None:
    nodes, liveness = a_cluster(2)
    liveness.doubt("n0", NOW_S + 2, given_up=True)
    liveness.forget("n0")
    assert (list(liveness.asked), nodes["n0"].status.state) == ([], NodeState.READY)
