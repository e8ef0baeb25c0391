"""What `beeyard join` says about its settings before it touches anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beeyard.agent.command import complete, main
from beeyard.agent.config import AgentConfig
from beeyard.runtime.settings import resolve

TOKEN = f"SWMTKN-1-{'d' * 50}-{'s' * 25}"
NOBODY = "give the address of at least one manager, HOST:PORT, or self:// to have it found"
ELSEWHERE = "it must be HOST:PORT; an IPv6 host goes in brackets"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BEEYARD_AGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), f"managers: {NOBODY}"),
        (("--join-token", TOKEN), f"managers: {NOBODY}"),
        (("10.0.0.1",), f"--managers: '10.0.0.1' is not right: {ELSEWHERE}"),
        (("fd00::1:2377",), f"--managers: 'fd00::1:2377' is not right: {ELSEWHERE}"),
        (("m1:0",), f"--managers: 'm1:0' is not right: {ELSEWHERE}"),
        (("m1:2377", "unix:///run/x"), f"--managers: 'unix:///run/x' is not right: {ELSEWHERE}"),
        (
            ("self://10.0.0.1",),
            "--managers: 'self://10.0.0.1' is not right: it is self:// or self://:PORT, which names no host",
        ),
        (
            ("self://", "--discovery-peers", "10.0.0.7:x"),
            "--discovery-peers: '10.0.0.7:x' is not right: a peer is HOST or HOST:PORT, an IPv6 host in brackets",
        ),
        (
            ("self://", "--discovery-mdns", "rack.one"),
            "--discovery-mdns: 'rack.one' is not right: it must be a word of at most 57 characters, without dots",
        ),
        (
            ("self://", "--discovery-keyring-file", "keyring"),
            "--discovery-keyring-file: 'keyring' is not right: it must be an absolute path",
        ),
        (
            ("self://", "--discovery-profile", "WAN"),
            '--discovery-profile: "WAN" is not right: it must be one of lan, wan, local',
        ),
        (("self://", "--discovery-tags", "dc"), "--discovery-tags: 'dc' is not KEY=VALUE, such as dc=ams"),
        (
            ("serf://",),
            "--managers: 'serf://' names nobody: it is serf://HOST,HOST:PORT; self:// finds peers without any",
        ),
        (
            ("m1:2377", "--advertise", "10.0.0.1"),
            "--advertise: it counts only where managers are found by self:// or serf://",
        ),
        (
            ("self://", "--advertise", "10.0.0.1:x"),
            "--advertise: '10.0.0.1:x' is not right: it must be HOST or HOST:PORT",
        ),
        (
            ("m1:2377", "--join-token", "secret"),
            "--join-token: this is no join token: it must look like SWMTKN-1-DIGEST-SECRET",
        ),
        (
            ("m1:2377", "--join-token", TOKEN[:-1]),
            "--join-token: this is no join token: its secret must be 25 digits of 0-9 and a-z",
        ),
        (
            ("m1:2377", "--join-token-file", "/nowhere/token"),
            "--join-token-file: cannot read /nowhere/token: no such file or directory",
        ),
        (
            ("m1:2377", "--launcher", "/run/socket"),
            "--launcher: '/run/socket' is not right: it must be in a directory of its own, such as /run/NAME/socket: "
            "tasks find that directory empty",
        ),
        (("m1:2377", "--volumes-dir", "srv"), "--volumes-dir: 'srv': an absolute path without '..' is right"),
        (
            ("m1:2377", "--generic-resources", "gpu=a,gpu=2"),
            "--generic-resources: gpu has the number 2 and 1 more: give one number, or names alone",
        ),
        (
            ("m1:2377", "--labels", "disk=ssd,rack"),
            "--labels: 'rack': it must be NAME=VALUE, and a name has letters, digits, '-', '_' and '.'",
        ),
        (
            ("m1:2377", "--reserve-cpu=-1"),
            "--reserve-cpu: -1 is not right: it must be a number (Expected `float` >= 0.0)",
        ),
        (("m1:2377", "--log-dir", "log"), "--log-dir: 'log' is not right: it must be an absolute path"),
        (
            ("m1:2377", "--logs-kept=-1"),
            "--logs-kept: -1 is not right: it must be a whole number (Expected `int` >= 0)",
        ),
        (
            ("m1:2377", "--describe-interval-s=0"),
            "--describe-interval-s: 0 is not right: it must be a number (Expected `float` >= 0.1)",
        ),
        (
            ("m1:2377", "--backoff-cap-s=0"),
            "--backoff-cap-s: 0 is not right: it must be a number (Expected `float` >= 0.1)",
        ),
        (
            ("m1:2377", "--probe-s=inf"),
            "--probe-s: inf is not right: it must be a number (Expected `float` <= 60.0)",
        ),
        (
            ("m1:2377", "--hooks-timeout-s=0"),
            "--hooks-timeout-s: timeout_s is 0: it must be above 0 and at most 3600 seconds",
        ),
        (
            ("m1:2377", "--hooks-allow-mounts=/srv,etc"),
            "--hooks-allow-mounts: allow_mounts has 'etc': an absolute path without '..' is right",
        ),
        (("m1:2377", "--log-mib-kept=many"), '--log-mib-kept: "many" is not right: it must be a whole number'),
        (
            ("m1:2377", "--config", "/nowhere/agent.toml"),
            "/nowhere/agent.toml: cannot read it: no such file or directory",
        ),
    ],
)
def test_settings_that_cannot_work_are_named(
    flags: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--state-dir", str(tmp_path / "state")]) == 2
    assert capsys.readouterr().err == f"beeyard join: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_token_in_the_environment_is_checked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BEEYARD_AGENT_JOIN_TOKEN", "nonsense")
    assert main(["m1:2377", "--check-config"]) == 1
    assert "$BEEYARD_AGENT_JOIN_TOKEN: this is no join token" in capsys.readouterr().err


def test_a_check_needs_no_root_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    flags = ["m1:2377", "--state-dir", str(tmp_path / "state"), "--join-token-file", str(token)]
    assert main([*flags, "--check-config"]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert main([*flags, "--print-config", "--join-token", TOKEN]) == 0
    shown = capsys.readouterr().out
    assert 'managers = ["m1:2377"]  # --managers\n' in shown
    assert 'join_token = "(hidden)"  # --join-token\n' in shown
    assert "logs_kept = 1000  # default\n" in shown
    assert TOKEN not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize(
    ("flags", "sentences"),
    [
        (
            ("--logs-kept", "many", "--probe-s", "soon"),
            [
                '--logs-kept: "many" is not right: it must be a whole number',
                '--probe-s: "soon" is not right: it must be a number',
            ],
        ),
        (("--join-token", "nonsense"), ["--join-token: this is no join token"]),
        (("--config", "/nonexistent"), ["/nonexistent: cannot read it: no such file or directory"]),
    ],
)
def test_wrong_settings_are_told_beside_those_that_are_right(
    flags: tuple[str, ...], sentences: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["m1:2377", "--print-config", *flags]) == 2
    shown, told = capsys.readouterr()
    assert ('managers = ["m1:2377"]  # --managers\n' in shown) is ("--config" not in flags)
    lines = told.splitlines()
    assert len(lines) == len(sentences)
    assert all(line.startswith(f"beeyard join: {words}") for line, words in zip(lines, sentences, strict=True))


@pytest.mark.parametrize("flags", [("m1:2377", "--join-token", TOKEN), ("--purge",)])
def test_without_root_nothing_is_tried(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([*flags, "--state-dir", str(tmp_path / "state")]) == 1
    assert capsys.readouterr().err == "beeyard join: needs root, for network namespaces and cgroups\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flag", "managers"),
    [
        ("self://:3388", ("self://:3388",)),
        ("serf://10.0.0.7,host2:7946", ("serf://10.0.0.7,host2:7946",)),
        ("m1:2377,serf://a,b:1,self://", ("tcp://m1:2377", "serf://a,b:1", "self://")),
        ('["m1:2377", "serf://a,b:1"]', ("tcp://m1:2377", "serf://a,b:1")),
    ],
)
def test_urls_of_peers_stay_whole_in_a_list_of_one_word(flag: str, managers: tuple[str, ...]) -> None:
    """Though it has commas between its entries."""
    assert complete(resolve(AgentConfig, "BEEYARD_AGENT_", flags={"managers": flag})).managers == managers


def test_a_list_in_a_file_is_taken_as_it_is() -> None:
    """What follows a URL there is a manager."""
    file = ("agent.toml", 'managers = ["serf://a", "m1:2377"]')
    assert complete(resolve(AgentConfig, "BEEYARD_AGENT_", file=file)).managers == ("serf://a", "tcp://m1:2377")


def test_managers_and_urls_stand_side_by_side_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In any order."""
    assert main(["serf://a,b", "m1:2377,m2:2377", "--print-config"]) == 0
    assert 'managers = ["m1:2377", "m2:2377", "serf://a,b"]' in capsys.readouterr().out
