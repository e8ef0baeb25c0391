"""What `./yard` takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from beeyard.agent.config import AgentConfig
from beeyard.runtime.settings import resolve
from deploy.yard import main
from deploy.yard_cluster import write_settings


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


def test_settings_that_were_changed_by_hand_are_kept(tmp_path: Path) -> None:
    """What nobody changed follows what the cluster is started with."""
    config = tmp_path / "agent1.toml"
    assert write_settings(config, {"probe_s": 0.1, "hooks.directory": "/h"})
    assert resolve(AgentConfig, "B_", file=("agent1.toml", config.read_text())).config.hooks.directory == "/h"
    assert write_settings(config, {"probe_s": 0.2})
    assert "probe_s = 0.2" in config.read_text()
    config.write_text(config.read_text().replace("0.2", "0.5"))
    for _ in range(2):
        assert not write_settings(config, {"probe_s": 0.3})
        assert "probe_s = 0.5" in config.read_text()
    config.unlink()
    assert write_settings(config, {"probe_s": 0.3})


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


@pytest.mark.parametrize(
    ("said", "progress"),
    [
        ("", "beginning"),
        ("  Installing collected packages: cython\n  [ 2/14] Cythonizing src/x.pyx\n", "translating module 1 of "),
        ("  [ 2/14] Cythonizing src/x.pyx\nCollecting trio\nCollecting h11\n", "fetching packages, 2 so far"),
        ("Collecting trio\n  building 'beeyard.core.x' extension\n", "compiling module 1 of "),
        ("  building 'beeyard.core.x' extension\nInstalling collected packages: trio\n", "unpacking the packages"),
    ],
)
def test_it_tells_how_far_an_installation_is(said: str, progress: str, tmp_path: Path) -> None:
    """By what pip and the compiler have said so far."""
    root = Path(__file__).parents[3]
    function = (root / "yard").read_text().split("\nprogress_of() {")[1].split("\n}\n")[0]
    (tmp_path / "log").write_text(said)
    script = f"progress_of() {{{function}\n}}\nprogress_of {tmp_path}/log"
    done = subprocess.run(["sh", "-euc", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(progress)
