"""`beeyard list` and `beeyard discovery-token`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beeyard.cli import discovery_list, discovery_token


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = discovery_list.main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_nodes_are_printed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As classic Swarm's list did."""
    assert run(["10.0.0.[1:2]:2375,a:1"], capsys) == (0, "10.0.0.1:2375\n10.0.0.2:2375\na:1\n", "")


def test_a_file_may_be_named_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the lists of managers in it, by manager and for programs."""
    block = "# beeyard list m1-x until 9999999999.000\nb:2\na:1\n# beeyard end\n"
    (tmp_path / "nodes").write_text(f"c:3 # by hand\n{block}")
    monkeypatch.chdir(tmp_path)
    assert run(["file://nodes"], capsys)[1] == "a:1\nb:2\nc:3\n"
    table = "MANAGER  NODE\n-        c:3\nm1-x     a:1\nm1-x     b:2\n"
    assert run(["file://nodes", "--by-manager"], capsys)[1] == table
    said = json.loads(run(["file://nodes", "--json"], capsys)[1])
    assert said == {"nodes": ["a:1", "b:2", "c:3"], "lists": {"m1-x": ["a:1", "b:2"]}, "others": ["c:3"]}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["file:///no/such/file"], "cannot read /no/such/file: there is no such file"),
        (["etcd://127.0.0.1:1"], "cannot reach 127.0.0.1:1: connection refused"),
        (["http://x"], "there is no discovery service 'http'"),
        (["etcd://x", "--discovery-opt", "kv.cacertfile=/no/ca.pem"], "cannot read /no/ca.pem"),
        (["--socket", "/no/socket"], "cannot ask the manager at /no/socket: no such file or directory"),
    ],
)
def test_what_cannot_be_listed_is_said_in_one_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 1 and nothing on the standard output."""
    code, out, err = run(arguments, capsys)
    assert (code, out) == (1, "")
    assert why in err
    assert err.startswith("beeyard list: ")
    assert err.count("\n") == 1


def test_an_empty_list_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to print."""
    (tmp_path / "nodes").touch()
    assert run([f"file://{tmp_path}/nodes"], capsys) == (0, "", "")


def test_a_token_comes_from_the_manager_of_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    """When there is none, that is said."""
    assert discovery_token.main(["--socket", "/no/socket"]) == 1
    assert capsys.readouterr().err.startswith("beeyard discovery-token: cannot ask the manager at /no/socket")
