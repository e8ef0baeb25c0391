"""Counts by service: columns come and go, the numbers stay."""

from __future__ import annotations

import random
from collections import Counter

from beeyard.core.service_tasks import COLUMNS_MIN, ServiceTasks

N_ROWS = 50


def assert_counts(tasks: ServiceTasks, expected: dict[str, Counter[int]]) -> None:
    for service_id, counts in expected.items():
        column = tasks.column(service_id, N_ROWS)
        assert [counts[row] for row in range(N_ROWS)] == column[:N_ROWS].tolist()
        assert tasks.n_rows(service_id) == len(+counts)


def change(tasks: ServiceTasks, expected: dict[str, Counter[int]], draw: random.Random, n: int) -> None:
    """Random tasks come and go, noted by the kernel or one by one."""
    for _ in range(n):
        service_id, row = draw.choice(list(expected)), draw.randrange(N_ROWS)
        if draw.random() < 0.4 and expected[service_id][row]:
            tasks.remove(service_id, row)
            expected[service_id][row] -= 1
        elif draw.random() < 0.5:
            tasks.add(service_id, row)
            expected[service_id][row] += 1
        else:
            tasks.column(service_id, N_ROWS)[row] += 1
            tasks.note(service_id, [row])
            expected[service_id][row] += 1


def test_columns_that_are_used_again_for_another_service_hold_its_counts_alone() -> None:
    """Far more services than columns are kept."""
    tasks, draw = ServiceTasks(columns_bytes_max=0), random.Random(1)
    expected = {f"s{number}": Counter[int]() for number in range(3 * COLUMNS_MIN)}
    for _ in range(4):
        change(tasks, expected, draw, 400)
        assert_counts(tasks, expected)


def test_a_column_that_is_too_short_is_made_again() -> None:
    tasks = ServiceTasks()
    tasks.column("s", 2)
    tasks.add("s", 7)
    assert tasks.column("s", 10).tolist() == [0] * 7 + [1, 0, 0]


def test_copies_count_for_themselves() -> None:
    """A copy, and a copy of it, begin with the counts of the first and leave them as they are."""
    first, draw = ServiceTasks(columns_bytes_max=0), random.Random(2)
    of_first = {f"s{number}": Counter[int]() for number in range(COLUMNS_MIN + 5)}
    change(first, of_first, draw, 300)
    second = first.copy()
    of_second = {service_id: counts.copy() for service_id, counts in of_first.items()}
    change(second, of_second, draw, 300)
    third = second.copy()
    of_third = {service_id: counts.copy() for service_id, counts in of_second.items()}
    change(third, of_third, draw, 300)
    for tasks, expected in ((third, of_third), (second, of_second), (first, of_first)):
        assert_counts(tasks, expected)
