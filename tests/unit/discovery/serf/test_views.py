"""A member that gossip has passed by notices it, and nobody else does anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest

from beeyard.discovery.gossip.message import Ack
from beeyard.discovery.gossip.serf.event import UserEventCame
from beeyard.discovery.gossip.serf.vivaldi import ORIGIN
from beeyard.discovery.gossip.swim import LAN
from beeyard.discovery.gossip.wire import codec
from beeyard.discovery.gossip.wire.serf_codec import decode_view, encode_coordinate
from tests.support.serf_world import SerfWorld

NO_CLOCK = msgspec.structs.replace(LAN, push_pull_interval_s=1e6)  # nothing is mended by chance


def mends(world: SerfWorld) -> dict[str, float]:
    """Who asked for exchanges, and how often."""
    counts = {name: serf.figures()["swim_mends"] for name, serf in world.serfs.items()}
    return {name: count for name, count in counts.items() if count}


def views(world: SerfWorld) -> set[int | None]:
    return {decode_view(serf._bridge.ack_payload()) for serf in world.serfs.values()}


def someone_joins(world: SerfWorld) -> None:
    world.add("new", swim=NO_CLOCK)
    world.join("new", "m00")


def someone_changes_tags(world: SerfWorld) -> None:
    world.serfs["m01"].set_tags(world.now_s, {"rack": "r2"})
    world.act("m01")


def someone_tells_something(world: SerfWorld) -> None:
    world.serfs["m01"].send_event(world.now_s, "deploy")
    world.act("m01")


def someone_leaves(world: SerfWorld) -> None:
    world.serfs["m01"].leave(world.now_s)
    world.act("m01")


@pytest.mark.parametrize("happens", [someone_joins, someone_changes_tags, someone_tells_something, someone_leaves])
@pytest.mark.parametrize("seed", range(2))
def test_who_was_missed_by_news_hears_of_it_within_seconds(happens: Callable[[SerfWorld], None], seed: int) -> None:
    """Among 20, news takes 1.6 s at most, and twice that without anybody who agrees is the sign."""
    world = SerfWorld(seed)
    names = world.cluster(20, swim=NO_CLOCK)
    world.deaf = frozenset(["m13"])
    happens(world)
    world.run(2.5)
    if happens is someone_leaves:
        world.run(1.0)
        world.crash("m01")
    assert len(views(world)) == 2
    world.deaf = frozenset()
    world.run(7.0)
    assert len(views(world)) == 1
    assert set(mends(world)) <= {"m13"}
    if happens is someone_tells_something:
        assert [len(world.told(name, UserEventCame)) for name in names] == [1] * 20


def test_members_of_one_mind_exchange_by_the_clock_alone() -> None:
    """Whatever happens in a cluster that hears of it."""
    world = SerfWorld(5)
    world.cluster(20, swim=NO_CLOCK)
    for happens in (someone_joins, someone_changes_tags, someone_tells_something, someone_leaves):
        happens(world)
        world.run(6.0)
    world.crash("m01")
    world.crash("m02")
    world.run(60.0)
    assert len(views(world)) == 1
    assert mends(world) == {}


def disagree(world: SerfWorld) -> Iterator[int]:
    """Have m01 tell another view with each answer; the numbers that it tells, of which the next one is not told any more."""
    views_told = itertools.count()
    world.serfs["m01"]._bridge.ack_payload = lambda: encode_coordinate(ORIGIN, view=next(views_told))  # type: ignore[method-assign]
    return views_told


def test_a_member_that_never_agrees_costs_exchanges_as_rare_as_those_by_the_clock() -> None:
    """Be it forged or a defect: with nobody else to agree with, one each 30 s."""
    world = SerfWorld(3)
    world.cluster(2, swim=LAN)
    views_told = disagree(world)
    world.run(305.0)
    assert next(views_told) > 100
    assert mends(world) == {"m00": pytest.approx(10, abs=1)}


def test_a_member_that_never_agrees_among_others_is_no_reason_to_exchange() -> None:
    """Whoever hears of others what it believes itself is right."""
    world = SerfWorld(4)
    world.cluster(10, swim=NO_CLOCK)
    views_told = disagree(world)
    world.run(120.0)
    assert next(views_told) > 20
    assert mends(world) == {}


def test_what_is_no_view_is_dropped() -> None:
    """With the coordinate that it came with."""
    world = SerfWorld(2)
    world.cluster(2, swim=NO_CLOCK)
    world.serfs["m01"]._bridge.ack_payload = lambda: encode_coordinate(ORIGIN, view=-1)  # type: ignore[method-assign]
    world.run(30.0)
    assert mends(world) == {}
    assert world.serfs["m00"].figures()["dropped_coordinate"] > 10


def test_a_view_travels_with_the_coordinate_and_need_not() -> None:
    """Serf's agents say nothing of theirs, and are never a reason to exchange."""
    assert decode_view(encode_coordinate(ORIGIN, short=True, view=0xFFFF_FFFF)) == 0xFFFF_FFFF
    assert decode_view(encode_coordinate(ORIGIN)) is None
    assert len(encode_coordinate(ORIGIN, view=1 << 31)) == len(encode_coordinate(ORIGIN)) + 10
    world = SerfWorld(1)
    world.cluster(3, swim=NO_CLOCK)
    silent = world.serfs["m01"]._bridge
    silent.ack_payload = lambda: encode_coordinate(ORIGIN)  # type: ignore[method-assign]
    world.deaf = frozenset(["m00"])
    someone_tells_something(world)
    world.crash("m02")
    world.run(4.0)
    assert mends(world) == {}
    ack = codec.decode(codec.encode(Ack(seq_no=1, payload=silent.ack_payload())))
    assert isinstance(ack, Ack)
    assert decode_view(ack.payload) is None
