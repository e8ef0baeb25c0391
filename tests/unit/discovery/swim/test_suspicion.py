"""How long a suspicion lasts: tables against the peer's own figures."""

import pytest

from beeyard.discovery.gossip.swim import LAN, LOCAL, WAN, Config
from beeyard.discovery.gossip.swim.suspicion import Suspicion, n_confirmations, suspicion_min_s, suspicion_s


@pytest.mark.parametrize(
    ("n", "k", "expected_s"),
    # Source: memberlist suspicion_test.go, TestSuspicion_remainingSuspicionTime, with what has elapsed added.
    [(0, 3, 30.0), (1, 3, 16.0), (2, 3, 7.81), (3, 3, 2.0), (4, 3, 2.0), (5, 3, 2.0), (0, 0, 2.0)],
)
def test_confirmations_take_time_away_the_first_most(n: int, k: int, expected_s: float) -> None:
    assert suspicion_s(n, k, 2.0, 30.0) == pytest.approx(expected_s, abs=0.001)


@pytest.mark.parametrize(
    ("config", "n_known", "expected_s"),
    [
        (LAN, 0, 4.0),
        (LAN, 10, 4.0),
        (LAN, 30, 5.908),  # 4 · 1.477, cut to thousandths
        (LAN, 100, 8.0),
        (LAN, 1000, 12.0),
        (WAN, 10, 30.0),
        (LOCAL, 10, 3.0),
    ],
)
def test_the_shortest_time_grows_with_the_logarithm_of_the_cluster(
    config: Config, n_known: int, expected_s: float
) -> None:
    assert suspicion_min_s(config, n_known) == pytest.approx(expected_s)


@pytest.mark.parametrize(("n_known", "expected"), [(1, 0), (2, 0), (3, 0), (4, 2), (100, 2)])
def test_small_clusters_need_no_confirmations(n_known: int, expected: int) -> None:
    assert n_confirmations(LAN, n_known) == expected


def test_an_accuser_counts_once_and_only_as_many_as_are_needed() -> None:
    suspicion = Suspicion(LAN, 50.0, 10, "a")
    assert suspicion.due_s == 50.0 + 24.0
    assert [suspicion.confirm(name) for name in "aabbcd"] == [False, False, True, False, True, False]
    assert suspicion.due_s == 50.0 + 4.0


def test_a_refused_connection_is_worth_all_confirmations_and_half_the_time() -> None:
    suspicion = Suspicion(LAN, 50.0, 10, "a")
    suspicion.refused = True
    assert suspicion.due_s == 52.0
