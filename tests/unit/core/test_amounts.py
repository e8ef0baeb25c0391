"""Amounts are told in units that people read, and never so that two of them look alike."""

from __future__ import annotations

import pytest

from beeyard.core.amounts import cpu_text, duration_text, memory_text

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (600 * MIB, "600 MiB"),
        (GIB - 1, "1023.99 MiB"),
        (GIB, "1 GiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (5000 << 50, "5000 PiB"),
    ],
)
def test_memory_is_told_in_the_largest_unit_of_which_there_is_one(n_bytes: int, text: str) -> None:
    assert memory_text(n_bytes) == text


def test_memory_that_is_asked_for_is_more_than_what_is_there_in_words_too() -> None:
    assert (memory_text(GIB + 1, up=True), memory_text(GIB)) == ("1.01 GiB", "1 GiB")
    assert memory_text(GIB, up=True) == "1 GiB"
    assert (memory_text(GIB, up=True), memory_text(GIB - 1)) == ("1 GiB", "1023.99 MiB")


@pytest.mark.parametrize(
    ("cpu_nano", "text"),
    [(0, "0"), (1, "0.000000001"), (500_000_000, "0.5"), (16 * 10**9, "16"), (10**10 + 1, "10.000000001")],
)
def test_cpu_is_told_exactly(cpu_nano: int, text: str) -> None:
    assert cpu_text(cpu_nano) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0 s"),
        (0.05, "0.05 s"),
        (300.0, "300 s"),
        (86400, "86400 s"),
        (3650 * 86400.0, "3650 days"),
        (200001, "200001 s"),
    ],
)
def test_durations_have_no_exponents(duration_s: float, text: str) -> None:
    assert duration_text(duration_s) == text
