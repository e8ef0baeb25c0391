"""The units as systemd itself judges them: valid, and closed as far as was promised."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy/systemd"


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that is there on every machine."""
    for unit in UNITS.glob("*.*"):
        if unit.suffix in (".service", ".socket"):
            (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/beeyard/bin/beeyard", "/bin/true"))
    return tmp_path


def analyze(*arguments: str) -> str:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_finds_nothing_to_say_about_them(units: Path) -> None:
    paths = sorted(str(path) for path in units.iterdir())
    assert len(paths) == 5
    said = analyze("verify", "--man=no", "--recursive-errors=no", *paths)
    assert [line for line in said.splitlines() if "beeyard" in line] == []


@pytest.mark.parametrize(("unit", "exposure"), [("beeyard-manager", 2.5), ("beeyard-agent", 4.5)])
def test_a_daemon_is_no_more_exposed_than_promised(units: Path, unit: str, exposure: float) -> None:
    said = analyze("security", "--no-pager", "--offline=true", str(units / f"{unit}.service"))
    match = re.search(r"Overall exposure level for .*: ([0-9.]+) ", said)
    assert match is not None, said
    assert float(match[1]) <= exposure, said


def test_the_agent_has_the_capabilities_that_it_needs_and_no_other() -> None:
    """Each is explained in the unit; one more is a decision, not an accident."""
    lines = (UNITS / "beeyard-agent.service").read_text().splitlines()
    (bounding,) = [line for line in lines if line.startswith("CapabilityBoundingSet=")]
    assert bounding == "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_ADMIN CAP_SYS_PTRACE"


def test_nothing_of_the_agents_restrictions_reaches_what_starts_tasks() -> None:
    """A task would inherit a filter of system calls or a mount namespace for good."""
    restrict = re.compile(
        r"^(Protect|Private|Restrict|SystemCall|Capability|NoNew|ReadOnly|Inaccessible|Memory|Lock)\w*="
    )
    for unit in ("beeyard-launcher@.service", "beeyard-tasks.service"):
        assert [line for line in (UNITS / unit).read_text().splitlines() if restrict.match(line)] == []
