"""Failure memory: five failures within five minutes make a node the last resort."""

from __future__ import annotations

from beeyard.core.failures import FAILURES_KEPT, FAILURES_MIN, MONITOR_S, FailureMemory


def noted(memory: FailureMemory, n: int, node_id: str, at_s: float = 0.0) -> None:
    for _ in range(n):
        memory.note("web", 1, node_id, at_s)


def test_fewer_than_five_failures_are_chance() -> None:
    memory = FailureMemory()
    noted(memory, FAILURES_MIN - 1, "n1")
    assert memory.faulty("web", 1, 0.0) == {}
    noted(memory, 1, "n1")
    noted(memory, 7, "n2")
    assert memory.faulty("web", 1, 0.0) == {"n1": 5, "n2": 7}


def test_other_services_and_versions_are_not_blamed() -> None:
    memory = FailureMemory()
    noted(memory, 9, "n1")
    assert memory.faulty("web", 2, 0.0) == {}
    assert memory.faulty("db", 1, 0.0) == {}


def test_failures_are_forgotten_one_by_one_after_five_minutes() -> None:
    memory = FailureMemory()
    for at_s in range(6):
        noted(memory, 1, "n1", at_s)
    assert memory.faulty("web", 1, MONITOR_S - 1) == {"n1": 6}
    assert memory.faulty("web", 1, MONITOR_S) == {"n1": 5}
    assert memory.faulty("web", 1, MONITOR_S + 1) == {}


def test_what_is_kept_stays_small() -> None:
    memory = FailureMemory()
    noted(memory, FAILURES_KEPT + 500, "n1")
    assert memory.faulty("web", 1, 1.0) == {"n1": FAILURES_KEPT}
    memory.note("db", 1, "n2", MONITOR_S + 1)
    assert list(memory._failures) == [("db", 1)]
    memory.note("db", 1, "n3", 3 * MONITOR_S)
    assert memory._failures[("db", 1)].keys() == {"n3"}
    assert FailureMemory().faulty("web", 1, 0.0) == {}
