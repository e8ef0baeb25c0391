"""When a waiting group is looked at again, and when it tells another reason."""

from __future__ import annotations

import math

import pytest

from beeyard.core.placement import Demand
from beeyard.manager.blocked import RETELL_S, Blocked
from tests.support.builders import a_task

WEB, DB = ("web", 1), ("db", 1)
DEMAND = Demand.of(a_task())


def test_group_rests_until_something_changes() -> None:
    """A blocked group is left alone, and looked at once after a change; others were never blocked."""
    blocked = Blocked()
    assert not blocked
    assert blocked.block(WEB, DEMAND, "no room", 0.0)
    assert blocked
    assert (blocked.rests(WEB, 1e6), blocked.rests(DB, 1e6)) == (True, False)
    assert (blocked.demand(WEB), blocked.demand(DB)) == (DEMAND.of_any_service(), None)
    blocked.something_changed()
    assert not blocked.rests(WEB, 1.0)
    assert blocked.still(WEB, "no room", 1.0)
    assert blocked.rests(WEB, 1.0)
    assert blocked.next_due_s() == math.inf


@pytest.mark.parametrize(
    ("reason", "after_s", "stays", "due_s"),
    [
        ("no room", 1.0, True, math.inf),
        ("no room", 100.0, True, math.inf),
        ("less room", 1.0, True, RETELL_S),
        ("less room", RETELL_S, False, math.inf),
        ("", 1.0, False, math.inf),  # there is a place
    ],
)
def test_another_reason_is_not_told_at_once(reason: str, after_s: float, stays: bool, due_s: float) -> None:
    """A group told its reason a moment ago is left with it, and looked at when it may tell another."""
    blocked = Blocked()
    blocked.block(WEB, DEMAND, "no room", 0.0)
    blocked.something_changed()
    assert blocked.still(WEB, reason, after_s) is stays
    assert blocked.rests(WEB, after_s) is stays
    assert blocked.next_due_s() == due_s
    assert not stays or not blocked.rests(WEB, due_s) or due_s == math.inf


def test_reason_that_came_back_is_not_due() -> None:
    """A reason that changed and changed back needs no telling."""
    blocked = Blocked()
    blocked.block(WEB, DEMAND, "no room", 0.0)
    assert blocked.still(WEB, "less room", 1.0)
    assert blocked.still(WEB, "no room", 2.0)
    assert blocked.next_due_s() == math.inf


def test_partly_placed_group_tells_only_the_untold() -> None:
    """When some tasks were placed and the rest wait for another reason, the pace of telling holds too."""
    blocked = Blocked()
    assert blocked.block(WEB, DEMAND, "no room", 0.0)
    assert not blocked.block(WEB, DEMAND, "less room", 1.0)
    assert blocked.next_due_s() == RETELL_S
    assert blocked.block(WEB, DEMAND, "less room", RETELL_S)
    blocked.forget(WEB)
    assert blocked.block(WEB, DEMAND, "no room", RETELL_S + 1.0)


def test_forgotten_groups_are_looked_at() -> None:
    """Forgetting one or all makes them unknown, and is idempotent."""
    blocked = Blocked()
    blocked.block(WEB, DEMAND, "no room", 0.0)
    blocked.block(DB, DEMAND, "no room", 0.0)
    blocked.forget(WEB)
    blocked.forget(WEB)
    assert (blocked.rests(WEB, 0.0), blocked.rests(DB, 0.0)) == (False, True)
    blocked.forget_all()
    assert not blocked
