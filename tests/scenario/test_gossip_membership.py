"""What an agent reports of its member: when a coordinate is worth telling, and which tags an operator may give."""

from __future__ import annotations

import math

import pytest
import trio

from beeyard.core.errors import InvalidSpec
from beeyard.core.membership import Coordinate
from beeyard.discovery.gossip.membership import TELL_AGAIN_S, MembershipReport, is_news
from beeyard.discovery.gossip.metrics import exposition, unnamed
from beeyard.discovery.gossip.serf.rtt_histogram import BOUNDS_S, RttHistogram
from beeyard.discovery.gossip.serf.tags import meta_of
from beeyard.discovery.settings import DiscoverySettings, own_tags
from tests.support.node_world import node_world


def at(ms: float, *, error: float = 0.3, height_ms: float = 0.0) -> Coordinate:
    return Coordinate(vec=(ms / 1e3, *(0.0,) * 7), error=error, height=height_ms / 1e3)


@pytest.mark.parametrize(
    ("told", "here", "expected"),
    [
        (None, at(5), True),
        (None, at(5, error=1.0), False),  # it has hardly measured anything
        (at(5), at(5.9), False),
        (at(5), at(6.1), True),
        (at(0), at(0, height_ms=1.2), True),
        (at(100), at(105), False),  # long ways waver more
        (at(100), at(112), True),
        (at(5), at(50, error=1.2), False),
    ],
)
def test_a_coordinate_is_told_when_it_means_something(
    told: Coordinate | None, here: Coordinate, expected: bool
) -> None:
    assert is_news(told, here) is expected


async def test_a_member_at_rest_is_described_once(autojump_clock) -> None:
    """Its coordinate moves with each probe; what is reported of it does not, for minutes."""
    async with node_world() as world:
        nodes = await world.start_all(3, tags={"dc": "ams"})
        report, seen = MembershipReport(nodes[1]), []
        for _ in range(600):
            await trio.sleep(0.5)
            if (reported := report()) not in seen:
                seen.append(reported)
        assert [(m.name, m.tags, m.coordinate is None) for m in seen[:2]] == [
            ("n2", {"dc": "ams"}, True),
            ("n2", {"dc": "ams"}, False),
        ]
        assert len(seen) <= 2 + 300 / TELL_AGAIN_S
        nodes[1].set_tags({"dc": "fra"})
        assert report().tags == {"dc": "fra"}


def test_tags_of_an_operator_are_told_from_the_daemons_own() -> None:
    assert own_tags(DiscoverySettings(tags=("dc=ams", "note=a=b", "empty="))) == {
        "dc": "ams",
        "note": "a=b",
        "empty": "",
    }
    for tag, sentence in (("dc", "is not KEY=VALUE"), ("=x", "is not KEY=VALUE"), ("role=x", "are set by the daemons")):
        with pytest.raises(InvalidSpec, match=sentence):
            own_tags(DiscoverySettings(tags=(tag,)))


def test_tags_of_an_operator_leave_room_for_what_the_daemons_learn_later() -> None:
    """A node that has joined tells its id: it must not find then that there is no room for it."""
    texts = ("a=" + "x" * 208, "b=" + "y" * 100)
    tags = own_tags(DiscoverySettings(tags=texts))
    with pytest.raises(
        InvalidSpec, match=r"discovery.tags: they take 320 bytes at most together as they are sent, not 321"
    ):
        own_tags(DiscoverySettings(tags=(*texts[:1], texts[1] + "y")))
    manager = f"{'m' * 63}.example:65535"
    for more in ({"role": "agent", "node": "n" * 25}, {"role": "manager", "manager": manager}):
        assert len(meta_of({**tags, "cluster": "c" * 50, **more})) <= 512


def test_round_trip_times_are_counted_by_their_bounds() -> None:
    histogram = RttHistogram()
    for rtt_s in (0.0, 0.0001, 0.0002, 0.003, 7.0):
        histogram.observe(rtt_s)
    figures = histogram.figures()
    assert [figures[f"probe_rtt_s_le_{bound}"] for bound in (*BOUNDS_S[:2], 0.005, 0.5, "+Inf")] == [2, 3, 4, 4, 5]
    assert (figures["probe_rtt_s_count"], figures["probe_rtt_s_sum"]) == (5, pytest.approx(7.0033))


def test_metrics_escape_what_they_do_not_know() -> None:
    """Labels that break a line, numbers that are none, and figures that have no name yet."""
    text = exposition({"health_score": 2.0, 'dropped_a"b': 3.0, "latest_wake_s": math.inf}, 'n"1\n')
    assert 'beeyard_gossip_health_score{member="n\\"1\\n"} 2\n' in text
    assert 'beeyard_gossip_dropped_total{member="n\\"1\\n",reason="a\\"b"} 3\n' in text
    assert 'beeyard_gossip_timer_lateness_max_seconds{member="n\\"1\\n"} +Inf\n' in text
    assert unnamed({"news": 1.0, "health_score": 0.0}) == ["news"]
