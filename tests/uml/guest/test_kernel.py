"""What a UML host has, so that the tests here test what they say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def sh(script: str) -> str:
    """Run a shell script; gives what it printed."""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_kernel_has_what_this_lane_is_for() -> None:
    """cgroup v2 alone, and link kinds that load by themselves."""
    assert "cgroup2 /sys/fs/cgroup" in Path("/proc/mounts").read_text()
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if " cgroup " in line]
    assert "memory" in Path("/sys/fs/cgroup/cgroup.controllers").read_text().split()
    sh("ip link add base0 type dummy; ip link set base0 up")
    try:
        assert "mode l3s" in sh("ip link add i0 link base0 type ipvlan mode l3s; ip -d link show i0")
        assert "vlan protocol 802.1Q id 7" in sh(
            "ip link add link base0 name base0.7 type vlan id 7; ip -d link show base0.7"
        )
    finally:
        sh("ip link delete base0")


def test_what_is_written_inside_stays_inside() -> None:
    """The root is a copy: the machine's own files are only read."""
    path = Path(__file__).with_suffix(".written")
    path.write_text("here alone")
    assert path.read_text() == "here alone"
    assert not Path("/.outside", *path.parts[1:]).exists()
    assert os.uname().nodename == "test-kernel"
