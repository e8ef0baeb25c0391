"""The command `beeyard`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import beeyard
from beeyard.cli import client_certificate
from beeyard.cli.main import COMMANDS, main


def loaded_by(command: str) -> list[str]:
    """The modules of ours that a command loads before it does anything."""
    code = (
        "import sys\nfrom beeyard.cli.main import main\n"
        f"try:\n    main([{command!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("join", ("beeyard.manager", "starlette", "h11")),
        ("manage", ("beeyard.agent", "beeyard.netdrivers")),
        ("client-certificate", ("beeyard.agent", "beeyard.manager", "trio", "numpy", "cryptography")),
    ],
)
def test_a_command_loads_what_it_needs_and_no_more(command: str, foreign: tuple[str, ...]) -> None:
    assert [module for module in loaded_by(command) if module.startswith(foreign)] == []


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"beeyard {beeyard.__version__}\n"
    assert main(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mange"]) == 2
    assert capsys.readouterr().err.endswith("beeyard: there is no command 'mange'\n")


def test_a_manager_that_does_not_answer_is_named(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "docker.sock"
    assert client_certificate.main(["--list", "--socket", str(path)]) == 1
    assert f"cannot ask the manager at {path}: no such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["anna"], ["anna", "--list"], ["--revoke", "x", "--list"]])
def test_a_certificate_is_issued_listed_or_revoked(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        client_certificate.main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("manage", "--check-conf"),
        ("join", "--check-conf"),
        ("pool set lan", "--gate=10.0.0.1"),
        ("pool list", "--sock=/x"),
        ("client-certificate", "--lis"),
        ("explain web", "--node"),
        ("whatif service web", "--repl=2"),
        ("whatif node-lost yard1", "--js"),
        ("whatif drain yard1", "--js"),
        ("rtt yard1", "--js"),
        ("members", "--detail"),
        ("list nodes://a:1", "--by"),
    ],
)
def test_flags_are_written_out(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is cut short may mean another one tomorrow: each command refuses it."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), flag])
    assert ended.value.code == 2
    assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "launch"])
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: beeyard {command} ")
    assert "%%" not in shown  # argparse formats the help of an option, and leaves a description as it is


def test_whoever_reads_may_have_enough(tmp_path) -> None:
    """`beeyard members | head -1` shows no traceback."""
    many = tmp_path / "nodes"
    many.write_text("".join(f"10.{n}.0.[1:250]:1\n" for n in range(200)))
    command = [sys.executable, "-m", "beeyard", "list", f"file://{many}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
