"""Coordinates: the numbers of Serf's own client, and what it must not be thrown off by."""

import math
import random

import pytest

from beeyard.core.membership import ERROR_MAX, raw_distance_s
from beeyard.discovery.gossip.message import Coordinate
from beeyard.discovery.gossip.serf.vivaldi import (
    HEIGHT_MIN_S,
    ORIGIN,
    Vivaldi,
    distance_s,
)


def at(*vec: float, error: float = 1.5, adjustment: float = 0.0, height: float = 1e-5) -> Coordinate:
    return Coordinate(vec=(*vec, *[0.0] * (8 - len(vec))), error=error, adjustment=adjustment, height=height)


def a_client() -> Vivaldi:
    return Vivaldi(random.Random(1))


@pytest.mark.parametrize(
    ("one", "other", "expected_s"),
    [
        # Source: coordinate_test.go of Serf, TestCoordinate_DistanceTo: the same places and sums.
        (at(-0.5, 1.3, 2.4, height=0.0), at(1.2, -2.3, 3.4, height=0.0), 4.104875150),
        (at(-0.5, 1.3, 2.4, height=0.0, adjustment=-1.0e9), at(1.2, -2.3, 3.4, height=0.0), 4.104875150),
        (at(-0.5, 1.3, 2.4, height=0.7), at(1.2, -2.3, 3.4, height=0.1), 4.904875150),
        (at(-0.5, 1.3, 2.4, height=0.7, adjustment=0.1), at(1.2, -2.3, 3.4, height=0.1, adjustment=0.2), 5.204875150),
        (ORIGIN, ORIGIN, 2e-5),
    ],
)
def test_distance_is_that_of_serf_in_whole_nanoseconds(one: Coordinate, other: Coordinate, expected_s: float) -> None:
    """Space, both heights, and both adjustments unless that would be negative; what is below a nanosecond is cut off."""
    assert distance_s(one, other) == distance_s(other, one) == pytest.approx(expected_s, abs=1e-15)


def test_first_update_moves_by_the_rule_to_the_last_digit() -> None:
    """Error, place, height, adjustment and gravity after one round trip, written out."""
    client, other, rtt_s = a_client(), at(0.1), 0.2
    assert client.update("b", other, rtt_s)

    distance = 0.10002  # 0.1 and two heights
    weight = 1.5 / 3.0
    error = 0.25 * weight * (abs(distance - rtt_s) / rtt_s) + 1.5 * (1.0 - 0.25 * weight)
    force = 0.25 * weight * (rtt_s - distance)
    x, height = -force, 1e-5 + force * (1e-5 + 1e-5) / 0.1
    adjustment = (rtt_s - ((0.1 + force) + height + 1e-5)) / 40.0
    pull = (force + height + 1e-5 + adjustment) / 150.0
    assert client.here.error == pytest.approx(error, abs=1e-16)
    assert client.here.adjustment == pytest.approx(adjustment, abs=1e-16)
    assert client.here.vec[0] == pytest.approx(x + pull**2, abs=1e-13)
    assert client.here.height == pytest.approx(max(HEIGHT_MIN_S, height - pull**2 * (height + 1e-5) / force), abs=1e-13)
    assert client.here.vec[1:] == (0.0,) * 7


def test_median_of_three_latencies_hides_one_slow_packet() -> None:
    """A single late answer does not move the place."""
    steady, disturbed = a_client(), a_client()
    for client, rtts_s in ((steady, (0.01, 0.01, 0.01)), (disturbed, (0.01, 0.01, 5.0))):
        for rtt_s in rtts_s:
            client.update("b", at(0.005), rtt_s)
    assert disturbed.here == steady.here


def test_forgotten_member_starts_with_new_latencies() -> None:
    """Samples of another life of a name do not count, and take no memory."""
    client = a_client()
    client.update("b", at(0.005), 0.001)
    client.update("b", at(0.005), 0.001)
    client.forget("b")
    client.update("b", at(0.005), 3.0)
    assert client.here.vec[0] < -0.3


def test_adjustment_is_a_fortieth_of_twenty_misjudgements() -> None:
    """The window holds twenty samples and the newest push the oldest out."""
    client = a_client()
    samples: list[float] = []
    for number in range(30):
        client._adjust(at(0.01), 0.02 + number / 1000)
        samples.append(0.02 + number / 1000 - raw_distance_s(client.here, at(0.01)))
        assert client.here.adjustment == pytest.approx(sum(samples[-20:]) / 40.0, abs=1e-15)


@pytest.mark.parametrize(
    ("other", "rtt_s"),
    [
        (at(0.1), -0.001),
        (at(0.1), 10.001),
        (at(0.1), math.nan),
        (at(math.nan), 0.1),
        (at(math.inf), 0.1),
        (at(1e308, 1e308), 0.1),
        (at(1e6), 0.1),
        (at(0.1, error=-1.0), 0.1),
        (at(0.1, height=-1.0), 0.1),
        (at(0.1, adjustment=math.nan), 0.1),
        (Coordinate(vec=(0.0,) * 3), 0.1),
    ],
)
def test_implausible_update_is_refused_and_moves_nothing(other: Coordinate, rtt_s: float) -> None:
    """A peer cannot throw a member across space, nor make its place not a number."""
    client = a_client()
    assert not client.update("b", other, rtt_s)
    assert client.here == ORIGIN


def test_place_that_is_no_number_any_more_is_left_for_the_origin() -> None:
    """Whatever happens to the sums, the coordinate that is told is finite."""
    client = a_client()
    client.here = at(0.1, error=math.inf)
    client.update("b", at(0.2), 0.1)
    assert client.here == ORIGIN
    assert client.n_resets == 1


def test_members_on_one_spot_are_pushed_apart_at_random() -> None:
    """A cluster starts at one place; the direction comes from the given randomness."""
    one, other = a_client(), a_client()
    one.update("b", ORIGIN, 0.05)
    other.update("b", ORIGIN, 0.05)
    assert one.here == other.here != ORIGIN


def test_twelve_members_on_a_line_learn_their_distances() -> None:
    """After some hundred round trips each the estimate is right within a few per cent."""
    rng = random.Random(2)
    places = [number * 0.01 for number in range(12)]
    clients = [Vivaldi(random.Random(number)) for number in range(12)]
    for _ in range(4000):
        i, j = rng.sample(range(12), 2)
        clients[i].update(str(j), clients[j].here, abs(places[i] - places[j]) + 0.002)
    errors = [
        abs(distance_s(clients[i].here, clients[j].here) - (abs(places[i] - places[j]) + 0.002))
        for i in range(12)
        for j in range(i)
    ]
    assert sum(errors) / len(errors) < 0.004
    assert all(client.here.error < ERROR_MAX / 3 for client in clients)
