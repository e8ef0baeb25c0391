"""The snapshot file: what a life leaves to the next, and what garbage does to it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.serf.event import Member, MemberFailed, MemberJoin, MemberLeave, MemberReap
from beeyard.discovery.gossip.serf.snapshot import is_one_line, replay, whole
from beeyard.discovery.gossip.serf.snapshot_log import SnapshotLog

A, B = Address("10.0.0.1", 7946), Address("2001:db8::2", 7000)


def a_member(name: str, address: Address = A) -> Member:
    return Member(name=name, address=address)


@pytest.mark.parametrize(
    ("text", "alive", "clocks"),
    [
        ("", {}, (0, 0, 0)),
        ("alive: a 10.0.0.1:7946\nalive: b [2001:db8::2]:7000\n", {"a": A, "b": B}, (0, 0, 0)),
        ("alive: with some spaces 10.0.0.1:7946\n", {"with some spaces": A}, (0, 0, 0)),
        ("alive: a 10.0.0.1:7946\nnot-alive: a\n", {}, (0, 0, 0)),
        ("clock: 5\nevent-clock: 6\nquery-clock: 7\nclock: 9\n", {}, (9, 6, 7)),
        ("alive: a 10.0.0.1:7946\nclock: 5\nleave\n", {}, (0, 0, 0)),
        ("alive: a 10.0.0.1:7946\nleave\nalive: a 10.0.0.1:7946\n", {"a": A}, (0, 0, 0)),
        ("# comment\ncoordinate: {}\nalive: a 10.0.0.1:7946\nalive: torn 10.0.", {"a": A}, (0, 0, 0)),
        ("alive: a\nalive:  :7946\nalive: b 1.2.3.4:x\nalive: c 1.2.3.4:65536\n", {}, (0, 0, 0)),
        (f"clock: {2**64}\nclock: -4\nclock: x\nclock: ٣\nevent-clock: {'9' * 5000}\n", {}, (0, 0, 0)),
    ],
)
def test_replay_tells_who_was_alive_and_the_clocks(
    text: str, alive: dict[str, Address], clocks: tuple[int, int, int]
) -> None:
    """The last word counts, leaving forgets all, and what cannot be read is passed over."""
    state = replay(text)
    assert state.alive == alive
    assert (state.clock, state.event_clock, state.query_clock) == clocks


def test_replay_says_that_the_life_ended_by_leaving() -> None:
    state = replay("alive: a 10.0.0.1:7946\nclock: 5\nleave\n")
    assert (state.alive, state.clock, state.left) == ({}, 0, True)


@settings(deadline=None)
@given(st.text())
def test_replay_reads_whatever_is_in_the_file(text: str) -> None:
    """A damaged file costs what it said, never the start."""
    replay(text)


def test_log_replays_to_what_happened_and_keeps_failed_members() -> None:
    """Who failed may be the only one that comes back after a power cut; who left is gone."""
    log = SnapshotLog("me", is_kept=True)
    for name in ("me", "a", "b", "c", "d"):
        log.note(MemberJoin(member=a_member(name)))
    log.note(MemberFailed(member=a_member("a")))
    log.note(MemberLeave(member=a_member("b")))
    log.note(MemberReap(member=a_member("c")))
    log.note_clocks(1.0, (4, 0, 9))
    log.note_clocks(1.1, (5, 0, 9))
    log.note_clocks(1.6, (6, 0, 9))
    state = replay("".join(log.lines))
    assert state.alive == {"a": A, "d": A}
    assert (state.clock, state.event_clock, state.query_clock) == (6, 0, 9)
    assert "".join(log.lines).count("clock: ") == 3
    log.note_leave()
    assert replay("".join(log.lines)).alive == {}


def test_log_that_nobody_keeps_stays_empty() -> None:
    """A driver without a file does not have to empty it."""
    log = SnapshotLog("me", is_kept=False)
    log.note(MemberJoin(member=a_member("a")))
    log.note_clocks(1.0, (4, 0, 9))
    log.note_leave()
    assert log.lines == []


@pytest.mark.parametrize("name", ["x\nleave", "x\r", "x\u2028clock: 9", "x\n"])
def test_name_with_a_line_end_is_not_written(name: str) -> None:
    """A peer's name must not become a line of its own."""
    assert not is_one_line(name)
    log = SnapshotLog("me", is_kept=True)
    log.note(MemberJoin(member=a_member(name)))
    assert log.lines == []


def test_whole_snapshot_replays_to_the_same() -> None:
    """Compaction loses nothing."""
    state = replay(whole([("a", A), ("b c", B)], 3, 4, 5))
    assert (state.alive, state.clock, state.event_clock, state.query_clock) == ({"a": A, "b c": B}, 3, 4, 5)
