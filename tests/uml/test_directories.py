"""Where UML hosts keep their memory and disks."""

from __future__ import annotations

import subprocess

from deploy.uml_host import own_directory, roomy_directory


def test_what_a_killed_run_left_is_removed_and_what_others_use_is_not() -> None:
    """Folders carry the pid of who made them."""
    with subprocess.Popen(["sleep", "60"]) as other:
        left, used = (roomy_directory() / f"beeyard-uml-{pid}-x" for pid in (_dead_pid(), other.pid))
        try:
            for path in (left, used):
                (path / "host").mkdir(parents=True)
            own = own_directory("x")
            assert not own.exists()
            assert (left.exists(), used.exists()) == (False, True)
        finally:
            other.kill()
    other.wait()
    assert own_directory("x") == own
    assert not used.exists()


def _dead_pid() -> int:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    return gone.pid
