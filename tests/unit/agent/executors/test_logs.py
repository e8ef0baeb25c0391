"""Which logs of removed tasks are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beeyard.agent.executors.process.logs import Keep, prune
from beeyard.agent.executors.process.order import Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "log").mkdir()
    return Places(str(tmp_path / "state"), str(tmp_path / "log"), "beeyard/test")


def task_id(number: int) -> str:
    return f"t{number:024}"


def write(places: Places, name: str, *, n_bytes: int = 10, age_s: int = 0) -> None:
    """A log that was last written so long ago."""
    path = Path(places.log_dir) / name
    path.write_bytes(b"x" * n_bytes)
    os.utime(path, (1_700_000_000 - age_s,) * 2)


def kept(places: Places) -> list[str]:
    return sorted(os.listdir(places.log_dir))


def test_the_newest_are_kept(places: Places) -> None:
    for number in range(10):
        write(places, f"{task_id(number)}.log", age_s=number)
    prune(places, Keep(n_tasks=3, n_bytes=1000))
    assert kept(places) == [f"{task_id(number)}.log" for number in range(3)]
    prune(places, Keep(n_tasks=3, n_bytes=1000))
    assert len(kept(places)) == 3


def test_no_more_bytes_than_that_are_kept(places: Places) -> None:
    for number in range(4):
        write(places, f"{task_id(number)}.log", n_bytes=400, age_s=number)
    prune(places, Keep(n_tasks=100, n_bytes=1000))
    assert kept(places) == [f"{task_id(0)}.log", f"{task_id(1)}.log"]


def test_a_log_that_was_turned_over_goes_with_its_successor(places: Places) -> None:
    """Both are one task's: they count together, and the task is as old as the newer one."""
    write(places, f"{task_id(1)}.log", n_bytes=300, age_s=1)
    write(places, f"{task_id(1)}.log.1", n_bytes=300, age_s=50)
    write(places, f"{task_id(2)}.log", n_bytes=300, age_s=2)
    prune(places, Keep(n_tasks=100, n_bytes=700))
    assert kept(places) == [f"{task_id(1)}.log", f"{task_id(1)}.log.1"]
    prune(places, Keep(n_tasks=0))
    assert kept(places) == []


def test_what_node_hooks_said_goes_with_the_output_of_their_task(places: Places) -> None:
    """One task's too; one that a hook refused has no other log."""
    write(places, f"{task_id(1)}.log", age_s=5)
    write(places, f"{task_id(1)}.hooks.log", age_s=4)
    write(places, f"{task_id(2)}.hooks.log", age_s=3)
    write(places, f"{task_id(3)}.hooks.log", age_s=2)
    write(places, f"{task_id(3)}.hooks.log.1", age_s=9)
    prune(places, Keep(n_tasks=2))
    assert kept(places) == [f"{task_id(2)}.hooks.log", f"{task_id(3)}.hooks.log", f"{task_id(3)}.hooks.log.1"]


def test_a_task_that_is_here_keeps_its_log_whatever_its_age(places: Places) -> None:
    os.makedirs(places.shim_dir(task_id(1)))
    write(places, f"{task_id(1)}.log", age_s=1000)
    write(places, f"{task_id(2)}.log")
    prune(places, Keep(n_tasks=0))
    assert kept(places) == [f"{task_id(1)}.log"]


def test_what_is_no_log_of_a_task_is_left_alone(places: Places, tmp_path: Path) -> None:
    names = ["syslog", "web.log", f"{task_id(1)}.log.2", f"{task_id(1).upper()}.log", f"{task_id(1)}.txt"]
    for name in names:
        write(places, name)
    (tmp_path / "log" / f"{task_id(2)}.log").symlink_to("syslog")
    (tmp_path / "log" / f"{task_id(3)}.log").mkdir()
    prune(places, Keep(n_tasks=0))
    assert kept(places) == sorted([*names, f"{task_id(2)}.log", f"{task_id(3)}.log"])


def test_a_directory_that_is_not_there_is_fine(places: Places) -> None:
    os.rmdir(places.log_dir)
    prune(places, Keep())
    assert not os.path.exists(places.log_dir)
