"""What the agent's command says about its flags before it touches anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beeyard.agent.__main__ import TOKEN_VARIABLE, main

TOKEN = f"SWMTKN-1-{'d' * 50}-{'s' * 25}"
MANAGER = ("--manager", "10.0.0.1:2377")


@pytest.fixture(autouse=True)
def no_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "--manager HOST:PORT is missing: give the address of at least one manager"),
        (("--token", TOKEN), "--manager HOST:PORT is missing: give the address of at least one manager"),
        (("--manager", "10.0.0.1"), "--manager '10.0.0.1' is not HOST:PORT; an IPv6 host goes in brackets"),
        (("--manager", "fd00::1:2377"), "--manager 'fd00::1:2377' is not HOST:PORT; an IPv6 host goes in brackets"),
        (("--manager", "m1:0"), "--manager 'm1:0' is not HOST:PORT; an IPv6 host goes in brackets"),
        (("--manager", "unix:///run/x"), "--manager 'unix:///run/x' is not HOST:PORT; an IPv6 host goes in brackets"),
        ((*MANAGER, "--manager", ""), "--manager '' is not HOST:PORT; an IPv6 host goes in brackets"),
        (
            (*MANAGER, "--token", "secret"),
            "--token (or $BEEYARD_JOIN_TOKEN) is no join token: it must look like SWMTKN-1-DIGEST-SECRET",
        ),
        (
            (*MANAGER, "--token", TOKEN[:-1]),
            "--token (or $BEEYARD_JOIN_TOKEN) is no join token: its secret must be 25 digits of 0-9 and a-z",
        ),
    ],
)
def test_flags_that_cannot_work_are_named(
    flags: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--state-dir", str(tmp_path / "state")]) == 1
    assert capsys.readouterr().err == f"beeyard agent: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_token_in_the_environment_is_checked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "nonsense")
    assert main(MANAGER) == 1
    assert "$BEEYARD_JOIN_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(*MANAGER, "--token", TOKEN), ("--purge",)])
def test_without_root_nothing_is_tried(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([*flags, "--state-dir", str(tmp_path / "state")]) == 1
    assert capsys.readouterr().err == "beeyard agent: needs root, for network namespaces and cgroups\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--logs-kept", "--log-mib-kept"])
@pytest.mark.parametrize("value", ["-1", "many", "1.5", ""])
def test_what_is_kept_is_a_number(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*MANAGER, f"{flag}={value}"])
    assert ended.value.code == 2
    assert f"argument {flag}: {value!r} is not a number, 0 or more" in capsys.readouterr().err
