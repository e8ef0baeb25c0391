"""One user at a time for a directory, whatever happens to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beeyard.core.errors import DiskError
from beeyard.runtime.real_lock import LOCK_FILE, NetworkTaken, sole_in_network, sole_use

HOLD = """
import sys
from beeyard.runtime.real_lock import sole_in_network, sole_use
with sole_use(sys.argv[1], "agent") if sys.argv[1].startswith("/") else sole_in_network(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_user_is_told_who_the_first_is_until_that_one_is_gone(tmp_path: Path) -> None:
    """Killed without a warning, it holds nothing any more."""
    directory = tmp_path / "state"
    directory.mkdir()
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        sentence = f"cannot use {directory}: another agent (pid {holder.pid}) uses it"
        with pytest.raises(DiskError) as refused, sole_use(str(directory), "agent"):
            raise AssertionError
        assert str(refused.value) == sentence
        holder.kill()
    with sole_use(str(directory), "agent"):
        assert (directory / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_directory_that_was_not_there_is_gone_when_nothing_came_into_it(tmp_path: Path) -> None:
    """What was there, or is not empty, stays."""
    new, old, used = tmp_path / "new" / "state", tmp_path / "old", tmp_path / "used"
    old.mkdir()
    for directory in (new, old, used):
        with sole_use(str(directory), "agent"):
            assert directory.is_dir()
            if directory is used:
                (directory / "identity").touch()
    assert [directory.is_dir() for directory in (new, old, used)] == [False, True, True]


def test_child_that_outlives_the_user_does_not_hold_the_directory(tmp_path: Path) -> None:
    """Tasks run on when their agent is stopped."""
    with sole_use(str(tmp_path), "agent"):
        child = subprocess.Popen(["sleep", "1d"], close_fds=False)
    try:
        with sole_use(str(tmp_path), "agent"):
            pass
    finally:
        child.kill()
        child.wait()


# A process that ends while a copy of its descriptors lives on until it is told to go.
LEAVE = HOLD.replace("    sys.stdin.read()", "    if os.fork():\n        os._exit(0)\n    sys.stdin.read()").replace(
    "import sys", "import os, sys", 1
)


@contextmanager
def held_by_one_that_ended(place: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process that took a place and has ended; what is left of it goes when its standard input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVE, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.wait()
        yield holder


@pytest.mark.parametrize("what", ["directory", "network"])
def test_what_a_process_held_that_has_ended_is_waited_for(tmp_path: Path, what: str) -> None:
    """Its threads end one after the other, and a child of it may not have come to its exec yet."""
    place = str(tmp_path) if what == "directory" else f"trial-{os.getpid()}"
    with held_by_one_that_ended(place) as holder:
        assert holder.stdin is not None
        let_go, sleep, looks = holder.stdin.close, time.sleep, []

        def look(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 3:
                let_go()
            sleep(seconds / 10)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("beeyard.runtime.real_lock.time.sleep", look)
            with sole_use(place, "agent") if what == "directory" else sole_in_network(place):
                assert len(looks) >= 3


@pytest.mark.parametrize("what", ["directory", "network"])
def test_what_nobody_gives_back_is_not_waited_for_long(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who held it is gone, and who has it now is not about to go."""
    monkeypatch.setattr("beeyard.runtime.real_lock.ENDING_S", 0.05)
    place = str(tmp_path) if what == "directory" else f"trial-{os.getpid()}"
    with held_by_one_that_ended(place) as holder:
        assert holder.stdin is not None
        with (
            pytest.raises((DiskError, NetworkTaken), match=rf"pid {holder.pid}\)"),
            sole_use(place, "agent") if what == "directory" else sole_in_network(place),
        ):
            raise AssertionError
        holder.stdin.close()


def test_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The sentence is one for a person."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(DiskError, match=r"cannot use .*/file/state: Not a directory"),
        sole_use(f"{tmp_path}/file/state", "agent"),
    ):
        raise AssertionError


def test_a_network_namespace_has_one_user_of_a_kind_until_that_one_is_gone() -> None:
    """Killed without a warning, it holds nothing any more; users of another kind are not in its way."""
    kind = f"trial-{os.getpid()}"
    command = [sys.executable, "-c", HOLD, kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(NetworkTaken) as refused, sole_in_network(kind):
            raise AssertionError
        assert (refused.value.who, refused.value.pid) == (kind, holder.pid)
        assert str(refused.value).startswith(f"another {kind} (pid {holder.pid}) is in this network namespace: ")
        with sole_in_network(f"{kind}-other"):
            pass
        holder.kill()
    for _ in range(2):
        with sole_in_network(kind):
            pass


def test_whoever_has_the_name_without_saying_so_is_in_the_way_too() -> None:
    """It may be one that has just begun."""
    kind = f"trial-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"\0beeyard-{kind}")
        with (
            pytest.raises(NetworkTaken, match=rf"^another {kind} is in this network namespace: "),
            sole_in_network(kind),
        ):
            raise AssertionError
