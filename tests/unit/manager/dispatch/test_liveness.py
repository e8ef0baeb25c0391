"""The failure detector alone, on a clock that is a number."""

from collections.abc import Mapping

import pytest

from beeyard.core.model import Node
from beeyard.core.states import Availability, NodeState
from beeyard.manager.dispatch.liveness import HEARTBEAT_FAILURE, MASS_HEARTBEAT_FAILURE, UNSERVED, Liveness
from tests.support.builders import a_node

PERIOD_S = 5.0
START_S = 1000.0


def nodes_in(**states: NodeState) -> dict[str, Node]:
    return {name: a_node(name, state=state) for name, state in states.items()}


def a_cluster(n_nodes: int, availability: Availability = Availability.ACTIVE) -> dict[str, Node]:
    return {f"n{n}": a_node(f"n{n}", availability=availability) for n in range(n_nodes)}


def a_detector(nodes: Mapping[str, Node], now_s: float) -> Liveness:
    """One that runs for long and has just heard everybody."""
    liveness = Liveness(START_S, PERIOD_S)
    for node_id in nodes:
        liveness.heard(node_id, now_s)
    return liveness


@pytest.mark.parametrize(("silence_s", "is_down"), [(14.9, False), (15.0, True), (1e6, True)])
def test_three_missed_heartbeats(silence_s: float, is_down: bool) -> None:
    """Fifteen seconds, not less."""
    nodes = a_cluster(3)
    liveness = a_detector(nodes, 5000.0)
    for name in ("n1", "n2"):
        liveness.heard(name, 5000.0 + silence_s)
    assert [n.id for n in liveness.judge(nodes, 5000.0 + silence_s)] == (["n0"] if is_down else [])


@pytest.mark.parametrize("state", list(NodeState))
def test_only_who_was_believed_alive_goes_down(state: NodeState) -> None:
    """A node that is down already does not fall twice."""
    nodes = nodes_in(n0=state)
    liveness = Liveness(START_S, PERIOD_S)
    expected = [] if state is NodeState.DOWN else ["n0"]
    assert [n.id for n in liveness.judge(nodes, START_S + 31)] == expected


def test_node_that_speaks_but_takes_nothing_is_down() -> None:
    """Whatever it says and however often it opens a session; its leases still count from its last word."""
    nodes = a_cluster(3)
    liveness = a_detector(nodes, 5000.0)
    liveness.opened("n0", 5000.0)
    for second in range(1, 16):
        for name in nodes:
            liveness.heard(name, 5000.0 + second)
        liveness.opened("n0", 5000.0 + second)
        assert [n.id for n in liveness.judge(nodes, 5000.0 + second)] == (["n0"] if second == 15 else [])
    assert liveness.down_message("n0", 5015.0) == UNSERVED
    assert liveness.last_contact_s("n0") == 5015.0


def test_node_that_takes_part_after_part_is_alive_and_has_no_past_once_served() -> None:
    """A slow connection is one that moves."""
    nodes = a_cluster(1)
    liveness = a_detector(nodes, 5000.0)
    liveness.opened("n0", 5000.0)
    for second in range(10, 100, 10):
        liveness.heard("n0", 5000.0 + second)
        liveness.took("n0", 5000.0 + second, served=second == 90)
        assert not liveness.judge(nodes, 5000.0 + second + 4)
    liveness.heard("n0", 5200.0)
    assert not liveness.judge(nodes, 5200.0)


def test_node_that_was_away_is_judged_anew() -> None:
    """It was cut off while it was being told; that it could not be told then says nothing of now."""
    nodes = a_cluster(1)
    liveness = a_detector(nodes, 5000.0)
    liveness.opened("n0", 5000.0)
    liveness.heard("n0", 5600.0)
    liveness.opened("n0", 5600.0)
    assert not liveness.judge(nodes, 5614.0)


def test_grace_after_start_and_gap() -> None:
    """Six periods, counted anew from a gap."""
    nodes = a_cluster(1)
    liveness = Liveness(START_S, PERIOD_S)
    assert liveness.judge(nodes, START_S + 29.9) == []
    liveness.clock_gap(START_S + 29.9)
    assert liveness.judge(nodes, START_S + 59.8) == []
    assert [n.id for n in liveness.judge(nodes, START_S + 60)] == ["n0"]


@pytest.mark.parametrize(
    ("n_nodes", "n_silent", "is_mass"),
    [(1, 1, False), (2, 1, False), (2, 2, True), (3, 1, False), (3, 2, True), (4, 2, False), (4, 3, True)],
)
def test_more_than_half_at_once_is_a_mass_failure(n_nodes: int, n_silent: int, is_mass: bool) -> None:
    """Exactly half is not, and one node alone is not."""
    nodes = a_cluster(n_nodes)
    liveness = a_detector(nodes, 5000.0)
    for number in range(n_silent, n_nodes):
        liveness.heard(f"n{number}", 5015.0)
    failed = liveness.judge(nodes, 5015.0)
    assert len(failed) == n_silent
    assert bool(liveness.mass_failure(nodes, 5015.0)) == is_mass
    message = MASS_HEARTBEAT_FAILURE if is_mass else HEARTBEAT_FAILURE
    assert {liveness.down_message(node.id, 5015.0) for node in failed} == {message}


def test_nodes_that_will_fail_within_a_period_count_already() -> None:
    """The first of three to expire does not look like a failure of its own."""
    nodes = a_cluster(4)
    liveness = a_detector(nodes, 5000.0)
    liveness.heard("n1", 5002.0)
    liveness.heard("n2", 5004.9)
    liveness.heard("n3", 5014.0)
    assert [n.id for n in liveness.judge(nodes, 5015.0)] == ["n0"]
    assert liveness.mass_failure(nodes, 5015.0).startswith("3 of 4 nodes")


def test_suspicion_that_proves_false_ends_it() -> None:
    """Two were late, not dead: what is left is one failure."""
    nodes = a_cluster(4)
    liveness = a_detector(nodes, 5000.0)
    liveness.heard("n3", 5014.0)
    for name in ("n1", "n2"):
        liveness.heard(name, 5005.0)
    liveness.judge(nodes, 5015.0)
    assert liveness.mass_failure(nodes, 5015.0)
    nodes["n0"] = a_node("n0", state=NodeState.DOWN)
    for name in ("n1", "n2"):
        liveness.heard(name, 5016.0)
    assert liveness.mass_failure(nodes, 5016.0) == ""
    liveness.judge(nodes, 5016.0)
    assert liveness.down_message("n0", 5016.0) == HEARTBEAT_FAILURE


def test_drained_nodes_do_not_count() -> None:
    """An operator switches off racks that were drained before."""
    nodes = a_cluster(5, Availability.DRAIN) | {"busy": a_node("busy")}
    liveness = a_detector(nodes, 5000.0)
    liveness.heard("busy", 5015.0)
    assert len(liveness.judge(nodes, 5015.0)) == 5
    assert liveness.mass_failure(nodes, 5015.0) == ""


def test_last_contact_of_a_stranger_is_the_start() -> None:
    """It may have had its lease renewed until then."""
    liveness = Liveness(START_S, PERIOD_S)
    assert liveness.last_contact_s("n0") == START_S
    liveness.heard("n0", START_S + 5)
    assert liveness.last_contact_s("n0") == START_S + 5
    liveness.forget("n0")
    assert liveness.last_contact_s("n0") == START_S
