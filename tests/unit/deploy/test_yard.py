"""What `./yard` takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.yard import main


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--node", "3"], "unrecognized arguments: --node"),
        (["up", "--det"], "unrecognized arguments: --det"),
        (["up", "--nodes", "0"], "argument --nodes: '0' is not a number of nodes from 1 to"),
        (["down", "--force"], "unrecognized arguments: --force"),
    ],
)
def test_flags_are_written_out(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that is cut short is refused, as those of `beeyard manage` and `join` are, before anything is touched."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def yard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(__file__).parents[3] / "yard", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("command", ["test", "bench", "build", "build-debug", "install", "uml"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_asked_for_help_it_does_nothing_else(command: str, flag: str) -> None:
    shown = yard(command, flag)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: ./yard COMMAND")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["test", "units"], "there is no lane 'units'; the lanes are: tidy unit scenario sim e2e uml"),
        (["bench", "--jsno"], "bench takes names and --json FILE, not '--jsno'"),
        (["bench", "speed"], "there is no benchmark 'speed'; there are: "),
        (["build", "debug"], "build takes no argument, not 'debug'"),
        (["install", "--now"], "install takes no argument, not '--now'"),
        (["tset"], "there is no command 'tset'"),
    ],
)
def test_what_it_does_not_know_is_named_before_anything_is_done(arguments: list[str], sentence: str) -> None:
    refused = yard(*arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert sentence in refused.stderr
