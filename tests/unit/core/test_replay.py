"""Decisions are written down, and come out the same when they are made again."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from beeyard.core import decision_log as log
from beeyard.core.errors import InvalidSpec
from beeyard.core.model import HostPort
from beeyard.core.placement import Demand, PlacementIndex
from beeyard.core.recorded_index import RecordedIndex
from beeyard.core.replay import replay
from tests.support.builders import CPU, GIB, a_node
from tests.support.decision_history import History, recorded

ROOT = Path(__file__).parents[3]
LOG = ROOT / "tests/data/decisions.gz"


def test_a_history_with_everything_in_it_is_decided_the_same_again() -> None:
    data = recorded(500)
    kinds = {type(entry) for entry in log.entries(data)}
    assert kinds == set(get_args(log.AnyEntry)) - {log.KindNames}  # of which an empty index has none
    outcome = replay(data)
    assert (outcome.difference, outcome.n_decisions >= 500, outcome.n_tasks > 1000) == ("", True, True)


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_begins_in_the_middle_is_whole(seed: int) -> None:
    """What is in the index comes first, so that the decisions after it come out the same."""
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    history = History(index, seed)
    for _ in range(150 * (seed % 3 + 1)):
        history.step()
    written.clear()
    index.begin_log()
    assert len(b"".join(written)) > 10_000
    before = history.n_decisions
    for _ in range(150):
        history.step()
    outcome = replay(b"".join(written))
    assert outcome.difference == ""
    assert outcome.n_decisions == history.n_decisions - before > 50


def test_a_batch_that_is_packed_and_improved_is_decided_the_same_again() -> None:
    """Improving ends after so many rounds or steps, never after a time: a slow machine tries as much as a fast one."""
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    for number in range(40):
        index.set_node(a_node(f"n{number}", cpu_nano=10 * CPU, memory_bytes=10 * GIB))
    sizes = [(3, 2), (2, 4), (5, 3)]
    groups = [
        (Demand(f"s{cpu}", cpu * CPU, gib * GIB, strategy="pack"), [f"s{cpu}.{number}" for number in range(n)])
        for n, (cpu, gib) in zip((100, 100, 60), sizes, strict=True)
    ]
    decisions, report = index.place_many(groups, rounds=500)
    assert report is not None
    assert report.n_tasks == sum(len(decision.placed) for decision in decisions) > 80
    index.drop("s5.0")
    index.place(groups[0][0], ["one more"])
    outcome = replay(b"".join(written))
    assert (outcome.difference, outcome.n_decisions, outcome.n_tasks) == ("", 4, report.n_tasks + 1)


def test_recording_changes_no_decision() -> None:
    plain, taped = History(PlacementIndex(), 3), History(RecordedIndex(lambda _: None), 3)
    for _ in range(200):
        plain.step()
        taped.step()
    assert plain.tasks == taped.tasks
    on_plain, on_taped = ({t: h.index._holds.by_task[t].node_id for t in h.tasks} for h in (plain, taped))
    assert on_plain == on_taped


def a_short_log() -> tuple[list[bytes], RecordedIndex]:
    written: list[bytes] = []
    index = RecordedIndex(written.append)
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id, cpu_nano=2 * CPU))
    index.place(Demand("s1", cpu_nano=CPU), ["t1", "t2"])
    index.place(Demand("s2", cpu_nano=CPU, constraints=("node.id==n1",)), ["t3", "t4"])
    return written, index


def test_the_first_difference_is_named() -> None:
    written, _ = a_short_log()
    *_, last = log.entries(b"".join(written))
    assert isinstance(last, log.Place)
    assert replay(b"".join(written)).difference == ""
    for choices, sentence in (
        ((("n2", (), ()),), "decision 2: task t3 went to node n2 then, went to node n1 now"),
        ((), "decision 2: task t3 found no place then, went to node n1 now"),
        ((*last.choices, *last.choices), "decision 2: task t4 went to node n1 then, found no place now"),
    ):
        changed = log.frame(msgspec.structs.replace(last, choices=choices))
        assert replay(b"".join([*written[:-1], changed])).difference == sentence


def test_a_log_that_a_crash_cut_off_ends_early() -> None:
    written, _ = a_short_log()
    data = b"".join(written)
    for n_bytes in range(len(written[0]), len(data)):
        outcome = replay(data[:n_bytes])
        assert outcome.difference == ""
        whole = [sum(map(len, written[: n + 1])) for n in range(len(written))]
        assert outcome.n_bytes_cut == n_bytes - max(end for end in whole if end <= n_bytes)
        assert outcome.n_decisions == (n_bytes >= len(data) - len(written[-1]) - len(written[-2]))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello", "begins with b'hello', not with"),
        (log.MAGIC, "does not begin with how its index was made"),
        (log.MAGIC + log.frame(log.Drop("t1")), "does not begin with how its index was made"),
        (log.MAGIC + log.frame(log.Begin("", "tight")), "strategy 'tight'"),
        (log.MAGIC + b"\x02\x00\x00\x00ab", "message 1 at byte 24 is damaged"),
        (
            log.MAGIC + log.frame(log.Begin("", "spread")) + log.frame(log.Place(7, (), (), 0.0, ())),
            "demand 7 is named",
        ),
        (log.MAGIC + log.frame(log.Begin("", "spread")) * 2, "a message Begin in the middle"),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=sentence.replace("(", r"\(")):
        replay(data)


FROM = log.MAGIC + log.frame(log.Begin("", "spread")) + log.frame(log.NewDemand(0, Demand("s1", strategy="pack")))
NODE = log.frame(log.SetNode(a_node("n1")))


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (log.Place(0, ("t1", "t1"), (), 0.0, ()), "message 4, Place, cannot have been: a task is given once"),
        (log.PlaceMany(((0, ("t1",)),), 0.0, 0, ()), "message 4, PlaceMany, cannot have been: zip"),
        (log.PlaceMany(((0, tuple(map(str, range(300)))),), 0.0, 1 << 63, ((),)), "cannot have been: Python int too"),
    ],
)
def test_a_log_of_what_no_index_is_told_is_refused(entry: log.AnyEntry, sentence: str) -> None:
    """A file is damaged, or made by hand: whoever replays it gets a sentence."""
    with pytest.raises(InvalidSpec, match=sentence):
        replay(FROM + NODE + log.frame(entry))


def test_a_task_that_is_placed_twice_is_no_log() -> None:
    placed = log.frame(log.Place(0, ("t1",), (), 0.0, (("n1", (), ()),)))
    assert replay(FROM + NODE + placed).difference == ""
    with pytest.raises(InvalidSpec, match="message 5, Place, cannot have been: a task is placed once"):
        replay(FROM + NODE + placed * 2)


def test_a_damaged_length_is_told_by_what_it_leaves_unread() -> None:
    data = b"".join(a_short_log()[0])
    at = len(log.MAGIC + log.frame(log.Begin("", "spread")))
    assert replay(data[:at] + b"\xff" * 4 + data[at + 4 :]).n_bytes_cut > len(data) // 2
    assert replay(data).n_bytes_cut == 0


def test_what_is_only_tried_is_not_written_down() -> None:
    written, index = a_short_log()
    index.set_node(a_node("n3", cpu_nano=9 * CPU))
    index.hold("t9", Demand("s9", host_ports=(HostPort(port=80),)), "n1")
    n_before = len(written)
    assert index.what_if().service(Demand("s3", cpu_nano=CPU, host_ports=(HostPort(port=80),)), 3).placed
    assert index.what_if().lost(["n1"]).moves
    assert index.what_if().drained(["n1", "n2"]).moves
    assert index.feasible(Demand("s1", cpu_nano=CPU), "n3", task_id="t1") == ""
    assert index.explain(Demand("s1", cpu_nano=99 * CPU))
    assert len(written) == n_before
    index.place(Demand("s4", cpu_nano=CPU), ["t5", "t6", "t7"])
    assert replay(b"".join(written)).difference == ""


def run(*command: str, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_logs_and_replays_are_the_same_whatever_the_hash_seed(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run("tests.support.decision_history", str(one), "300", "5", hash_seed=1)
    run("tests.support.decision_history", str(two), "300", "5", hash_seed=2)
    assert one.read_bytes() == two.read_bytes()
    said = run("beeyard", "replay", str(one), hash_seed=3)
    assert "all the same" in said
    assert said == run("beeyard", "replay", str(two), hash_seed=4)


def test_decisions_of_an_earlier_version_come_out_the_same() -> None:
    """Whoever changes what is decided, on purpose, records the file anew: python -m tests.support.decision_history."""
    outcome = replay(gzip.decompress(LOG.read_bytes()))
    assert (outcome.difference, outcome.n_decisions >= 1000) == ("", True)
